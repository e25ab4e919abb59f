"""A policy at play outside of training: for evaluation and for whoever watches."""

from __future__ import annotations

import numpy as np
import torch

from scramjet.engine.layout import Transition
from scramjet.engine.pool import Pool
from scramjet.policies.policy import Policy
from scramjet.training.rollout.recurrent_states import RecurrentStates


class Player:
    """A policy at play on a pool: it takes its most likely actions, or with a generator draws them, and remembers."""

    def __init__(self, pool: Pool, policy: Policy, generator: torch.Generator | None = None) -> None:
        self._policy, self._generator = policy, generator
        self._recurrent = RecurrentStates.of(policy, pool)
        self._turn = torch.zeros(0)

    def act(self, out: Transition) -> np.ndarray:
        """Actions for what the pool shows."""
        self._turn = torch.from_numpy(out.turn.copy())
        self._recurrent.fetch_movers(self._turn)
        state = self._recurrent.movers if self._recurrent.is_used else None
        action = self._policy.act(out.obs, state, mask=out.mask, generator=self._generator)
        self._recurrent.keep_movers(self._turn)
        return action.numpy()

    def see(self, out: Transition) -> None:
        """Take notice of a step's results: an episode that ended leaves no memory."""
        self._recurrent.reset_ended(self._turn, out.terminated, out.truncated)
