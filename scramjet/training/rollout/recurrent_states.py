"""The recurrent states of a policy while it plays: one vector for each player."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.jit import RowKernel
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.policies.policy import Policy


class RecurrentStates:
    """The recurrent states of all players of a pool, carried from step to step.

    Each row of the pool, an env or an agent, has one slot. If seats take turns, each seat of each env has its own slot,
    and a step reads and updates only the slot of the seat to move.
    """

    def __init__(
        self, played_by: PlayedBy, num_rows: int, num_players: int, state_size: int, device: torch.device | str = "cpu"
    ) -> None:
        self._by_seats = played_by is PlayedBy.SEATS
        self._by_agents = played_by is PlayedBy.AGENTS
        self._num_seats = num_players if self._by_seats else 1
        self._first_slot = torch.arange(num_rows, device=device) * self._num_seats  # the first slot of each row
        self.states = torch.zeros(num_rows * self._num_seats, state_size, device=device)  # [slots, state_size]
        self.is_used = state_size > 0
        # The states of the players to move, [rows, state_size]: all states, or with seats a copy of one for each env.
        self.movers = torch.zeros(num_rows, state_size, device=device) if self._by_seats else self.states

    @classmethod
    def of(cls, policy: Policy, pool: Pool) -> RecurrentStates:
        """Zero states for a policy that begins to play on a pool."""
        return cls(pool.played_by, pool.num_rows, pool.num_players, policy.state_size, policy.device)

    def slots(self, rows: slice) -> slice:
        """The slots that belong to some rows."""
        return slice(rows.start * self._num_seats, rows.stop * self._num_seats)

    def part(self, rows: slice) -> RecurrentStates:
        """The states of some rows, as views: changes there are changes here."""
        part = copy.copy(self)
        part.states = self.states[self.slots(rows)]
        part._first_slot = self._first_slot[: rows.stop - rows.start]
        part.movers = self.movers[rows] if self._by_seats else part.states
        return part

    def fetch_movers(self, turn: Tensor | None) -> None:
        """Copy the states of the players to move into `movers`, before they act; `turn` says whose turn it is."""
        if self._by_seats and self.is_used:
            torch.index_select(self.states, 0, self._slots(turn), out=self.movers)

    def keep_movers(self, turn: Tensor | None) -> None:
        """Copy `movers` back to their slots, after they acted; `turn` says whose turn it was."""
        if self._by_seats and self.is_used:
            self.states.index_copy_(0, self._slots(turn), self.movers)

    def of_movers(self, turn: Tensor | None) -> Tensor | None:
        """The states [rows, state_size] of the players to move; `turn` says whose turn it is. None without memory."""
        if not self.is_used:
            return None
        return self.states.index_select(0, self._slots(turn)) if self._by_seats else self.states

    def reset_ended(self, turn: Tensor | None, terminated: Any, truncated: Any) -> None:
        """Set the states of episodes that ended in this step, and of agents that were dead in it, to zero.

        `terminated` and `truncated` [rows] are NumPy arrays, or tensors on the device of the states.
        """
        if not self.is_used:
            return
        if self._by_agents and turn is not None:
            is_dead = ~turn.bool()
            terminated = terminated | (is_dead if isinstance(terminated, Tensor) else is_dead.numpy())
        if isinstance(terminated, Tensor):
            _reset_rows.on(len(terminated), terminated, truncated, self._num_seats, self.states)
        else:
            _reset_rows.alone(0, len(terminated), terminated, truncated, self._num_seats, self.states.numpy())

    def _slots(self, turn: Tensor | None) -> Tensor:
        assert turn is not None
        return self._first_slot + turn


@RowKernel
def _reset_rows(
    start: int, stop: int, terminated: np.ndarray, truncated: np.ndarray, num_seats: int, states: np.ndarray
) -> None:
    """Set the states [rows * seats, S] of rows that ended to zero; where few did, little is written."""
    for row in range(start, stop):
        if terminated[row] or truncated[row]:
            for slot in range(row * num_seats, (row + 1) * num_seats):
                for j in range(states.shape[1]):
                    states[slot, j] = 0


@RowKernel
def copy_rows(start: int, stop: int, is_copied: np.ndarray, states: np.ndarray, out: np.ndarray) -> None:
    """Copy the states [rows, S] of some rows, marked in `is_copied` [rows], to the same rows of `out`."""
    for row in range(start, stop):
        if is_copied[row]:
            for j in range(states.shape[1]):
                out[row, j] = states[row, j]


def begins(ended: Tensor, alive: Tensor | None) -> Tensor:
    """Which steps [T, R] are the first of an episode that begins within a rollout.

    ended [T, R]: whether the episode ended in this step; alive [T, R]: whether the agent played it. Each step of a dead
    agent counts as a beginning, so that no state is carried over it. The first row is never set: the rollout keeps
    the states before it.
    """
    over = ended if alive is None else ended | ~alive
    first = torch.zeros_like(over)
    first[1:] = over[:-1]
    return first
