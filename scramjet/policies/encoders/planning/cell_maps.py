"""Triton kernels before the planning of `value_propagation`: each cell's reward and share.

A cell's planes go through one hidden layer to two numbers without leaving the chip, forward and back; only gradients of
weights are written. Sums are taken in a fixed order, without atomics. Names that end in `_at` are pointers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.compile.block_sizes import blocks_of, product_size
from scramjet.compile.triton import HAS_TRITON, product_precision, triton_jit
from scramjet.compile.triton_functions import clamped, leads_out

if HAS_TRITON:
    import triton.language as tl

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
