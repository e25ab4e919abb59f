"""Pools of envs that others wrote: what all of them share.

A native world's kernels keep count of its episodes and its spaces lay out its arrays. For envs of others both are done
here: arrays by the adapted spaces (spaces.py), returns and lengths of episodes in NumPy, and a log of those that
ended with whatever numbers their `info` had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.adapters.info import InfoSelection
from scramjet.adapters.spaces import action_shape_and_dtype, adapted_action_space, adapted_observation_space
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Episodes, Pool, check_actions_fit, check_count
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError

EPISODES_KEPT = 100_000
"""Maximum number of ended episodes kept until someone asks for them; beyond it the oldest are dropped."""


@dataclass(slots=True)  # not frozen: that takes three times as long to make
class EndedTogether:
    """Episodes that ended in one step, E of them; where seats play, one entry for each seat in turn."""

    returns: np.ndarray  # [E] float
    lengths: np.ndarray  # [E] int
    rows: np.ndarray  # [E] int
    stats: Mapping[str, np.ndarray]  # name -> [E], of any type
    tick: int  # the pool's step in which they ended


class ForeignPool(Pool):
    """Envs of another library behind the interface of all pools; a subclass steps them.

    It implements `_reset(seed)` and `_step(actions, out)`; both write `obs` and `mask` (and `turn`) of the given
    Transition, the latter also rewards, flags and the last observations of episodes that ended.
    """

    info = InfoSelection()
    """Which numbers of an episode's last `info` are kept."""

    def __init__(
        self,
        name: str,
        observation_space: Any,
        action_space: Any,
        num_envs: int,
        *,
        mask_size: int = 0,
        played_by: PlayedBy = PlayedBy.ONE,
        num_players: int = 1,
    ) -> None:
        """The spaces are those of one env (of one player), as its authors have them."""
        check_count("num_envs", num_envs)
        self.name, self.num_envs = name, num_envs
        self.played_by, self.num_players = played_by, num_players
        self.rows_per_env = num_players if played_by is PlayedBy.AGENTS else 1
        self.num_rows = num_envs * self.rows_per_env
        self.their_observation_space, self.their_action_space = observation_space, action_space
        self.observation_space = adapted_observation_space(name, observation_space)
        self.action_space = adapted_action_space(name, action_space)
        self.mask_size = mask_size
        shape, self._action_dtype = action_shape_and_dtype(self.action_space)
        self._action_shape = (self.num_rows, *shape)
        self._players = num_players if played_by is PlayedBy.SEATS else 1  # episodes of one row
        self._returns = np.zeros((self.num_rows, self._players))
        self._lengths = np.zeros(self.num_rows, np.int64)
        self._log: deque[EndedTogether] = deque()
        self._num_ended = self._num_logged = 0
        self._tick = 0
        self._seeds = EpisodeSeed(0)  # of the last reset
        self._was_reset = False
        self._own = self.allocate()

    @property
    def steps_taken(self) -> int:
        return self._tick

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        seeds = EpisodeSeed.of(seed)
        out = self._fitting(out)
        self._forget_counts()
        self._reset(seeds, out)
        self._seeds, self._was_reset = seeds, True
        return out

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        out = self._fitting(out)
        self._check_actions(actions, self._action_shape)
        self._refuse_while_sent("step()")
        before, self._tick = self._tick, self._tick + 1
        try:
            self._step(actions, out)
        except ConfigError:  # refused: no env has stepped
            self._tick = before
            raise
        return out

    @abstractmethod
    def _reset(self, seeds: EpisodeSeed, out: Transition) -> None:
        """Begin anew; env i is seeded with `seeds.of_env(i)`."""

    @abstractmethod
    def _step(self, actions: np.ndarray, out: Transition) -> None:
        """Step every env; call `_count` and, for each episode that ended, `_log_episode`."""

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        raise ConfigError(f"{self.name} is no native world: simulate() works for native worlds only")

    def views(self) -> Any:
        raise ConfigError(f"{self.name} shows each state to one player only")

    def episodes(self) -> Episodes:
        log, num_ended = list(self._log), self._num_ended
        self._forget_log()
        found = dict.fromkeys(name for block in log for name in block.stats)
        if warning := self.info.missing(found, num_ended):
            self.say(f"{self.name} {warning}")
        rows = _joined([block.rows for block in log], np.int64)
        return Episodes(
            num_ended=num_ended,
            returns=_joined([block.returns for block in log], np.float64),
            lengths=_joined([block.lengths for block in log], np.int64),
            env_ids=rows // self.rows_per_env,
            players=np.arange(len(rows)) % self._players if self._players > 1 else rows % self.rows_per_env,
            stats={
                name: _joined([_stat_of(block, key) for block in log], np.float64)
                for name, key in self.info.selected(found).items()
            },
            ticks=_joined([np.full(len(block.rows), block.tick) for block in log], np.int64),
        )

    def _count(
        self, reward: np.ndarray, rows: slice | np.ndarray = slice(None), alive: np.ndarray | None = None
    ) -> None:
        """Add the rewards of these rows to their episodes and count the step; of agents, only those `alive`."""
        gained, steps = reward if reward.ndim == 2 else reward[:, None], 1 if alive is None else alive
        if alive is not None:
            gained = gained * alive[:, None]
        if isinstance(rows, slice):  # in place: `self._returns[rows] += ...` would copy the view back onto itself
            returns, lengths = self._returns[rows], self._lengths[rows]
            returns += gained
            lengths += steps
        else:
            self._returns[rows] += gained
            self._lengths[rows] += steps

    def _log_episode(
        self,
        row: int,
        stats: Mapping[str, float] | Sequence[Mapping[str, float]],
        score: float | None = None,
        length: int | None = None,
    ) -> None:
        """An episode ended, the next one begins; `score` and `length` where the env itself knows them better.

        `stats` are its own, or where seats play, of each one if need be.
        """
        by_player = [stats] * self._players if isinstance(stats, Mapping) else list(stats)
        names = dict.fromkeys(name for one in by_player for name in one)
        self._add_to_log(
            EndedTogether(
                returns=self._returns[row].copy() if score is None else np.full(self._players, score),
                lengths=np.full(self._players, self._lengths[row] if length is None else length),
                rows=np.full(self._players, row),
                stats={name: np.array([one.get(name, np.nan) for one in by_player]) for name in names},
                tick=self._tick,
            )
        )
        self._returns[row] = 0.0
        self._lengths[row] = 0

    def _log_episodes(self, rows: np.ndarray, stats: Mapping[str, np.ndarray]) -> None:
        """Log the episodes of these rows as ended, and begin to count the next; for worlds with one player."""
        assert self._players == 1
        returns, lengths = self._returns[:, 0].take(rows), self._lengths.take(rows)
        self._add_to_log(EndedTogether(returns, lengths, rows, stats, self._tick))
        self._returns[rows] = 0.0
        self._lengths[rows] = 0

    def _add_to_log(self, block: EndedTogether) -> None:
        self._log.append(block)
        self._num_ended += len(block.rows)
        self._num_logged += len(block.rows)
        while self._num_logged > EPISODES_KEPT and len(self._log) > 1:
            self._num_logged -= len(self._log.popleft().rows)

    def _forget_log(self) -> None:
        self._log.clear()
        self._num_ended = self._num_logged = 0

    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the episodes under way, [N * num_players] each."""
        return self._returns.ravel().copy(), np.repeat(self._lengths, self._players)

    def _forget_counts(self) -> None:
        self._actions_sent = None
        self._returns[:], self._lengths[:], self._tick = 0.0, 0, 0
        self._forget_log()

    def _counts(self) -> dict[str, np.ndarray]:
        """Returns and lengths of the episodes under way, and the step, for a snapshot."""
        return {"tick": np.array([self._tick]), "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def _restore_counts(self, snapshot: Mapping[str, np.ndarray]) -> None:
        if missing := {"tick", "returns", "lengths"} - set(snapshot):
            raise ConfigError(f"no snapshot of a pool: it has no {' and no '.join(sorted(missing))}")
        if snapshot["returns"].shape != self._returns.shape:
            raise ConfigError(
                f"a snapshot of {len(snapshot['returns'])} rows does not fit a pool of {self.num_rows}; use the same "
                f"env and num_envs"
            )
        self._forget_counts()
        self._tick = int(snapshot["tick"][0])
        self._returns[:], self._lengths[:] = snapshot["returns"], snapshot["lengths"]

    def snapshot(self) -> dict[str, np.ndarray]:
        """What `restore` needs to begin other episodes; the state of the envs is not saved."""
        return {**self._counts(), "seed": np.array([self._seeds.key])}

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        """Begin fresh episodes, other ones than those that the run began with: the state of the envs was not saved."""
        out = self._fitting(out)
        self._restore_counts(snapshot)
        self._seeds = seeds_in(snapshot).part(self._seeds.first_env)
        self._reset(self._seeds_of_fresh_episodes(), out)
        self._was_reset = True
        return out

    def _seeds_of_fresh_episodes(self) -> EpisodeSeed:
        """Seeds of episodes not played before, for envs whose state cannot be restored; sets `resume_note`."""
        self.resume_note = f"{self.name} cannot save its state: resumed with fresh episodes"
        self._returns[:], self._lengths[:] = 0.0, 0
        return self._seeds.after("resumed at", self._tick)

    def _check_actions(self, actions: np.ndarray, shape: tuple[int, ...]) -> None:
        if not self._was_reset:
            raise RuntimeError("reset the pool before the first step: pool.reset(seed)")
        check_actions_fit(actions, shape, self._action_dtype)


def seeds_in(snapshot: dict[str, np.ndarray]) -> EpisodeSeed:
    """The seeds that a pool was reset with before its snapshot."""
    return EpisodeSeed(int(snapshot["seed"][0]) if "seed" in snapshot else 0)


def _joined(parts: list[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)


def _stat_of(block: EndedTogether, name: str) -> np.ndarray:
    return block.stats[name] if name in block.stats else np.full(len(block.rows), np.nan)
