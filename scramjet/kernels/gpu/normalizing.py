"""Rows of numbers scaled in one Triton kernel: observations to mean 0 and deviation 1, in place of eight launches of
torch's, and rows to length 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.kernels.gpu.language import HAS_TRITON, blocks_of, clamped, power_of_two, triton_jit

if HAS_TRITON:
    import triton.language as tl

MOST_COLUMNS = 1024
"""Most numbers of a row that a program takes: it computes their scales once."""
PROGRAM_NUMBERS = 4096
"""Numbers that a program takes in all."""


def normalized(obs: Tensor, mean: Tensor, variance: Tensor, clip: float) -> Tensor:
    """What `ObservationNormalizer` makes of observations [B, *shape], with mean and variance float64 [*shape]."""
    out = torch.empty(obs.shape, dtype=torch.float32, device=obs.device)
    width = mean.numel()
    assert obs.numel() == len(obs) * width, (obs.shape, mean.shape)
    if not out.numel():
        return out
    numbers = obs.contiguous()
    if numbers.dtype is torch.bool:
        numbers = numbers.view(torch.uint8)
    columns = min(MOST_COLUMNS, power_of_two(width))
    rows = PROGRAM_NUMBERS // columns
    _normalized_kernel[(blocks_of(len(obs), rows), blocks_of(width, columns))](
        numbers, mean, variance, out, len(obs), clip=clip, width=width, rows=rows, columns=columns
    )
    return out


@triton_jit()
def scale_of(mean_at, variance_at, column, is_column):  # type: ignore[no-untyped-def]
    """What is subtracted from the numbers of these columns, and what they are then multiplied by, in float32."""
    shift = tl.load(mean_at + column, mask=is_column, other=0.0).to(tl.float32)
    variance = tl.load(variance_at + column, mask=is_column, other=1.0)  # float64, as the mean
    return shift, (1.0 / tl.sqrt(variance + 1e-8)).to(tl.float32)


@triton_jit("num_rows", "obs_at", "out_at")
def _normalized_kernel(  # type: ignore[no-untyped-def]
    obs_at, mean_at, variance_at, out_at, num_rows,
    clip: tl.constexpr, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Shift, scale and clip `columns` numbers of so many rows."""
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    is_column = column < width
    shift, scale = scale_of(mean_at, variance_at, column, is_column)
    place, is_in = row[:, None] * width + column[None, :], (row < num_rows)[:, None] & is_column[None, :]
    numbers = tl.load(obs_at + place, mask=is_in, other=0.0).to(tl.float32)
    tl.store(out_at + place, clamped((numbers - shift[None, :]) * scale[None, :], -clip, clip), mask=is_in)


# --- rows scaled to length 1 on the GPU, in Triton: one kernel forward and one back, where torch launches seventeen


SHORTEST = 1e-12
"""Rows that are shorter are divided by this, as `torch.nn.functional.normalize` does."""
WIDEST_ROW = 4096
"""Most numbers of a row: a program has all of it on the chip."""
ROW_NUMBERS = 2048
"""Numbers that a program takes at a time, if rows are not longer."""


def unit_rows(rows: Tensor) -> Tensor:
    """`torch.nn.functional.normalize(rows, dim=-1)` of rows [B, up to WIDEST_ROW]."""
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
    block = max(1, ROW_NUMBERS // padded)
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
