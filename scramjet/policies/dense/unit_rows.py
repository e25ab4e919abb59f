"""Rows scaled to length 1 on the GPU, in Triton: one kernel forward and one back, where torch launches seventeen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.compile.block_sizes import blocks_of, power_of_two
from scramjet.compile.triton import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl

SHORTEST = 1e-12
"""Rows that are shorter are divided by this, as `torch.nn.functional.normalize` does."""
WIDEST = 4096
"""Most numbers of a row: a program has all of it on the chip."""
NUMBERS = 2048
"""Numbers that a program takes at a time, if rows are not longer."""


def unit_rows(rows: Tensor) -> Tensor:
    """`torch.nn.functional.normalize(rows, dim=-1)` of rows [B, up to WIDEST]."""
    units: Tensor = _UnitRows.apply(rows)
    return units


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        units, factors = torch.empty_like(rows), rows.new_empty(len(rows), dtype=torch.float32)
        _launch(_unit_kernel, rows, units, factors)
        ctx.save_for_backward(units, factors)
        return units

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        units, factors = ctx.saved_tensors
        to_rows = torch.empty_like(units)
        _launch(_gradient_kernel, units, factors, grads[0].contiguous(), to_rows)
        return to_rows


def _launch(kernel: Any, rows: Tensor, *others: Tensor) -> None:
    number, width = rows.shape
    padded = power_of_two(width)
    block = max(1, NUMBERS // padded)
    if number:
        kernel[(blocks_of(number, block),)](rows, *others, number, width=width, padded=padded, block=block)


@triton_jit()
def _places(num_rows, width: tl.constexpr, padded: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program's rows [block], where their numbers lie [block, padded], and which of these there are."""
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column = tl.arange(0, padded)[None, :]
    return row, row[:, None] * width + column, (row < num_rows)[:, None] & (column < width)


@triton_jit("num_rows")
def _unit_kernel(  # type: ignore[no-untyped-def]
    rows_at, units_at, factors_at, num_rows,
    width: tl.constexpr, padded: tl.constexpr, block: tl.constexpr, shortest: tl.constexpr = SHORTEST,
):  # fmt: skip
    """Write the rows scaled, and what each was multiplied by."""
    row, place, is_in = _places(num_rows, width, padded, block)
    numbers = tl.load(rows_at + place, mask=is_in, other=0.0).to(tl.float32)
    length = tl.sqrt(tl.sum(numbers * numbers, axis=1))
    factor = 1.0 / tl.where(length < shortest, shortest, length)  # NaN stays
    tl.store(units_at + place, numbers * factor[:, None], mask=is_in)
    tl.store(factors_at + row, factor, mask=row < num_rows)


@triton_jit("num_rows")
def _gradient_kernel(  # type: ignore[no-untyped-def]
    units_at, factors_at, to_units_at, to_rows_at, num_rows,
    width: tl.constexpr, padded: tl.constexpr, block: tl.constexpr, shortest: tl.constexpr = SHORTEST,
):  # fmt: skip
    """The gradient of a row is that of the scaled one without its part along the row, times the factor."""
    row, place, is_in = _places(num_rows, width, padded, block)
    units = tl.load(units_at + place, mask=is_in, other=0.0).to(tl.float32)
    to_units = tl.load(to_units_at + place, mask=is_in, other=0.0).to(tl.float32)
    factor = tl.load(factors_at + row, mask=row < num_rows, other=0.0)
    is_long = factor < 0.999 / shortest  # shorter rows have a fixed factor, which division may round
    along = tl.where(is_long, tl.sum(units * to_units, axis=1), 0.0)
    tl.store(to_rows_at + place, (to_units - along[:, None] * units) * factor[:, None], mask=is_in)
