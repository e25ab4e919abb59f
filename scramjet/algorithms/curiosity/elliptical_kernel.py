"""The elliptical bonus on the GPU, in Triton: a program keeps the matrix of a row on the chip through all steps.

Step by step for all rows at once, every step would read and write all matrices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.kernels.gpu.language import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl

MOST_FEATURES = 128
"""Most features of which a square fits into the registers of a program."""
NUMBERS_OF_A_WARP = 1024
"""Of a matrix: 32 registers of each thread."""


def visit_by_rows(
    features: Tensor, ended: Tensor, counts: Tensor, root: Tensor, is_under_way: Tensor, ridge: float
) -> Tensor:
    """`elliptical.visit_together` for up to MOST_FEATURES features, equal to it up to rounding."""
    (num_steps, num_rows), size = ended.shape, features.shape[2]
    block = 1 << (size - 1).bit_length()
    bonus = torch.empty(ended.shape, device=features.device)
    _visit_kernel[(num_rows,)](
        features.contiguous(), ended.contiguous().view(torch.uint8), counts.contiguous().view(torch.uint8), root,
        is_under_way.view(torch.uint8), bonus, num_steps, num_rows, ridge**-0.5, size=size, block=block,
        num_warps=max(1, min(16, block * block // NUMBERS_OF_A_WARP)),
    )  # fmt: skip
    return bonus


@triton_jit("num_steps", "num_rows", "first", "features_at", "ended_at", "counts_at", "root_at", "is_under_way_at")
def _visit_kernel(  # type: ignore[no-untyped-def]
    features_at, ended_at, counts_at, root_at, is_under_way_at, bonus_at, num_steps, num_rows, first,
    size: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """One program for each row, step by step. `first`: what S begins with on its diagonal."""
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    is_here = place < size
    is_inside = is_here[:, None] & is_here[None, :]
    matrix_at = root_at + row * size * size + place[:, None] * size + place[None, :]
    root = tl.load(matrix_at, mask=is_inside, other=0.0)
    is_under_way = tl.load(is_under_way_at + row) != 0
    at, phi = row, tl.load(features_at + row * size + place, mask=is_here, other=0.0)
    counts, goes_on = tl.load(counts_at + at) != 0, tl.load(ended_at + at) == 0
    next_phi = tl.load(features_at + (at + num_rows) * size + place, mask=is_here, other=0.0)
    last = row + (num_steps - 1) * num_rows.to(tl.int64)
    for _ in range(num_steps):
        next_at = tl.minimum(at + num_rows, last)  # the numbers of the next step are on their way during this one
        counts_next, goes_on_next = tl.load(counts_at + next_at) != 0, tl.load(ended_at + next_at) == 0
        phi_after = tl.load(features_at + (next_at + num_rows) * size + place, mask=is_here, other=0.0)
        if counts & (is_under_way == 0):
            diagonal = tl.where(place[:, None] == place[None, :], first, 0.0)
            share = _share(tl.sum(phi * phi, 0) * first * first)
            root = diagonal - (phi * (first * first * first * share))[:, None] * phi[None, :]
        projected = tl.sum(root * next_phi[:, None], 0)
        squared = tl.sum(projected * projected, 0)
        share = tl.where(counts & goes_on, _share(squared), 0.0)
        root -= (tl.sum(root * projected[None, :], 1) * share)[:, None] * projected[None, :]
        tl.store(bonus_at + at, tl.where(counts & goes_on, squared, 0.0))
        is_under_way = (is_under_way | counts) & goes_on
        counts, goes_on, phi, next_phi = counts_next, goes_on_next, next_phi, phi_after
        at += num_rows
    tl.store(matrix_at, root, mask=is_inside)
    tl.store(is_under_way_at + row, is_under_way.to(tl.uint8))


@triton_jit()
def _share(squared):  # type: ignore[no-untyped-def]
    """How much of S v v^T is taken from S, where v^T v is `squared`."""
    return 1.0 / (1.0 + squared + tl.sqrt(1.0 + squared))
