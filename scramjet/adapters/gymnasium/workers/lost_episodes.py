"""Episodes that end with the worker process that played them: kept so that they can be handed over as truncated."""

from __future__ import annotations

import numpy as np

from scramjet.adapters.gymnasium.env_results import RowArrays
from scramjet.engine.pool import Rows


class LostEpisodes:
    """Of each row what was seen last, and whether its episode is lost and not handed over yet."""

    def __init__(self, rows: RowArrays, *, is_used: bool) -> None:
        """`rows`: where envs write their results. `is_used`: workers are restarted, else nothing need be kept."""
        self._rows, self._is_used = rows, is_used
        self._last_seen = tuple(np.zeros_like(leaf) for leaf in rows.obs)
        self._finished_steps = np.zeros(len(rows.reward), np.int64)
        self._is_lost = np.zeros(len(rows.reward), np.bool_)

    def remember(self, rows: Rows) -> None:
        """Keep what these rows show after a step or a reset: all that is left of an episode whose worker dies."""
        if self._is_used:
            self._finished_steps[rows] += 1
            for last, now in zip(self._last_seen, self._rows.obs, strict=True):
                last[rows] = now[rows]

    def finished_steps(self, rows: range) -> int:
        """The most steps, and resets, that an env of these rows has finished since the start."""
        return max(int(self._finished_steps[row]) for row in rows)

    def add(self, rows: range) -> None:
        """The worker of these rows was restarted: their episodes are lost."""
        self._is_lost[rows.start :: rows.step] = True

    def truncate(self, rows: Rows) -> None:
        """Of these rows, write those that are lost as truncated, with what was seen last."""
        if True not in self._is_lost.tobytes():  # of few envs, any() takes longer
            return
        lost = np.arange(len(self._is_lost))[rows]
        lost = lost[self._is_lost[lost]]
        self._rows.reward[lost], self._rows.terminated[lost], self._rows.truncated[lost] = 0.0, False, True
        for final, last in zip(self._rows.final_obs, self._last_seen, strict=True):
            final[lost] = last[lost]
        self._is_lost[lost] = False

    def forget(self) -> None:
        """All envs were reset: no episode is lost any more."""
        self._is_lost[:] = False
