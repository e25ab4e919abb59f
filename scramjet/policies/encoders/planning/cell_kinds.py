"""Triton kernels of each cell's reward and share where planes hold zeros and ones alone: see `cell_maps` for others.

With few planes there are few kinds of cells, 2 to the power of the planes, and all cells of a kind have one reward and
one share. Programs compute those of the kinds and look up the rest. On the way back they add up the gradients of each
kind, from which a last program makes those of the weights. Sums are taken in a fixed order, without atomics. Names that
end in `_at` are pointers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.compile.block_sizes import power_of_two
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import clamped, leads_out
from scramjet.policies.encoders.planning.cell_maps import (
    CellWeights,
    as_gradients,
    chunks_of,
    most_programs,
    num_gradients,
)

if HAS_TRITON:
    import triton.language as tl

CELLS, WARPS = 1024, 4
"""Cells that a program of the forward pass takes, and its warps."""
GRADIENT_CELLS, GRADIENT_WARPS = 512, 8
"""Cells that a program of the backward pass takes at a time, and its warps; each thread holds sums for all kinds."""


def cell_kinds(planes: Tensor, weights: CellWeights, *, slope: float, sharpness: float, bound: float) -> Any:
    """`cell_maps.cell_maps` of `planes`, int8 [B, H, W, P], that hold zeros and ones; any other number counts
    as a one."""
    return _CellKinds.apply(planes, (slope, sharpness, bound), *weights)


class _CellKinds(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, planes: Tensor, numbers: tuple[float, float, float], *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(planes, *weights)
        units, num_planes = weights[0].shape
        ctx.shape = {
            "planes": num_planes, "kinds": 1 << num_planes, "units": units, "padded": power_of_two(units),
            "slope": numbers[0], "sharpness": numbers[1], "bound": numbers[2],
        }  # fmt: skip
        reward, passes = weights[0].new_empty(2, *planes.shape[:-1]).unbind()
        grid = (-(-reward.numel() // CELLS),)
        _kinds_kernel[grid](planes, *weights, reward, passes, reward.numel(), rows=CELLS, num_warps=WARPS, **ctx.shape)
        return reward, passes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        planes, *weights = ctx.saved_tensors
        to_reward, to_passes = (grad.contiguous() for grad in grads)
        num_cells = to_reward.numel()
        chunk, num_programs = chunks_of(num_cells, GRADIENT_CELLS, planes.device)
        partials = weights[0].new_empty(num_programs, 2, ctx.shape["kinds"])
        _pulls_kernel[(num_programs,)](
            planes, *weights, to_reward, to_passes, partials, num_cells, chunk,
            rows=GRADIENT_CELLS, num_warps=GRADIENT_WARPS, **ctx.shape,
        )  # fmt: skip
        sums = weights[0].new_empty(num_gradients(weights[0]))
        most = power_of_two(most_programs(planes.device))  # a kernel for any number of cells
        _weights_kernel[(1,)](*weights, partials, sums, num_programs, programs=most, **ctx.shape)
        return None, None, *as_gradients(sums, weights[0])


@triton_jit()
def _hidden_of_kinds(  # type: ignore[no-untyped-def]
    embed_at, embed_bias_at, unit, kind,
    planes: tl.constexpr, kinds: tl.constexpr, units: tl.constexpr, padded: tl.constexpr,
):  # fmt: skip
    """The hidden layer before its activation, [padded, kinds]."""
    is_unit = unit < units
    hidden = tl.zeros([padded, kinds], tl.float32) + tl.load(embed_bias_at + unit, mask=is_unit, other=0.0)[:, None]
    for plane in tl.static_range(planes):
        weight = tl.load(embed_at + unit * planes + plane, mask=is_unit, other=0.0)
        hidden += weight[:, None] * ((kind >> plane) & 1).to(tl.float32)[None, :]
    return hidden


@triton_jit()
def _total_of_kinds(  # type: ignore[no-untyped-def]
    hidden, maps_at, maps_bias_at, guess_at, guess_bias_at, unit, kind, output: tl.constexpr,
    planes: tl.constexpr, units: tl.constexpr, slope: tl.constexpr, sharpness: tl.constexpr,
):  # fmt: skip
    """The input of the sigmoid before it is kept within its bounds, [kinds], of output 0 or 1."""
    weight = tl.load(maps_at + output * units + unit, mask=unit < units, other=0.0)
    activated = tl.where(hidden > 0.0, hidden, slope * hidden)
    total = sharpness * (tl.sum(activated * weight[:, None], axis=0) + tl.load(maps_bias_at + output))
    total += tl.load(guess_bias_at + output)
    for plane in tl.static_range(planes):
        total += ((kind >> plane) & 1).to(tl.float32) * tl.load(guess_at + output * planes + plane)
    return total


@triton_jit()
def _kind_of(planes_at, cell, is_cell, planes: tl.constexpr, rows: tl.constexpr):  # type: ignore[no-untyped-def]
    """The kind of each cell, a number with a bit for each plane, [rows]."""
    kind = tl.zeros([rows], tl.int32)
    for plane in tl.static_range(planes):
        number = tl.load(planes_at + cell * planes + plane, mask=is_cell, other=0)
        kind += tl.where(number != 0, 1 << plane, 0)
    return kind


@triton_jit("num_cells")
def _kinds_kernel(  # type: ignore[no-untyped-def]
    planes_at, embed_at, embed_bias_at, maps_at, maps_bias_at, guess_at, guess_bias_at, reward_at, passes_at, num_cells,
    planes: tl.constexpr, kinds: tl.constexpr, units: tl.constexpr, padded: tl.constexpr, rows: tl.constexpr,
    slope: tl.constexpr, sharpness: tl.constexpr, bound: tl.constexpr,
):  # fmt: skip
    """Write each cell's reward and share; one program for each block of cells."""
    cell = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    unit, kind = tl.arange(0, padded), tl.arange(0, kinds)
    is_kind = _kind_of(planes_at, cell, cell < num_cells, planes, rows)[None, :] == kind[:, None]
    hidden = _hidden_of_kinds(embed_at, embed_bias_at, unit, kind, planes, kinds, units, padded)
    for output in tl.static_range(2):
        total = _total_of_kinds(
            hidden, maps_at, maps_bias_at, guess_at, guess_bias_at, unit, kind, output, planes, units, slope, sharpness
        )
        share = tl.sigmoid(clamped(total, -bound, bound))
        numbers = tl.sum(tl.where(is_kind, share[:, None], 0.0), axis=0)
        tl.store((reward_at if output == 0 else passes_at) + cell, numbers, mask=cell < num_cells)


@triton_jit("num_cells", "chunk")
def _pulls_kernel(  # type: ignore[no-untyped-def]
    planes_at, embed_at, embed_bias_at, maps_at, maps_bias_at, guess_at, guess_bias_at, to_reward_at, to_passes_at,
    partials_at, num_cells, chunk,
    planes: tl.constexpr, kinds: tl.constexpr, units: tl.constexpr, padded: tl.constexpr, rows: tl.constexpr,
    slope: tl.constexpr, sharpness: tl.constexpr, bound: tl.constexpr,
):  # fmt: skip
    """Write the gradients before the sigmoids, summed over the cells of each kind among `chunk` cells: [2, kinds]."""
    unit, kind = tl.arange(0, padded), tl.arange(0, kinds)
    hidden = _hidden_of_kinds(embed_at, embed_bias_at, unit, kind, planes, kinds, units, padded)
    begin = tl.program_id(0).to(tl.int64) * chunk
    end = tl.minimum(begin + chunk, num_cells)
    first = _total_of_kinds(
        hidden, maps_at, maps_bias_at, guess_at, guess_bias_at, unit, kind, 0, planes, units, slope, sharpness
    )
    second = _total_of_kinds(
        hidden, maps_at, maps_bias_at, guess_at, guess_bias_at, unit, kind, 1, planes, units, slope, sharpness
    )
    first_sums, second_sums = tl.zeros([kinds, rows], tl.float32), tl.zeros([kinds, rows], tl.float32)
    for start in range(begin, end, rows):
        cell = start + tl.arange(0, rows)
        is_kind = _kind_of(planes_at, cell, cell < end, planes, rows)[None, :] == kind[:, None]
        to_reward = tl.load(to_reward_at + cell, mask=cell < end, other=0.0)
        to_passes = tl.load(to_passes_at + cell, mask=cell < end, other=0.0)
        first_sums += tl.where(is_kind & _stays(first[:, None], to_reward[None, :], bound), to_reward[None, :], 0.0)
        second_sums += tl.where(is_kind & _stays(second[:, None], to_passes[None, :], bound), to_passes[None, :], 0.0)
    partials_at += tl.program_id(0) * (2 * kinds)
    tl.store(partials_at + kind, sharpness * _slope(first, bound) * tl.sum(first_sums, axis=1))
    tl.store(partials_at + kinds + kind, sharpness * _slope(second, bound) * tl.sum(second_sums, axis=1))


@triton_jit()
def _stays(total, grad, bound: tl.constexpr):  # type: ignore[no-untyped-def]
    """Whether a gradient counts: not where it would lead farther out of the bounds."""
    return ~leads_out(total, grad, -bound, bound)


@triton_jit()
def _slope(total, bound: tl.constexpr):  # type: ignore[no-untyped-def]
    """The derivative of a sigmoid whose input is kept within bounds."""
    share = tl.sigmoid(clamped(total, -bound, bound))
    return share * (1.0 - share)


@triton_jit("num_programs")
def _weights_kernel(  # type: ignore[no-untyped-def]
    embed_at, embed_bias_at, maps_at, maps_bias_at, guess_at, guess_bias_at, partials_at, sums_at, num_programs,
    planes: tl.constexpr, kinds: tl.constexpr, units: tl.constexpr, padded: tl.constexpr, programs: tl.constexpr,
    slope: tl.constexpr, sharpness: tl.constexpr, bound: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the weights: [planes, units] of the hidden layer's, [units] of its bias, [2, units] and
    [2] of the maps. One program."""
    unit, kind, program = tl.arange(0, padded), tl.arange(0, kinds), tl.arange(0, programs)
    hidden = _hidden_of_kinds(embed_at, embed_bias_at, unit, kind, planes, kinds, units, padded)
    activated = tl.where(hidden > 0.0, hidden, slope * hidden)
    gradient = tl.zeros([padded, kinds], tl.float32)
    maps_sums_at = sums_at + (planes + 1) * units
    for output in tl.static_range(2):
        place = program[:, None] * (2 * kinds) + (output * kinds + kind)[None, :]
        partials = tl.load(partials_at + place, mask=program[:, None] < num_programs, other=0.0)
        pull = tl.sum(partials, axis=0)
        weight = tl.load(maps_at + output * units + unit, mask=unit < units, other=0.0)
        gradient += weight[:, None] * pull[None, :]
        to_maps = tl.sum(activated * pull[None, :], axis=1)
        tl.store(maps_sums_at + output * units + unit, to_maps, mask=unit < units)
        tl.store(maps_sums_at + 2 * units + output, tl.sum(pull, axis=0))
    gradient = tl.where(hidden > 0.0, gradient, slope * gradient)
    for plane in tl.static_range(planes):
        to_embed = tl.sum(gradient * ((kind >> plane) & 1).to(tl.float32)[None, :], axis=1)
        tl.store(sums_at + plane * units + unit, to_embed, mask=unit < units)
    tl.store(sums_at + planes * units + unit, tl.sum(gradient, axis=1), mask=unit < units)
