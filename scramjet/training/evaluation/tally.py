"""Counts the episodes of an evaluation as they end, no more of each env than its quota."""

from __future__ import annotations

import numpy as np

from scramjet.engine.pool import Episodes
from scramjet.training.evaluation.results import Evaluation


class Tally:
    """Counts ended episodes, of each player no more than its env's quota of games."""

    def __init__(self, quota: np.ndarray, num_players: int) -> None:
        self._quota = quota[:, None]  # [N, 1]
        self._ended = np.zeros((len(quota), num_players), np.int64)  # each player's episodes, also beyond the quota
        self._waits = np.zeros(len(quota), np.bool_)  # envs that were cut in this round
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._stats: dict[str, list[float]] = {}
        self._num_cut = 0

    def begin_round(self) -> None:
        """Start counting again after a reset of all envs: none of them waits any more."""
        self._waits[:] = False

    @property
    def _is_through(self) -> np.ndarray:
        """Which envs have played their games [N].

        An env has if all its players have ended their quota, or if one of them has ended more: then the last game is
        over, and a player that is short of episodes took no part in it.
        """
        played = (self._ended >= self._quota).all(1) | (self._ended > self._quota).any(1)
        return np.asarray(played)

    @property
    def is_round_over(self) -> bool:
        """Whether every env has played its games or waits for the next reset."""
        return bool((self._is_through | self._waits).all())

    @property
    def is_complete(self) -> bool:
        """Whether all games are played."""
        return bool(self._is_through.all())

    @property
    def are_all_cut(self) -> bool:
        """Whether every episode so far was cut, and none ended by itself."""
        return self._num_cut == self.num_games

    @property
    def num_games(self) -> int:
        """Games that are over for at least one of their players."""
        return int(np.minimum(self._ended.max(1), self._quota[:, 0]).sum())

    def add(self, finished: Episodes) -> None:
        """Count episodes that ended; those of envs that were cut in this round belong to no game and are left out."""
        for i, (env, player) in enumerate(zip(finished.env_ids, finished.players, strict=True)):
            if self._waits[env]:
                continue
            if self._count(env, player, finished.returns[i], finished.lengths[i]):
                for name, values in finished.stats.items():
                    if not np.isnan(values[i]):  # not every episode of another library's env has it
                        self._stats.setdefault(name, []).append(float(values[i]))

    def _count(self, env: int, player: int, score: float, length: int) -> bool:
        """Count an episode if it is within its player's quota; returns whether it is."""
        self._ended[env, player] += 1
        if self._ended[env, player] > self._quota[env, 0]:
            return False
        self._returns.append(float(score))
        self._lengths.append(int(length))
        return True

    def cut(self, returns: np.ndarray, lengths: np.ndarray, max_steps: int) -> int:
        """Cut the envs in which an episode has lasted `max_steps`: their unfinished episodes count as they are now.

        `returns` and `lengths` [N, players] are those of unfinished episodes, NaN for a player whose episode is over.
        Returns the fewest steps until an episode of another env can reach `max_steps`.
        """
        under_way = ~np.isnan(returns) & (lengths > 0)
        longest = np.where(under_way, lengths, 0).max(1)  # [N]
        goes_on = ~(self._waits | self._is_through)
        too_long = goes_on & (longest >= max_steps)
        for env in np.flatnonzero(too_long).tolist():
            counted = [
                self._count(env, player, returns[env, player], lengths[env, player])
                for player in np.flatnonzero(under_way[env]).tolist()
            ]
            self._num_cut += any(counted)
        self._waits |= too_long
        rest = longest[goes_on & ~too_long]
        return max_steps - int(rest.max()) if len(rest) else max_steps

    def averaged(self) -> Evaluation:
        """The averages over all episodes counted."""
        return Evaluation(
            mean_return=float(np.mean(self._returns)),
            std_return=float(np.std(self._returns)),
            mean_length=float(np.mean(self._lengths)),
            episodes=self.num_games,
            stats={name: float(np.mean(values)) for name, values in self._stats.items()},
            cut_episodes=self._num_cut,
        )
