"""Triton kernels that lay out boards: entries of an observation as planes, each written to its own of a tensor for all,
and of all turned boards always the same one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scramjet.kernels.gpu.convolutions import as_numbers
from scramjet.kernels.gpu.language import HAS_TRITON, power_of_two, triton_jit

if HAS_TRITON:
    import triton.language as tl

PLANE_BLOCK = 1024
"""Numbers that a program writes, about."""


def write_grid(
    planes: Tensor, first: int, grid: Tensor, channels: int, *, channels_first: bool, divisor: float
) -> None:
    """Write a grid [B, H, W], [B, H, W, channels] or, channels first, [B, channels, H, W], divided by `divisor`."""
    _launch(_grid_kernel, planes, first, grid, channels, channels_first=channels_first, divisor=divisor)


def write_position(planes: Tensor, first: int, position: Tensor, start: tuple[int, int]) -> None:
    """Write a plane that has a 1 in the cell of each position [B, 2], counted from `start`."""
    width = planes.shape[2]
    _launch(_position_kernel, planes, first, position, 1, width=width, start_y=start[0], start_x=start[1])


def write_symbols(planes: Tensor, first: int, symbols: Tensor, sizes: tuple[int, ...], starts: tuple[int, ...]) -> None:
    """Write a plane for each value of each symbol of a cell, [B, H, W, symbols], that has a 1 where a cell has it."""
    for k, (size, start) in enumerate(zip(sizes, starts, strict=True)):
        _launch(_symbol_kernel, planes, first, symbols, size, symbol=k, num_symbols=len(sizes), start=start)
        first += size


def _launch(kernel: Any, planes: Tensor, first: int, entry: Tensor, count: int, **settings: Any) -> None:
    """Have `count` planes of [B, H, W, P] written, from number `first` on."""
    num_boards, height, width, num_planes = planes.shape
    columns = power_of_two(count)
    rows = max(1, PLANE_BLOCK // columns)
    kernel[(-(-num_boards * height * width // rows),)](
        as_numbers(entry.contiguous()), planes, num_boards,
        first=first, num_planes=num_planes, count=count, cells=height * width, rows=rows, columns=columns, **settings,
    )  # fmt: skip


@triton_jit()
def _write(planes_at, row, is_there, numbers, column, first: tl.constexpr, num_planes: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(planes_at + row.to(tl.int64) * num_planes + (first + column), numbers.to(tl.float32), mask=is_there)


@triton_jit("num_boards")
def _grid_kernel(  # type: ignore[no-untyped-def]
    entry_at, planes_at, num_boards, first: tl.constexpr, num_planes: tl.constexpr, count: tl.constexpr,
    cells: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    channels_first: tl.constexpr, divisor: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    column = tl.arange(0, columns)[None, :]
    is_there = (row < num_boards * cells) & (column < count)
    if channels_first:
        place = ((row // cells).to(tl.int64) * count + column) * cells + row % cells
    else:
        place = row.to(tl.int64) * count + column
    numbers = tl.load(entry_at + place, mask=is_there, other=0).to(tl.float32) / divisor
    _write(planes_at, row, is_there, numbers, column, first, num_planes)


@triton_jit("num_boards")
def _position_kernel(  # type: ignore[no-untyped-def]
    entry_at, planes_at, num_boards, first: tl.constexpr, num_planes: tl.constexpr, count: tl.constexpr,
    cells: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    width: tl.constexpr, start_y: tl.constexpr, start_x: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    is_there = row < num_boards * cells
    board, cell = row // cells, row % cells
    y = tl.load(entry_at + 2 * board, mask=is_there, other=0).to(tl.int32) - start_y
    x = tl.load(entry_at + 2 * board + 1, mask=is_there, other=0).to(tl.int32) - start_x
    _write(planes_at, row, is_there, y * width + x == cell, tl.arange(0, columns)[None, :], first, num_planes)


@triton_jit("num_boards")
def _symbol_kernel(  # type: ignore[no-untyped-def]
    entry_at, planes_at, num_boards, first: tl.constexpr, num_planes: tl.constexpr, count: tl.constexpr,
    cells: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
    symbol: tl.constexpr, num_symbols: tl.constexpr, start: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * rows + tl.arange(0, rows)[:, None]
    column = tl.arange(0, columns)[None, :]
    is_row = row < num_boards * cells
    value = tl.load(entry_at + row.to(tl.int64) * num_symbols + symbol, mask=is_row, other=0)
    _write(planes_at, row, is_row & (column < count), value == column + start, column, first, num_planes)


# --- one of all turned boards, always the same one, chosen and laid out in one Triton kernel


BOARD_BLOCK = 2048
"""Numbers of boards that a program holds, about."""


def canonical_boards(obs: Tensor, sources: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Of each of `obs` [B, *shape] the turned board with the highest sum of numbers times `order` [N], the first of
    several; and which one it is, [B]. Number i of turned board g is number `sources` [G, N] [g, i]."""
    turned, chosen = torch.empty_like(obs, memory_format=torch.contiguous_format), sources.new_empty(len(obs))
    count, size = sources.shape
    columns = power_of_two(size)
    rows = max(1, BOARD_BLOCK // columns)
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
