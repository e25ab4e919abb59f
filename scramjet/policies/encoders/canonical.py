"""One of all turned boards, always the same one, chosen and laid out in one Triton kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.compile.block_sizes import power_of_two
from scramjet.compile.triton import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl

BLOCK = 2048
"""Numbers of boards that a program holds, about."""


def canonical_boards(obs: Tensor, sources: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Of each of `obs` [B, *shape] the turned board with the highest sum of numbers times `order` [N], the first of
    several; and which one it is, [B]. Number i of turned board g is number `sources` [G, N] [g, i]."""
    turned, chosen = torch.empty_like(obs, memory_format=torch.contiguous_format), sources.new_empty(len(obs))
    count, size = sources.shape
    columns = power_of_two(size)
    rows = max(1, BLOCK // columns)
    as_bytes = [tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor for tensor in (obs, turned)]
    _canonical_kernel[(-(-len(obs) // rows),)](
        as_bytes[0].contiguous(), sources, order, as_bytes[1], chosen, len(obs),
        count=count, size=size, rows=rows, columns=columns,
    )  # fmt: skip
    return turned, chosen


@triton_jit("num_boards")
def _canonical_kernel(  # type: ignore[no-untyped-def]
    obs_at, sources_at, order_at, turned_at, chosen_at, num_boards,
    count: tl.constexpr, size: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """See `canonical_boards`; names that end in `_at` are pointers."""
    board = tl.program_id(0) * rows + tl.arange(0, rows)
    place = tl.arange(0, columns)[None, :]
    is_there = (board < num_boards)[:, None] & (place < size)
    obs_at += board[:, None].to(tl.int64) * size
    weight = tl.load(order_at + place, mask=place < size, other=0.0)
    best = tl.zeros([rows], tl.float64) - float("inf")
    chosen = tl.zeros([rows], tl.int64)
    for turn in range(count):
        source = tl.load(sources_at + turn * size + place, mask=place < size, other=0)
        numbers = tl.load(obs_at + source, mask=is_there, other=0).to(tl.float64)
        rank = tl.sum(numbers * weight, axis=1)
        chosen = tl.where(rank > best, turn, chosen)
        best = tl.maximum(best, rank)
    source = tl.load(sources_at + chosen[:, None] * size + place, mask=is_there, other=0)
    numbers = tl.load(obs_at + source, mask=is_there, other=0)
    tl.store(turned_at + board[:, None].to(tl.int64) * size + place, numbers, mask=is_there)
    tl.store(chosen_at + board, chosen, mask=board < num_boards)
