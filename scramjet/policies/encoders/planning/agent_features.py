"""Triton kernels after the planning of `value_propagation`: what an agent is told of the cells around it.

The same as `ValuePropagation.agent_features` with torch's operators, in one kernel; its gradient is two. Names that end
in `_at` are pointers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.compile.block_sizes import power_of_two
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import tanh

if HAS_TRITON:
    import triton.language as tl

NUM_FEATURES = 20
"""Steps to the 3x3 cells, their shares, the agent's value and its distance."""
BLOCK, BLOCK_WARPS = 32, 4
"""Agents of a program that computes features or their gradients, and its warps."""
CELLS = 1024
"""Cells of a program that writes gradients of grids, about."""


def agent_features(
    value: Tensor, passes: Tensor, agent: Tensor, start: tuple[int, int], *, smallest: float, pause: float
) -> Tensor:
    """Features [B, 20] of agents at `agent` [B, 2], rows and columns counted from `start`, on grids with `value` and
    `passes` [B, H, W]. Cells outside of the grid have value and share 0."""
    features: Tensor = _AgentFeatures.apply(value, passes, agent, start, (smallest, pause))
    return features


class _AgentFeatures(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, value: Tensor, passes: Tensor, agent: Tensor, start: tuple[int, int], numbers: tuple[float, float]
    ) -> Tensor:
        value, passes, agent = value.contiguous(), passes.contiguous(), agent.contiguous()
        ctx.save_for_backward(value, passes, agent)
        ctx.layout = {"height": value.shape[1], "width": value.shape[2], "start_y": start[0], "start_x": start[1]}
        ctx.numbers = {"smallest": numbers[0], "pause": numbers[1]}
        features = value.new_empty(len(value), NUM_FEATURES)
        _features_kernel[(-(-len(value) // BLOCK),)](
            value, passes, agent, features, len(value), block=BLOCK, num_warps=BLOCK_WARPS, **ctx.layout, **ctx.numbers
        )
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        value, passes, agent = ctx.saved_tensors
        around = value.new_empty(2, len(value), 9)
        _features_gradient_kernel[(-(-len(value) // BLOCK),)](
            value, passes, agent, grads[0].contiguous(), around, len(value),
            block=BLOCK, num_warps=BLOCK_WARPS, **ctx.layout, **ctx.numbers,
        )  # fmt: skip
        to_value, to_passes = value.new_empty(2, *value.shape).unbind()
        padded = power_of_two(value.shape[1] * value.shape[2])
        block = max(1, CELLS // padded)
        _spread_kernel[(-(-len(value) // block),)](
            around, agent, to_value, to_passes, len(value), block=block, padded=padded, **ctx.layout
        )
        return to_value, to_passes, None, None, None


@triton_jit()
def _around(  # type: ignore[no-untyped-def]
    agent_at, grid, place, num_grids,
    height: tl.constexpr, width: tl.constexpr, start_y: tl.constexpr, start_x: tl.constexpr,
):  # fmt: skip
    """Numbers of the 3x3 cells around agents in memory, [block, 16], and which of them are cells of the grid."""
    y = tl.load(agent_at + 2 * grid, mask=grid < num_grids, other=0) - start_y + place // 3 - 1
    x = tl.load(agent_at + 2 * grid + 1, mask=grid < num_grids, other=0) - start_x + place % 3 - 1
    is_inside = (grid < num_grids) & (place < 9) & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return grid.to(tl.int64) * (height * width) + y * width + x, is_inside


@triton_jit()
def _middle(numbers, place):  # type: ignore[no-untyped-def]
    """The number of the agent's own cell, [block, 1]."""
    return tl.sum(tl.where(place == 4, numbers, 0.0), axis=1)[:, None]


@triton_jit("num_grids")
def _features_kernel(  # type: ignore[no-untyped-def]
    value_at, passes_at, agent_at, features_at, num_grids,
    height: tl.constexpr, width: tl.constexpr, start_y: tl.constexpr, start_x: tl.constexpr, block: tl.constexpr,
    smallest: tl.constexpr, pause: tl.constexpr,
):  # fmt: skip
    """See `agent_features`; one program for each block of agents."""
    grid = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    place = tl.arange(0, 16)[None, :]
    cell, is_inside = _around(agent_at, grid, place, num_grids, height, width, start_y, start_x)
    value = tl.load(value_at + cell, mask=is_inside, other=0.0)
    share = tl.load(passes_at + cell, mask=is_inside, other=0.0)
    log, own_value = tl.log(value + smallest), _middle(value, place)
    own_log, span = tl.log(own_value + smallest), pause - tl.log(_middle(share, place) + smallest)
    steps = tanh((log - own_log) / span)
    is_place, features_at = (grid < num_grids) & (place < 9), features_at + grid * 20
    tl.store(features_at + place, steps, mask=is_place)
    tl.store(features_at + 9 + place, share, mask=is_place)
    distance = -own_log / span / (height + width)
    last = tl.where(place == 0, own_value, distance)
    tl.store(features_at + 18 + place, last, mask=(grid < num_grids) & (place < 2))


@triton_jit("num_grids")
def _features_gradient_kernel(  # type: ignore[no-untyped-def]
    value_at, passes_at, agent_at, grad_at, around_at, num_grids,
    height: tl.constexpr, width: tl.constexpr, start_y: tl.constexpr, start_x: tl.constexpr, block: tl.constexpr,
    smallest: tl.constexpr, pause: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the values and shares around agents, [2, B, 9]; one program for each block of agents."""
    grid = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    place = tl.arange(0, 16)[None, :]
    is_grid, is_place = grid < num_grids, (grid < num_grids) & (place < 9)
    cell, is_inside = _around(agent_at, grid, place, num_grids, height, width, start_y, start_x)
    value = tl.load(value_at + cell, mask=is_inside, other=0.0)
    own_value = _middle(value, place)
    own_share = _middle(tl.load(passes_at + cell, mask=is_inside, other=0.0), place)
    own_log, span = tl.log(own_value + smallest), pause - tl.log(own_share + smallest)
    ratio = (tl.log(value + smallest) - own_log) / span
    steps = tanh(ratio)
    grad_at += grid * 20
    to_ratio = tl.load(grad_at + place, mask=is_place, other=0.0) * (1.0 - steps * steps)
    to_own = tl.load(grad_at + 18, mask=is_grid, other=0.0)
    to_distance = tl.load(grad_at + 19, mask=is_grid, other=0.0) / (height + width)
    to_log = to_ratio / span
    to_own_log = -tl.sum(to_log, axis=1)[:, None] - to_distance / span
    to_span = to_distance * own_log / (span * span) - tl.sum(to_ratio * ratio, axis=1)[:, None] / span
    to_log = tl.where(place == 4, to_log + to_own_log, to_log)
    to_value = to_log / (value + smallest) + tl.where(place == 4, to_own, 0.0)
    to_share = tl.load(grad_at + 9 + place, mask=is_place, other=0.0)
    to_share -= tl.where(place == 4, to_span / (own_share + smallest), 0.0)
    tl.store(around_at + grid * 9 + place, to_value, mask=is_place)
    tl.store(around_at + num_grids * 9 + grid * 9 + place, to_share, mask=is_place)


@triton_jit("num_grids")
def _spread_kernel(  # type: ignore[no-untyped-def]
    around_at, agent_at, to_value_at, to_passes_at, num_grids,
    height: tl.constexpr, width: tl.constexpr, start_y: tl.constexpr, start_x: tl.constexpr, block: tl.constexpr,
    padded: tl.constexpr,
):  # fmt: skip
    """Write the gradients of all cells, 0 for those that are not around an agent; one program for a block of grids."""
    grid, cell = tl.program_id(0) * block + tl.arange(0, block)[:, None], tl.arange(0, padded)[None, :]
    is_grid = grid < num_grids
    agent_y = tl.load(agent_at + 2 * grid, mask=is_grid, other=0).to(tl.int32) - start_y
    agent_x = tl.load(agent_at + 2 * grid + 1, mask=is_grid, other=0).to(tl.int32) - start_x
    down, right = cell // width + 1 - agent_y, cell % width + 1 - agent_x
    is_cell = is_grid & (cell < height * width)
    is_around = is_cell & (down >= 0) & (down < 3) & (right >= 0) & (right < 3)
    place = grid * 9 + down * 3 + right
    to_value = tl.load(around_at + place, mask=is_around, other=0.0)
    to_passes = tl.load(around_at + num_grids * 9 + place, mask=is_around, other=0.0)
    number = grid.to(tl.int64) * (height * width) + cell
    tl.store(to_value_at + number, to_value, mask=is_cell)
    tl.store(to_passes_at + number, to_passes, mask=is_cell)
