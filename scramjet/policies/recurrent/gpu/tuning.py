"""Sizes of blocks, warps and stages of the memory kernels on the GPU: all that is to be tuned, in one place."""

from __future__ import annotations

from typing import NamedTuple

import torch

from scramjet.compile.block_sizes import power_of_two

MAX_UNITS = 256
"""Most units of an LSTM or GRU: a program holds those of its rows, and four gates of each, in registers."""
PROGRAMS = 128
"""Programs that there must be for each of them to take more than the fewest rows: about one for a multiprocessor."""
FEWEST_ROWS = 16
"""Rows of a program of LSTM or GRU where there are few: matrix products have no fewer."""


class Launch(NamedTuple):
    """How a kernel of LSTM or GRU is launched."""

    rows: int
    """Most rows of a program; more would not fit into registers or shared memory."""
    warps: int
    stages: int
    """Of the pipeline that loads gates, or weights that are not resident, ahead of their use; the last one computes."""
    kilobytes: int
    """Of shared memory that the compiled kernel of the LSTM takes; the GRU's takes no more."""
    chunk: int = 0
    """Rows (forward) or columns (backward) of the recurrent weights that are read at a time, at every step. 0: weights
    are resident, in shared memory from the first step to the last."""


ACT = {
    "rounded": {64: Launch(32, 4, 2, 68), 128: Launch(32, 8, 2, 200), MAX_UNITS: Launch(16, 8, 3, 132, chunk=32)},
    "float32": {64: Launch(16, 4, 3, 36, chunk=16), MAX_UNITS: Launch(16, 8, 3, 130, chunk=16)},
}
"""The forward pass without gradients, by precision (rounded: tf32 and bfloat16) and the most units."""
FORWARD = {
    "rounded": {64: Launch(16, 4, 3, 68), 128: Launch(16, 8, 3, 200), MAX_UNITS: Launch(16, 8, 3, 132, chunk=32)},
    "float32": {64: Launch(16, 4, 3, 36, chunk=16), MAX_UNITS: Launch(16, 8, 3, 130, chunk=16)},
}
"""The forward pass that keeps what the backward pass needs."""
BACKWARD = {
    "rounded": {64: Launch(16, 4, 3, 76), 128: Launch(16, 8, 3, 216), MAX_UNITS: Launch(16, 8, 3, 74, chunk=64)},
    "float32": {64: Launch(16, 4, 3, 20, chunk=32), MAX_UNITS: Launch(16, 8, 3, 68, chunk=32)},
}


def choose(
    table: dict[str, dict[int, Launch]], precision: str, num_rows: int, size: int, device: torch.device
) -> Launch:
    """The launch for these sizes, with `rows` as many as keep the GPU busy. The rows of a program change no result.

    Where a GPU has less shared memory than that takes, weights are not resident, and less is loaded ahead.
    """
    launches = table["float32" if precision == "float32" else "rounded"]
    launch, most = next(launch for units, launch in launches.items() if size <= units), _shared_kilobytes(device)
    if launch.kilobytes > most:
        launch = launches[MAX_UNITS]
    if launch.kilobytes > most:
        launch = launch._replace(stages=2)
    rows = launch.rows
    while rows > FEWEST_ROWS and rows * PROGRAMS > num_rows:
        rows //= 2
    return launch._replace(rows=rows)


def _shared_kilobytes(device: torch.device) -> int:
    """Shared memory that a program may have; no limit in Triton's interpreter."""
    if device.type != "cuda":
        return 1 << 30
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)) // 1024


class ScanLaunch(NamedTuple):
    """How the kernels of MinGRU are launched."""

    steps: int
    """Most steps of a tile."""
    numbers: int
    """Most steps times units of a tile."""
    warps: int


SCAN = ScanLaunch(steps=64, numbers=2048, warps=4)


def scan_tile(steps: int, size: int) -> tuple[int, int]:
    """Steps and units of a tile of MinGRU's kernels, powers of two."""
    block = min(SCAN.steps, max(2, power_of_two(steps)))
    return block, min(SCAN.numbers // block, power_of_two(size))
