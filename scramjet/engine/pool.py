"""The one interface over many envs, whatever runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.engine.layout import PlayedBy, Transition


@dataclass(frozen=True, slots=True)
class Episodes:
    """Finished episodes, in the order they ended (by step, then by env); of very many, the newest."""

    num_ended: int  # all of them; E of them are kept
    returns: np.ndarray  # [E] float64
    lengths: np.ndarray  # [E] int64
    env_ids: np.ndarray  # [E] int64
    players: np.ndarray  # [E] int64: which agent or seat; 0 where a world is played alone
    stats: dict[str, np.ndarray]  # name -> [E] float64

    def __len__(self) -> int:
        return len(self.returns)


@dataclass(frozen=True, slots=True)
class Batch:
    """What `recv` hands over: the rows that are ready, and where they stand in the pool."""

    rows: slice
    transition: Transition


class Pool(ABC):
    """N envs behind one interface.

    Auto-reset is in the same step: a step with `terminated` or `truncated` carries that episode's last reward, and
    the observation and mask that come with it belong to the next episode already. The true last observation of an
    episode that ended is in `final_obs`.
    """

    name: str
    """What messages call the world."""
    num_envs: int
    num_rows: int
    """Rows of observations and actions: one an env, or one for each of its agents."""
    played_by: PlayedBy
    num_players: int
    """Agents or seats of one env."""
    observation_space: Any
    action_space: Any
    mask_size: int
    """Entries of the action mask; 0 where there is none."""

    @property
    @abstractmethod
    def steps_taken(self) -> int:
        """Steps of each env since the last reset."""

    @abstractmethod
    def allocate(self) -> Transition:
        """Fresh arrays for one step of this pool."""

    @abstractmethod
    def reset(self, seed: int, out: Transition | None = None) -> Transition:
        """Begin anew: env i plays the episodes keyed by seed + i. Writes `obs` and `mask` of `out`."""

    @abstractmethod
    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        """Step every env and write the results into `out` (by default into the pool's own arrays)."""

    @abstractmethod
    def send(self, actions: np.ndarray, rows: slice | None = None) -> None:
        """Give actions to some rows (by default to all), whole envs of them, without waiting for the results."""

    @abstractmethod
    def recv(self) -> Batch:
        """The results of the rows that are ready first."""

    @abstractmethod
    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here exactly, as plain arrays."""

    @abstractmethod
    def restore(self, snapshot: dict[str, np.ndarray], out: Transition | None = None) -> Transition:
        """Go back to a snapshot. Writes `obs` and `mask` of `out`."""

    @abstractmethod
    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        """The states and results after one step from `states`; the pool itself does not move."""

    @abstractmethod
    def views(self) -> Any:
        """What each player sees now, whoever is to move: observations [num_envs * num_players, ...]."""

    @abstractmethod
    def episodes(self) -> Episodes:
        """The episodes finished since the last call."""
