"""Plays a policy outside of training: for evaluation and rendering."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.policies.policy import Policy
from scramjet.search.rows import RowSearch, SearchSettings
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
        self._turn = torch.from_numpy(out.turn.copy()).to(self._policy.device)
        self._recurrent.fetch_movers(self._turn)
        state = self._recurrent.movers if self._recurrent.is_used else None
        action = self._policy.act(out.obs, state, mask=out.mask, generator=self._generator)
        self._recurrent.keep_movers(self._turn)
        return action.cpu().numpy()

    def see(self, out: Transition) -> None:
        """Take in a step's results: reset the recurrent states of episodes that ended."""
        ended: list[Any] = [out.terminated, out.truncated]
        if self._recurrent.states.device.type != "cpu":
            ended = [torch.from_numpy(array.copy()).to(self._recurrent.states.device) for array in ended]
        self._recurrent.reset_ended(self._turn, *ended)


class RowSearchPlayer:
    """Plays by search: a policy's network, looked ahead with; all that is random comes from the generator."""

    def __init__(self, search: RowSearch, generator: torch.Generator) -> None:
        self._search, self._generator = search, generator

    def act(self, out: Transition) -> np.ndarray:
        """Choose actions for the observations in `out`."""
        return self._search.actions(out, np.arange(len(out.terminated)), self._generator)

    def see(self, out: Transition) -> None:
        """Nothing is remembered from step to step."""


def make_player(
    pool: Pool, policy: Policy, generator: torch.Generator, *, samples: bool, search: SearchSettings | None = None
) -> Player | RowSearchPlayer:
    """Who plays a policy on a pool: by search, by drawn actions (`samples`), or by the most likely ones."""
    if search is not None:
        return RowSearchPlayer(RowSearch(pool, policy, search), generator)
    return Player(pool, policy, generator if samples else None)
