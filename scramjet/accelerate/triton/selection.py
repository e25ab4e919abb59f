"""Selects the samples of a minibatch with one kernel for all fields of one number a sample.

`Samples.select` launches one small gather for each of them, and at usual sizes a launch takes longer than its work.
`select_rows` gathers rows: torch takes a block of threads for each, however few numbers it has.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.accelerate.samples import Samples
from scramjet.compile.block_sizes import blocks_of
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.engine.trees import map_fields

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


def fused_select(samples: Samples, units: Tensor) -> Samples:
    """`Samples.select`: the samples, or sequences, numbered `units` [M]. `place` is left out: no gradient needs it."""
    number = samples.num_units
    size = len(samples.action) // number * len(units)

    def take(data: Tensor) -> Tensor:
        return select_rows(data, units) if samples.state is None else samples.take(data, units)

    numbers = samples.log_prob.new_empty(4, size)
    has_choice = samples.action.dim() == 1
    action = samples.action.new_empty(size) if has_choice else take(samples.action)
    counts = None if samples.counts is None else samples.counts.new_empty(size)
    _select_kernel[(blocks_of(size, BLOCK),)](
        units, samples.log_prob, samples.value, samples.advantage, samples.returns,
        samples.action if has_choice else None, None if samples.counts is None else samples.counts.view(torch.uint8),
        numbers, action if has_choice else None, None if counts is None else counts.view(torch.uint8),
        len(units), number, size, block=BLOCK,
    )  # fmt: skip
    log_prob, value, advantage, returns = numbers.unbind()
    return map_fields(
        samples,
        take,
        action=action,
        log_prob=log_prob,
        value=value,
        advantage=advantage,
        returns=returns,
        place=samples.place[:0],
        counts=counts,
        state=None if samples.state is None else samples.state.index_select(0, units),
        begins=None if samples.begins is None else samples.begins.index_select(1, units),
        num_rows=1,
        unit=None,
    )


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
