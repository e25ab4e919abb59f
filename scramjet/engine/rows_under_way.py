"""Which rows of a pool were sent and not received yet: the bookkeeping behind `Pool.send` and `Pool.recv`."""

from __future__ import annotations

import numpy as np

from scramjet.errors import ConfigError

Rows = slice | np.ndarray
"""Neighbouring rows of a pool as a slice, or any rows by their numbers."""


def neighbours(rows: Rows | None, num_rows: int, rows_per_env: int = 1) -> slice:
    """`rows` (None: all of them) as a slice with a start and a stop; refuses gaps and parts of an env."""
    if not isinstance(rows, slice | None):
        raise ConfigError(f"rows={rows!r} must be a slice of neighbours: this pool takes no list of rows")
    start, stop, stride = slice(0, num_rows).indices(num_rows) if rows is None else rows.indices(num_rows)
    if stride != 1 or start >= stop or start % rows_per_env or stop % rows_per_env:
        raise ConfigError(f"rows={rows} must be neighbours, at least one, and whole envs of {rows_per_env} rows")
    return slice(start, stop)


def row_numbers(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """The numbers of rows as they were given; refuses none, doubled ones and those that a pool does not have."""
    is_list = rows.ndim == 1 and rows.dtype.kind in "iu" and len(rows) > 0
    if not is_list or rows.min() < 0 or rows.max() >= num_rows or len(np.unique(rows)) < len(rows):
        raise ConfigError(
            f"rows={rows.tolist()!r:.60} must be different whole numbers, at least one, from 0 to {num_rows - 1}"
        )
    return rows.astype(np.int64)


class RowsUnderWay:
    """The rows that `send` gave actions to and `recv` has not handed over yet."""

    def __init__(self, num_rows: int) -> None:
        self._is_sent = np.zeros(num_rows, np.bool_)
        self.sends: list[Rows] = []
        """The rows of each `send` of which some are still under way, oldest first."""

    def __bool__(self) -> bool:
        return bool(self.sends)

    def add(self, rows: Rows) -> None:
        """Note rows that were sent; refuses those that are under way already."""
        if True in self._is_sent[rows].tobytes():  # of few rows, any() takes longer
            raise ConfigError(f"{_spelled(rows)} step already: call recv() first")
        self._is_sent[rows] = True
        self.sends.append(rows)

    def take(self, rows: Rows | None = None, *, partly: bool = False) -> Rows:
        """Note that rows are received (None: those of the oldest send) and return them.

        Refuses rows that were not sent together; `partly`: any rows that were sent will do.
        """
        if rows is None:
            if not self.sends:
                raise ConfigError("recv() without send(): no row has an action; call send() first")
            rows = self.sends[0]
        is_sent = bool(self._is_sent[rows].all()) if partly else any(_is_same(rows, send) for send in self.sends)
        if not is_sent:
            raise ConfigError(f"{_spelled(rows)} were not sent together: recv() takes the rows of a send()")
        self._is_sent[rows] = False
        self.sends = [send for send in self.sends if True in self._is_sent[send].tobytes()]
        return rows

    def clear(self) -> None:
        """Forget all of them."""
        self._is_sent[:] = False
        self.sends.clear()

    def refuse(self, what: str) -> None:
        """Refuse a call that needs every env at rest."""
        if self.sends:
            raise ConfigError(f"{what} while envs step: call recv() first")


def _is_same(one: Rows, other: Rows) -> bool:
    if isinstance(one, slice) or isinstance(other, slice):
        return isinstance(one, slice) and isinstance(other, slice) and one == other
    return np.array_equal(np.sort(one), np.sort(other))


def _spelled(rows: Rows) -> str:
    if isinstance(rows, slice):
        return f"rows {rows.start} to {rows.stop}"
    return f"rows {', '.join(map(str, rows[:8].tolist()))}{', ...' * (len(rows) > 8)}"
