"""Which worker does which part of the steps under way.

Row r belongs to worker r modulo the number of workers, so whichever part of the rows steps, all workers have a share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scramjet.adapters.gymnasium.env_results import Ended
from scramjet.engine.pool import Rows, neighbours, row_numbers
from scramjet.errors import ConfigError


@dataclass(slots=True, eq=False)
class Share:
    """The part of a step that one worker does."""

    worker: int
    rows: range
    send: Rows  # all rows of the step
    ended: list[Ended] | None = None  # its episodes that ended; None until the worker has stepped

    @property
    def envs(self) -> tuple[int, int]:
        """Of the worker's own envs the first one of these, and the one after the last."""
        first = self.rows[0] // self.rows.step
        return first, first + len(self.rows)


class Shares:
    """The shares of all steps that were begun and not collected yet, in the order they were begun."""

    def __init__(self, num_rows: int, num_workers: int) -> None:
        self._num_rows, self._num_workers = num_rows, num_workers
        self.under_way: list[Share] = []

    def sendable(self, rows: Rows | None) -> Rows:
        """`rows` as they are kept: neighbours, or any rows that are neighbours in each worker, such as all of some."""
        if not isinstance(rows, np.ndarray):
            return neighbours(rows, self._num_rows)
        given = row_numbers(rows, self._num_rows)
        for i in np.unique(given % self._num_workers).tolist():
            places = np.sort(given[given % self._num_workers == i])
            if (np.diff(places) != self._num_workers).any():
                raise ConfigError(
                    f"rows={given.tolist()[:8]} are not neighbours among the rows of their workers: row r is worker r "
                    f"% {self._num_workers}'s"
                )
        return given

    def receivable(self, rows: Rows) -> Rows:
        """`rows` as they are kept; refuses parts of a share."""
        rows = self.sendable(rows)
        if not self._of_send(rows):
            given = np.arange(self._num_rows)[rows].tolist()
            its = set(given)
            if sum(len(share.rows) for share in self.under_way if its.issuperset(share.rows)) != len(given):
                raise ConfigError(f"rows={given[:8]} were not sent together: recv() takes the rows of a send()")
        return rows

    def divide(self, rows: Rows) -> list[Share]:
        """Begin a step of these rows: the share of each worker that has some of them."""
        stride, shares = self._num_workers, []
        for i in range(stride):
            if isinstance(rows, slice):
                first, stop = rows.start + (i - rows.start) % stride, rows.stop
            else:
                its = rows[rows % stride == i]
                first, stop = (int(its.min()), int(its.max()) + 1) if len(its) else (0, 0)
            if first < stop:
                shares.append(Share(i, range(first, stop, stride), rows))
        self.under_way += shares
        return shares

    def of_rows(self, rows: Rows) -> list[Share]:
        """The shares that make up these rows."""
        if shares := self._of_send(rows):
            return shares
        wanted = np.zeros(self._num_rows, np.bool_)
        wanted[rows] = True
        return [share for share in self.under_way if wanted[share.rows[0]]]

    def _of_send(self, rows: Rows) -> list[Share]:
        """The shares of the step that was sent as this very slice; none where there is no such."""
        if not isinstance(rows, slice):
            return []
        return [share for share in self.under_way if isinstance(share.send, slice) and share.send == rows]

    def oldest_of(self, worker: int) -> Share:
        """The share that this worker answers for next."""
        return next(share for share in self.under_way if share.worker == worker and share.ended is None)

    def remove(self, shares: list[Share]) -> None:
        """Forget shares that were collected."""
        self.under_way = [share for share in self.under_way if share not in shares]

    def has_stepped(self, send: Rows) -> bool:
        """Whether all workers have stepped the rows of this `send`."""
        return all(share.ended is not None for share in self.under_way if share.send is send)
