"""Plays a policy outside of training: for evaluation and rendering."""

from __future__ import annotations

import numpy as np
import torch

from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.policies.policy import Policy
from scramjet.training.rollout.recurrent_states import RecurrentStates


class Player:
    """Plays a policy on a pool and keeps its recurrent states.

    It takes the most likely actions, or draws them if there is a generator.
    """

    def __init__(self, pool: Pool, policy: Policy, generator: torch.Generator | None = None) -> None:
        self._policy, self._generator = policy, generator
        self._recurrent = RecurrentStates.of(policy, pool)
        self._turn = torch.zeros(0)

    def act(self, out: Transition) -> np.ndarray:
        """Choose actions for the observations in `out`."""
        self._turn = torch.from_numpy(out.turn.copy())
        self._recurrent.fetch_movers(self._turn)
        state = self._recurrent.movers if self._recurrent.is_used else None
        action = self._policy.act(out.obs, state, mask=out.mask, generator=self._generator)
        self._recurrent.keep_movers(self._turn)
        return action.numpy()

    def see(self, out: Transition) -> None:
        """Take in a step's results: reset the recurrent states of episodes that ended."""
        self._recurrent.reset_ended(self._turn, out.terminated, out.truncated)
