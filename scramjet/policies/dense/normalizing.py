"""Normalized observations on the GPU, in one Triton kernel in place of eight of torch's."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.compile.block_sizes import blocks_of, power_of_two
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import clamped

if HAS_TRITON:
    import triton.language as tl

WIDEST = 1024
"""Most numbers of a row that a program takes: it computes their scales once."""
NUMBERS = 4096
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
    columns = min(WIDEST, power_of_two(width))
    rows = NUMBERS // columns
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
