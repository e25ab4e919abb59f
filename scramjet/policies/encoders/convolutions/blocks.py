"""How the kernels of convolutions divide their work: all that can be tuned, and what follows from it for a layer."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeVar

import torch

from scramjet.compile.block_sizes import product_size

Blocks = TypeVar("Blocks")


class ProductBlocks(NamedTuple):
    """What one program that convolves, forward or back, does at a time."""

    rows: int  # cells of the result; half as many in float32, whose products are no work for tensor cores
    entries: int  # most of the summed axis (tap, channel)
    warps: int
    stages: int  # blocks whose loads are under way at once, where the summed axis is gone through in a loop


class GradientBlocks(NamedTuple):
    """What one program of the weights' gradient does at a time."""

    rows: int  # cells
    entries: int  # most of the source's side in one product; 64 would go to tensor cores by writes that conflict
    warps: int
    sums: int  # most of the gradient's numbers that a thread adds up
    programs: int  # of a multiprocessor


CONVOLUTION = {
    16: ProductBlocks(rows=128, entries=32, warps=4, stages=3),
    64: ProductBlocks(rows=128, entries=32, warps=4, stages=4),
    128: ProductBlocks(rows=128, entries=32, warps=8, stages=4),
}
"""By the least number of channels that a program makes."""
SMALL_GRID = 264
"""Where there would be fewer programs than this, each takes half as many cells; so it does for images, which are few:
one kernel less to compile."""
LARGE_GRID = 8 * 264
"""From so many programs on, loops over padded boards load through the cache, where taps find what others loaded; with
stages, loads go around it."""
MOST_ROWS_BACK = 64
"""Most cells of a program that convolves back, to the gradient of the source."""
MOST_OUTPUTS = 128
"""Most channels of the result that one program makes; with more, several programs read the same cells."""
MOST_UNROLLED = 9 * 32
"""Longest summed axis of a padded convolution whose steps are all known when it is compiled; else it takes a loop."""
GRADIENT = {
    16: GradientBlocks(rows=16, entries=16, warps=1, sums=144, programs=10),
    32: GradientBlocks(rows=32, entries=32, warps=2, sums=144, programs=4),
    64: GradientBlocks(rows=16, entries=32, warps=4, sums=64, programs=3),
}
"""By the least number of channels of the result."""
INTERPRETED_PROGRAMS = 3
"""Programs of the weights' gradient in Triton's interpreter, in all."""
REDUCE_ROWS, REDUCE_COLUMNS = 128, 16
"""Rows of partial sums that a program of the reduction adds at a time, and columns that it adds them for."""


class Product(NamedTuple):
    """The blocks of a convolution of a certain size."""

    rows: int
    outputs: int
    entries: int
    unrolls: bool
    warps: int
    stages: int


def product_blocks(
    num_rows: int, outputs: int, taps: int, depth: int, precision: str, *, is_padded: bool, is_back: bool
) -> Product:
    """Blocks of a product of `num_rows` rows with `outputs` columns that sums up `taps` of `depth` numbers."""
    columns = _columns(outputs, MOST_OUTPUTS)
    blocks = _from(CONVOLUTION, columns)
    most = MOST_ROWS_BACK if is_back and is_padded else blocks.rows
    rows = most // 2 if precision == "float32" else most
    rows = rows if is_padded and num_rows >= rows * SMALL_GRID else rows // 2
    unrolls = is_padded and taps * depth <= MOST_UNROLLED
    stages = 1 if is_padded and num_rows >= rows * LARGE_GRID else blocks.stages
    return Product(rows, columns, _entries(taps, depth, blocks.entries), unrolls, blocks.warps, stages)


class Gradient(NamedTuple):
    """The blocks of a gradient of weights of a certain size."""

    rows: int
    outputs: int
    entries: int
    number: int  # of blocks of entries that a program adds up
    groups: tuple[int, int]  # of such blocks, and of outputs
    chunk: int  # rows that a program goes through
    warps: int


def gradient_blocks(num_rows: int, outputs: int, taps: int, depth: int, shifts: int, device: torch.device) -> Gradient:
    """Blocks of the gradient of weights whose source is moved to `taps` of `depth` numbers, and result to `shifts`."""
    columns = _columns(outputs, max(GRADIENT))
    blocks = _from(GRADIENT, columns)
    entries = _entries(taps, depth, blocks.entries)
    number = -(-taps * depth // entries)
    most = max(1, blocks.sums * 32 * blocks.warps // (entries * columns * shifts))
    count = -(-number // -(-number // most))
    groups = -(-number // count), -(-outputs // columns)
    programs = max(1, _num_programs(device, blocks.programs) // (groups[0] * groups[1]))
    chunk = max(1, -(-num_rows // (programs * blocks.rows))) * blocks.rows
    return Gradient(blocks.rows, columns, entries, count, groups, chunk, blocks.warps)


def _columns(channels: int, most: int) -> int:
    """Columns of a product that makes so many channels; no product is narrower than 16."""
    return min(most, product_size(channels))


def _entries(taps: int, depth: int, most: int) -> int:
    """Entries of a block: such that it lies within a tap if that can be."""
    for entries in (most, most // 2, most // 4):
        if entries >= 16 and depth % entries == 0:
            return entries
    return min(most, 32, product_size(taps * depth))


def _from(table: dict[int, Blocks], channels: int) -> Blocks:
    return table[max(least for least in table if least <= channels)]


@cache
def _num_programs(device: torch.device, per_multiprocessor: int) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return per_multiprocessor * torch.cuda.get_device_properties(device).multi_processor_count
