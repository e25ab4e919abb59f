"""Triton kernels around the planning of `value_propagation`: each cell's reward and share before it, and after it what
an agent is told of the cells around it. The latter comes first: the same as `ValuePropagation.agent_features` with
torch's operators, in one kernel; its gradient is two. Names that end in `_at` are pointers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.kernels.gpu.language import (
    HAS_TRITON,
    blocks_of,
    clamped,
    leads_out,
    power_of_two,
    product_precision,
    product_size,
    tanh,
    triton_jit,
)

if HAS_TRITON:
    import triton.language as tl

NUM_FEATURES = 20
"""Steps to the 3x3 cells, their shares, the agent's value and its distance."""
BLOCK, BLOCK_WARPS = 32, 4
"""Agents of a program that computes features or their gradients, and its warps."""
FEATURE_CELLS = 1024
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
        block = max(1, FEATURE_CELLS // padded)
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


# --- each cell's reward and share, before the planning
#
# A cell's planes go through one hidden layer to two numbers without leaving the chip, forward and back; only gradients
# of weights are written. Sums are taken in a fixed order, without atomics.


CELLS, GRADIENT_CELLS = 256, 64
"""Cells that a program takes at a time, forward and back: few enough that units, weights and sums of all fit
into registers."""
GRADIENT_STAGES = 1
"""With more, blocks to come would be loaded ahead, into memory that the sums need."""
INPUTS = 16
"""Columns of the products that give gradients: planes, then a 1, then padding. Matrix products cannot be narrower."""
NUM_PROGRAMS, INTERPRETED_PROGRAMS = 528, 2
"""Programs of the backward pass, each with a row of partial sums; in Triton's interpreter."""


class CellWeights(NamedTuple):
    """What turns the planes of a cell into its reward and share; P planes, C hidden units."""

    embed: Tensor  # [C, P]
    embed_bias: Tensor  # [C]
    maps: Tensor  # [2, C]
    maps_bias: Tensor  # [2]
    guess: Tensor  # [2, P], added; not learned
    guess_bias: Tensor  # [2], added; not learned


def cell_maps(planes: Tensor, weights: CellWeights, *, slope: float, sharpness: float, bound: float) -> Any:
    """Reward and share of each cell of `planes` [B, H, W, P], both [B, H, W].

    sigmoid(sharpness * (maps h + maps_bias) + guess x + guess_bias) of h = leaky_relu(embed x + embed_bias), kept in
    -bound to bound before the sigmoid, with `keep_within`'s gradient. `slope` is the leaky ReLU's.
    """
    return _CellMaps.apply(planes, (slope, sharpness, bound), *weights)


class _CellMaps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, planes: Tensor, numbers: tuple[float, float, float], *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(planes, *weights)
        ctx.numbers, ctx.precision = numbers, "ieee" if product_precision() == "float32" else "tf32"
        reward, passes = planes.new_empty(2, *planes.shape[:-1]).unbind()
        grid = (-(-reward.numel() // CELLS),)
        _maps_kernel[grid](planes, *weights, reward, passes, reward.numel(), rows=CELLS, **_shape(weights[0], numbers))
        return reward, passes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        planes, *weights = ctx.saved_tensors
        to_reward, to_passes = (grad.contiguous() for grad in grads)
        num_cells = to_reward.numel()
        chunk, num_programs = chunks_of(num_cells, GRADIENT_CELLS, planes.device)
        partials = planes.new_empty(num_programs, num_gradients(weights[0]))
        _maps_gradient_kernel[(num_programs,)](
            planes, *weights, to_reward, to_passes, partials, num_cells, chunk,
            rows=GRADIENT_CELLS, inputs=INPUTS, precision=ctx.precision, num_stages=GRADIENT_STAGES,
            **_shape(weights[0], ctx.numbers),
        )  # fmt: skip
        return None, None, *as_gradients(partials.sum(0), weights[0])


def most_programs(device: torch.device) -> int:
    """Most programs that share the cells of a backward pass."""
    return NUM_PROGRAMS if device.type == "cuda" else INTERPRETED_PROGRAMS


def chunks_of(num_cells: int, rows: int, device: torch.device) -> tuple[int, int]:
    """Cells of a program of the backward pass that takes `rows` at a time, and how many programs there are."""
    chunk = max(1, blocks_of(num_cells, most_programs(device) * rows)) * rows
    return chunk, max(1, blocks_of(num_cells, chunk))


def num_gradients(embed: Tensor) -> int:
    """Numbers that `as_gradients` takes."""
    units, num_planes = embed.shape
    return (num_planes + 3) * units + 2


def as_gradients(sums: Tensor, embed: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of `CellWeights` as autograd takes them, None for what is not learned.

    `sums` are those of `embed`, transposed, and its bias, then those of the maps and their bias.
    """
    units, num_planes = embed.shape
    to_embed, to_bias, to_maps, to_maps_bias = sums.split([num_planes * units, units, 2 * units, 2])
    return to_embed.view(num_planes, units).t(), to_bias, to_maps.view(2, units), to_maps_bias, None, None


def _shape(embed: Tensor, numbers: tuple[float, float, float]) -> dict[str, Any]:
    units, num_planes = embed.shape
    slope, sharpness, bound = numbers
    return {
        "planes": num_planes, "units": units, "padded": product_size(units),
        "slope": slope, "sharpness": sharpness, "bound": bound,
    }  # fmt: skip


@triton_jit()
def _hidden(  # type: ignore[no-untyped-def]
    planes_at, embed_at, embed_bias_at, cell, is_cell, unit,
    planes: tl.constexpr, units: tl.constexpr, rows: tl.constexpr, padded: tl.constexpr,
):  # fmt: skip
    """The hidden layer before its activation, [padded, rows]."""
    is_unit = unit < units
    hidden = tl.zeros([padded, rows], tl.float32) + tl.load(embed_bias_at + unit, mask=is_unit, other=0.0)[:, None]
    for plane in tl.static_range(planes):
        number = tl.load(planes_at + cell * planes + plane, mask=is_cell, other=0.0)
        weight = tl.load(embed_at + unit * planes + plane, mask=is_unit, other=0.0)
        hidden += weight[:, None] * number[None, :]
    return hidden


@triton_jit()
def _before_sigmoid(  # type: ignore[no-untyped-def]
    activated, planes_at, maps_at, maps_bias_at, guess_at, guess_bias_at, cell, is_cell, unit, output: tl.constexpr,
    planes: tl.constexpr, units: tl.constexpr, sharpness: tl.constexpr,
):  # fmt: skip
    """The input of the sigmoid before it is kept within its bounds, [rows], of output 0 or 1; its weights, [padded]."""
    weight = tl.load(maps_at + output * units + unit, mask=unit < units, other=0.0)
    total = sharpness * (tl.sum(activated * weight[:, None], axis=0) + tl.load(maps_bias_at + output))
    total += tl.load(guess_bias_at + output)
    for plane in tl.static_range(planes):
        number = tl.load(planes_at + cell * planes + plane, mask=is_cell, other=0.0)
        total += number * tl.load(guess_at + output * planes + plane)
    return total, weight


@triton_jit("num_cells")
def _maps_kernel(  # type: ignore[no-untyped-def]
    planes_at, embed_at, embed_bias_at, maps_at, maps_bias_at, guess_at, guess_bias_at, reward_at, passes_at, num_cells,
    planes: tl.constexpr, units: tl.constexpr, padded: tl.constexpr, rows: tl.constexpr,
    slope: tl.constexpr, sharpness: tl.constexpr, bound: tl.constexpr,
):  # fmt: skip
    """Write each cell's reward and share, see `cell_maps`; one program for each block of cells."""
    cell = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    is_cell, unit = cell < num_cells, tl.arange(0, padded)
    hidden = _hidden(planes_at, embed_at, embed_bias_at, cell, is_cell, unit, planes, units, rows, padded)
    activated = tl.where(hidden > 0.0, hidden, slope * hidden)
    for output in tl.static_range(2):
        total, _ = _before_sigmoid(
            activated, planes_at, maps_at, maps_bias_at, guess_at, guess_bias_at, cell, is_cell, unit, output,
            planes, units, sharpness,
        )  # fmt: skip
        share = tl.sigmoid(clamped(total, -bound, bound))
        tl.store((reward_at if output == 0 else passes_at) + cell, share, mask=is_cell)


@triton_jit("num_cells", "chunk")
def _maps_gradient_kernel(  # type: ignore[no-untyped-def]
    planes_at, embed_at, embed_bias_at, maps_at, maps_bias_at, guess_at, guess_bias_at, to_reward_at, to_passes_at,
    partials_at, num_cells, chunk,
    planes: tl.constexpr, units: tl.constexpr, padded: tl.constexpr, rows: tl.constexpr, inputs: tl.constexpr,
    slope: tl.constexpr, sharpness: tl.constexpr, bound: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Write the part of the gradients that `chunk` cells make to a row of partial sums: [planes, units] of the hidden
    layer's weights, [units] of its bias, [2, units] and [2] of the maps."""
    unit, column = tl.arange(0, padded), tl.arange(0, inputs)[None, :]
    begin = tl.program_id(0).to(tl.int64) * chunk
    end = tl.minimum(begin + chunk, num_cells)
    to_embed, to_maps = tl.zeros([padded, inputs], tl.float32), tl.zeros([padded, inputs], tl.float32)
    to_bias = tl.zeros([rows, inputs], tl.float32)
    for start in range(begin, end, rows):
        cell = start + tl.arange(0, rows)
        is_cell = cell < end
        hidden = _hidden(planes_at, embed_at, embed_bias_at, cell, is_cell, unit, planes, units, rows, padded)
        activated = tl.where(hidden > 0.0, hidden, slope * hidden)
        gradient = tl.zeros([padded, rows], tl.float32)
        pulls = tl.zeros([rows, inputs], tl.float32)
        for output in tl.static_range(2):
            total, weight = _before_sigmoid(
                activated, planes_at, maps_at, maps_bias_at, guess_at, guess_bias_at, cell, is_cell, unit, output,
                planes, units, sharpness,
            )  # fmt: skip
            grad = tl.load((to_reward_at if output == 0 else to_passes_at) + cell, mask=is_cell, other=0.0)
            pull = sharpness * _through_sigmoid(total, grad, bound)
            gradient += weight[:, None] * pull[None, :]
            pulls = tl.where(column == output, pull[:, None], pulls)
        gradient = tl.where(hidden > 0.0, gradient, slope * gradient)
        is_number = is_cell[:, None] & (column < planes)
        numbers = tl.load(planes_at + cell[:, None] * planes + column, mask=is_number, other=0.0)
        numbers = tl.where(column == planes, 1.0, numbers)  # the bias is one more column of the weights
        to_embed = tl.dot(gradient, numbers, acc=to_embed, input_precision=precision)
        to_maps = tl.dot(activated, pulls, acc=to_maps, input_precision=precision)
        to_bias += pulls
    partials_at += tl.program_id(0).to(tl.int64) * ((planes + 3) * units + 2)
    unit = unit[:, None]
    tl.store(partials_at + column * units + unit, to_embed, mask=(unit < units) & (column <= planes))
    partials_at += (planes + 1) * units
    tl.store(partials_at + column * units + unit, to_maps, mask=(unit < units) & (column < 2))
    column = tl.arange(0, inputs)
    tl.store(partials_at + 2 * units + column, tl.sum(to_bias, axis=0), mask=column < 2)


@triton_jit()
def _through_sigmoid(total, grad, bound: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient before a sigmoid whose input is kept within bounds: dropped where it would lead farther out."""
    share = tl.sigmoid(clamped(total, -bound, bound))
    return tl.where(leads_out(total, grad, -bound, bound), 0.0, grad * share * (1.0 - share))


# --- the same where planes hold zeros and ones alone
#
# With few planes there are few kinds of cells, 2 to the power of the planes, and all cells of a kind have one reward
# and one share. Programs compute those of the kinds and look up the rest. On the way back they add up the gradients of
# each kind, from which a last program makes those of the weights. Sums are taken in a fixed order, without atomics.


KIND_CELLS, KIND_WARPS = 1024, 4
"""Cells that a program of the forward pass takes, and its warps."""
KIND_GRADIENT_CELLS, KIND_GRADIENT_WARPS = 512, 8
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
        grid = (-(-reward.numel() // KIND_CELLS),)
        _kinds_kernel[grid](
            planes, *weights, reward, passes, reward.numel(), rows=KIND_CELLS, num_warps=KIND_WARPS, **ctx.shape
        )
        return reward, passes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        planes, *weights = ctx.saved_tensors
        to_reward, to_passes = (grad.contiguous() for grad in grads)
        num_cells = to_reward.numel()
        chunk, num_programs = chunks_of(num_cells, KIND_GRADIENT_CELLS, planes.device)
        partials = weights[0].new_empty(num_programs, 2, ctx.shape["kinds"])
        _pulls_kernel[(num_programs,)](
            planes, *weights, to_reward, to_passes, partials, num_cells, chunk,
            rows=KIND_GRADIENT_CELLS, num_warps=KIND_GRADIENT_WARPS, **ctx.shape,
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
