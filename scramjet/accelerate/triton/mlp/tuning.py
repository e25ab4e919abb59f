"""Numbers that decide the speed of `TritonMLP` on a GPU, and not what it computes but for the order of sums.

They were chosen for an H200: 256 KB of registers and 227 KB of shared memory for each of 132 multiprocessors. Widths
and inputs are those of blocks on chip, padded to powers of two.
"""

from __future__ import annotations

from typing import NamedTuple

WIDTHS = (16, 32, 64, 128)
"""Units of a hidden layer, padded. The gradients of 256 x 256 weights alone would fill all registers."""
INPUTS = (16, 32, 64, 128)
"""Inputs, padded."""
OUTPUTS = (16, 32)
"""Columns of the last layer, padded. Matrix products cannot be narrower than 16."""


class Tuning(NamedTuple):
    """How the kernel that computes gradients is launched."""

    block: int  # samples that a program takes at a time
    warps: int
    stages: int  # of the pipeline that loads blocks while others are computed; with 1 each load is waited for
    programs: int  # most programs for each multiprocessor: as many as fit on it at a time, of all networks together


GRADIENTS: dict[str, dict[tuple[int, int], Tuning]] = {
    "float32": {
        (64, 128): Tuning(32, 8, 1, 4),
        (128, 128): Tuning(16, 8, 1, 2),
    },
    "tf32": {
        (64, 32): Tuning(64, 4, 2, 2), (64, 64): Tuning(128, 8, 1, 1), (64, 128): Tuning(64, 8, 1, 1),
        (128, 32): Tuning(32, 8, 2, 1), (128, 128): Tuning(32, 8, 1, 1),
    },
    "bfloat16": {
        (64, 32): Tuning(64, 4, 2, 2), (64, 64): Tuning(64, 4, 2, 2), (64, 128): Tuning(64, 8, 1, 1),
        (128, 32): Tuning(32, 8, 2, 1), (128, 128): Tuning(32, 8, 1, 1),
    },
}  # fmt: skip
"""By precision, then by most units and most inputs: the first entry that is large enough counts."""
PROVEN = {"float32": (16, 0), "tf32": (32, 16), "bfloat16": (64, 64)}
"""By precision: the most inputs of 64 and of 128 units whose compiled kernels need no more shared memory than an H200
has. For more, a launch is tried before training begins, with smaller blocks if need be."""
SMALLEST_BLOCK = 16
FORWARD_BLOCKS = {"float32": (16,), "tf32": (64, 32, 16), "bfloat16": (64, 32, 16)}
"""By precision: samples of a program that only runs the forward pass. The first that leaves no multiprocessor without a
program counts, else the last."""
FORWARD_WARPS = {16: 4, 32: 4, 64: 4, 128: 8}
"""By most units: warps of a program that only runs the forward pass."""
FAST_TANH = True
"""Whether tanh is one instruction, exact to 11 bits, where products are rounded to 10 bits or fewer as well."""
REDUCE_ROWS, REDUCE_COLUMNS, REDUCE_WARPS = 64, 32, 4
"""Rows of partial gradients that a program of the reduction adds at a time, and columns that it adds them for."""
STEP_COLUMNS, STEP_SQUARES, STEP_WARPS = 256, 512, 4
"""Parameters that a program of the optimizer moves, and squares that it adds at a time."""
STATISTICS_BLOCK, STATISTICS_CHUNKS = 1024, 64
"""Advantages that a program reads at a time, and the most chunks that a minibatch is split into."""


def gradients_tuning(precision: str, width: int, inputs: int) -> Tuning:
    """How to launch the gradients of networks with at most `width` units in a layer and `inputs` inputs, padded."""
    return next(
        tuning
        for (most, most_inputs), tuning in GRADIENTS[precision].items()
        if width <= most and inputs <= most_inputs
    )


def is_proven(precision: str, width: int, inputs: int, outputs: int) -> bool:
    """Whether these sizes are known to fit on the chip."""
    is_wide = width > 64
    return inputs <= PROVEN[precision][is_wide] and not (is_wide and outputs > OUTPUTS[0])


def forward_block(precision: str, num_rows: int, multiprocessors: int) -> int:
    """Samples of a program that runs the forward pass on `num_rows` rows."""
    sizes = FORWARD_BLOCKS[precision]
    return next((size for size in sizes if num_rows >= size * multiprocessors), sizes[-1])
