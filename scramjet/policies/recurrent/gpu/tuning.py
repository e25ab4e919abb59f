"""Sizes of blocks, warps and stages of the memory kernels on the GPU: all that is to be tuned, in one place."""

from __future__ import annotations

from typing import NamedTuple

MAX_UNITS = 256
"""Most units of an LSTM or GRU: a program holds those of its rows, and four gates of each, in registers."""


class Launch(NamedTuple):
    """How a kernel of LSTM or GRU is launched."""

    warps: int
    stages: int
    """Of the pipeline that loads gates and weights ahead of their use."""
    chunk: int = 0
    """Rows (forward) or columns (backward) of the recurrent weights that are read at a time, at every step. 0: weights
    are read once. 16-bit weights of four gates take 128 KB with 128 units, of the 227 KB that a program may have."""


FORWARD = {
    "rounded": {64: Launch(4, 2), 128: Launch(8, 2), MAX_UNITS: Launch(8, 2, 32)},
    "float32": {64: Launch(4, 2, 16), MAX_UNITS: Launch(8, 2, 16)},
}
BACKWARD = {
    "rounded": {64: Launch(4, 2), 128: Launch(8, 2), MAX_UNITS: Launch(8, 2, 64)},
    "float32": {64: Launch(4, 2, 32), MAX_UNITS: Launch(8, 2, 32)},
}
"""By precision (rounded: tf32 and bfloat16) and the most units."""

ROWS = (64, 32, 16)
"""Rows that a program of LSTM or GRU may take; products have no fewer than 16."""
TILE = 4096
"""Most rows times units of a program; more would not fit into registers."""
PROGRAMS = 128
"""Programs that there must be for each of them to take more than the fewest rows: one for each multiprocessor."""


def rows_per_program(num_rows: int, size: int) -> int:
    """Rows of a block of an LSTM or GRU: as many as fit, if the GPU is busy even so. They change no row's result."""
    return next((rows for rows in ROWS if rows * size <= TILE and rows * PROGRAMS <= num_rows), ROWS[-1])


class ScanLaunch(NamedTuple):
    """How the kernels of MinGRU are launched."""

    steps: int
    """Most steps of a tile."""
    columns: int
    """Most units of a tile."""
    warps: int


SCAN = ScanLaunch(steps=64, columns=32, warps=4)
