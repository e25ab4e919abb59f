"""Gathers the samples of a minibatch: one kernel for all fields of one number a sample, and one for rows.

Torch launches one small gather for each field, and at usual sizes a launch takes longer than its work. For rows it
takes a block of threads each, however few numbers they have.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scramjet.kernels.gpu.language import HAS_TRITON, blocks_of, triton_jit

if HAS_TRITON:
    import triton.language as tl

BLOCK = 256
"""Samples that a program gathers."""
WORDS = 1024
"""Words of rows that a program gathers."""


def select_rows(source: Tensor, places: Tensor) -> Tensor:
    """`source.index_select(0, places)`."""
    out = source.new_empty(len(places), *source.shape[1:])
    if not out.numel():
        return out
    words, to_words = (rows.view(len(rows), -1).view(torch.uint8) for rows in (source.contiguous(), out))
    if words.shape[1] % 4 == 0 and words.storage_offset() % 4 == 0:
        words, to_words = words.view(torch.int32), to_words.view(torch.int32)
    size = to_words.numel()
    _rows_kernel[(blocks_of(size, WORDS),)](words, places, to_words, size, width=words.shape[1], block=WORDS)
    return out


@triton_jit("source_at", "places_at", "out_at", "size")
def _rows_kernel(source_at, places_at, out_at, size, width: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copy the rows at these places, `size` words in all, `width` in each row."""
    word = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_in = word < size
    place = tl.load(places_at + word // width, mask=is_in, other=0).to(tl.int64)
    tl.store(out_at + word, tl.load(source_at + place * width + word % width, mask=is_in), mask=is_in)


def select_numbers(
    units: Tensor, number: int, size: int, fields: Sequence[Tensor], action: Tensor | None, counts: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Of all L steps of `number` sequences, time-major, those of the sequences `units` [M]: `size` = L * M samples.

    `fields` are log-probabilities, values, advantages and returns; of these [4, size] is returned, then of the choices
    `action` and the flags `counts`, which may both be None.
    """
    numbers = fields[0].new_empty(4, size)
    to_action = None if action is None else action.new_empty(size)
    to_counts = None if counts is None else counts.new_empty(size)
    _select_kernel[(blocks_of(size, BLOCK),)](
        units, *fields, action, None if counts is None else counts.view(torch.uint8),
        numbers, to_action, None if to_counts is None else to_counts.view(torch.uint8),
        len(units), number, size, block=BLOCK,
    )  # fmt: skip
    return numbers, to_action, to_counts


@triton_jit("units_at", "num_units", "num_sequences", "size")
def _select_kernel(  # type: ignore[no-untyped-def]
    units_at, log_prob_at, value_at, advantage_at, returns_at, action_at, counts_at, numbers_at, to_action_at,
    to_counts_at, num_units, num_sequences, size, block: tl.constexpr,
):  # fmt: skip
    """Copy the numbers of L steps of the sequences `units_at` [M], time-major; without memory L is 1.

    `numbers_at` [4, size] takes log-probabilities, values, advantages and returns.
    """
    place = tl.program_id(0) * block + tl.arange(0, block)
    is_in = place < size
    unit = tl.load(units_at + place % num_units, mask=is_in, other=0)
    source = (place // num_units).to(tl.int64) * num_sequences + unit
    tl.store(numbers_at + place, tl.load(log_prob_at + source, mask=is_in), mask=is_in)
    tl.store(numbers_at + size + place, tl.load(value_at + source, mask=is_in), mask=is_in)
    tl.store(numbers_at + 2 * size + place, tl.load(advantage_at + source, mask=is_in), mask=is_in)
    tl.store(numbers_at + 3 * size + place, tl.load(returns_at + source, mask=is_in), mask=is_in)
    if action_at is not None:
        tl.store(to_action_at + place, tl.load(action_at + source, mask=is_in), mask=is_in)
    if counts_at is not None:
        tl.store(to_counts_at + place, tl.load(counts_at + source, mask=is_in), mask=is_in)
