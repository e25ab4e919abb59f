"""Convolutions with ReLU on the GPU: launches of `convolution_kernels.py`, how they divide their work, and towers of
convolutions as one operation of autograd. A layer whose kernel does not fit on the GPU goes through torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from scramjet.kernels.gpu import convolution_kernels as kernels
from scramjet.kernels.gpu.language import product_precision, product_size


@dataclass(frozen=True)
class Layer:
    """A square convolution, followed by ReLU, from boards [B, height, width, channels] to [B, ..., outputs]."""

    channels: int
    height: int
    width: int
    outputs: int
    size: int
    stride: int = 1
    padding: int = 0
    divisor: float = 1.0  # of the source's numbers: 255 for pixels
    source_is_channels_first: bool = False  # in memory
    out_is_channels_first: bool = False
    added: int | None = None  # the number of an earlier board that is added before the ReLU; 0 is the first source

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height + 2 * self.padding - self.size) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return (self.width + 2 * self.padding - self.size) // self.stride + 1

    @property
    def entries(self) -> int:
        """Length of the summed axis: taps times channels."""
        return self.size**2 * self.channels

    @property
    def _shape(self) -> dict[str, Any]:
        names = ("channels", "height", "width", "outputs", "out_height", "out_width", "size", "stride", "padding")
        return {name: getattr(self, name) for name in names}

    @property
    def _layout(self) -> dict[str, Any]:
        names = ("source_is_channels_first", "out_is_channels_first", "divisor", "by_rows")
        return {name: getattr(self, name) for name in names}

    @property
    def by_rows(self) -> bool:
        """Whether all that a row of the kernel meets lies side by side in memory."""
        return self.padding == 0 and not self.source_is_channels_first

    def forward(self, source: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None, precision: str) -> Tensor:
        """The rectified convolution of boards [G, B, ...] of G networks, whose weights are [G, outputs, channels, size,
        size] and biases [G, outputs]: [G, B, out_height * out_width * outputs]."""
        groups, num_boards = source.shape[:2]
        cells = self.out_height * self.out_width
        out = source.new_empty(groups, num_boards, cells * self.outputs, dtype=storage(precision))
        ordered = weight.permute(0, 1, 3, 4, 2).contiguous()
        self._convolve(as_numbers(source), ordered, bias, added, None, out, precision, rectifies=True, turns=False)
        return out

    def _convolve(
        self, source: Tensor, weight: Tensor, bias: Tensor | None, added: Tensor | None, mask: Tensor | None,
        out: Tensor, precision: str, *, rectifies: bool, turns: bool,
    ) -> None:  # fmt: skip
        """Launch the kernel; `source` and `out` have an axis for networks and one for boards."""
        groups, num_boards = source.shape[:2]
        by_rows = self.by_rows and not turns  # rows of turned weights do not lie side by side
        num_rows, taps = num_boards * self.out_height * self.out_width, self.size ** (1 if by_rows else 2)
        blocks = product_blocks(
            num_rows * groups, self.outputs, taps, self.entries // taps, precision,
            is_padded=self.padding > 0, is_back=turns,
        )  # fmt: skip
        grid = (-(-num_rows // blocks.rows), -(-self.outputs // blocks.outputs), groups)
        kernels.convolution_kernel[grid](
            source, weight, bias, added, mask, out, num_boards,
            rectifies=rectifies, turns=turns, precision=precision,
            block_rows=blocks.rows, block_outputs=blocks.outputs, block_sum=blocks.entries, unrolls=blocks.unrolls,
            num_warps=blocks.warps, num_stages=blocks.stages, **self._shape, **(self._layout | {"by_rows": by_rows}),
        )  # fmt: skip

    def source_gradient(
        self, gradient: Tensor, weight: Tensor, added: Tensor | None, mask: Tensor, precision: str
    ) -> Tensor:
        """The gradient of the source [B, height * width * channels], from the result's before the ReLU, channels last;
        `added` to it, and 0 where the source, `mask`, is not above 0."""
        out = torch.empty_like(mask)
        ordered = weight.permute(1, 2, 3, 0).contiguous()
        if self.stride == 1 and self.padding < self.size:
            back = Layer(
                self.outputs, self.out_height, self.out_width, self.channels, self.size,
                padding=self.size - 1 - self.padding,
            )  # fmt: skip
            back._convolve(
                gradient.unsqueeze(0), ordered, None, added, mask, out.unsqueeze(0), precision,
                rectifies=False, turns=True,
            )  # fmt: skip
            return out
        num_boards = len(gradient)
        rows = -(-self.height // self.stride) * -(-self.width // self.stride)
        blocks = product_blocks(
            num_boards * rows * self.stride**2, self.channels, -(-self.size // self.stride) ** 2, self.outputs,
            precision, is_padded=False, is_back=True,
        )  # fmt: skip
        grid = (-(-num_boards * rows // blocks.rows), -(-self.channels // blocks.outputs), self.stride**2)
        kernels.source_gradient_kernel[grid](
            gradient, ordered, added, mask, out, num_boards,
            precision=precision, block_rows=blocks.rows, block_channels=blocks.outputs, block_sum=blocks.entries,
            num_warps=blocks.warps, num_stages=blocks.stages, **self._shape,
        )  # fmt: skip
        return out

    def weight_gradient(
        self, source: Tensor, weight: Tensor, gradient: Tensor, result: Tensor | None, precision: str, *, keeps: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of weights and bias, and that of the result before the ReLU, channels last.

        With `result`, `gradient` is that after the ReLU, in the order of the result; the one before it is written only
        if asked to (`keeps`). Without, `gradient` is the one before it already, and is returned.
        """
        masked = torch.empty_like(result) if result is not None and keeps else None
        # A gradient that is rectified here costs two reads for each column that it is moved to.
        shifts = self.size if self.stride == 1 and 2 * self.padding < self.size and result is None else 1
        num_rows = len(source) * self.out_height * (self.width if shifts > 1 else self.out_width)
        taps = self.size if self.by_rows or shifts > 1 else self.size**2
        blocks = gradient_blocks(num_rows, self.outputs, taps, self.entries // shifts // taps, shifts, source.device)
        grid = (-(-num_rows // blocks.chunk), *blocks.groups)
        partials = source.new_empty(grid[0], (self.entries + 1) * self.outputs, dtype=torch.float32)
        kernels.weight_gradient_kernel[grid](
            as_numbers(source), gradient, result, masked, partials, len(source), blocks.chunk,
            precision=precision, block_rows=blocks.rows, block_outputs=blocks.outputs, block_sum=blocks.entries,
            blocks=blocks.number, shifts=shifts, num_stages=1, num_warps=blocks.warps,
            **self._shape, **self._layout,
        )  # fmt: skip
        return *self._reduced(partials, weight), gradient if masked is None else masked

    def _reduced(self, partials: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weights, in their order in memory, and bias from the rows of `weight_gradient`."""
        is_channels_last = weight.is_contiguous(memory_format=torch.channels_last)
        order = torch.channels_last if is_channels_last else torch.contiguous_format
        to_weight = torch.empty_like(weight, memory_format=order)
        bias = partials.new_empty(self.outputs)
        kernels.reduce_kernel[(-(-partials.shape[1] // REDUCE_COLUMNS),)](
            partials, to_weight, bias, len(partials), self.channels, self.size**2, self.outputs,
            is_channels_first=not is_channels_last, rows=REDUCE_ROWS, columns=REDUCE_COLUMNS,
        )  # fmt: skip
        return to_weight, bias


def storage(precision: str) -> torch.dtype:
    """In which numbers boards are kept between layers."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def as_numbers(source: Tensor) -> Tensor:
    """Truth values as bytes: kernels read whole numbers and floats."""
    return source.view(torch.uint8) if source.dtype == torch.bool else source


# --- how kernels divide their work: all that can be tuned


Blocks = TypeVar("Blocks")


class ProductBlocks(NamedTuple):
    """What one program that convolves, forward or back, does at a time."""

    rows: int  # cells of the result; half as many in float32, whose products are no work for tensor cores
    entries: int  # most of the summed axis (tap, channel)
    warps: int
    stages: int  # blocks whose loads are under way at once, where the summed axis is gone through in a loop


class GradientBlocks(NamedTuple):
    """What one program of the weights' gradient does at a time."""

    rows: int  # cells
    entries: int  # most of the source's side in one product; 64 would go to tensor cores by writes that conflict
    warps: int
    sums: int  # most of the gradient's numbers that a thread adds up
    programs: int  # of a multiprocessor


CONVOLUTION = {
    16: ProductBlocks(rows=128, entries=32, warps=4, stages=3),
    64: ProductBlocks(rows=128, entries=32, warps=4, stages=4),
    128: ProductBlocks(rows=128, entries=32, warps=8, stages=4),
}
"""By the least number of channels that a program makes."""
SMALL_GRID = 264
"""Where there would be fewer programs than this, each takes half as many cells; so it does for images, which are few:
one kernel less to compile."""
LARGE_GRID = 8 * 264
"""From so many programs on, loops over padded boards load through the cache, where taps find what others loaded; with
stages, loads go around it."""
MOST_ROWS_BACK = 64
"""Most cells of a program that convolves back, to the gradient of the source."""
MOST_OUTPUTS = 128
"""Most channels of the result that one program makes; with more, several programs read the same cells."""
MOST_UNROLLED = 9 * 32
"""Longest summed axis of a padded convolution whose steps are all known when it is compiled; else it takes a loop."""
GRADIENT = {
    16: GradientBlocks(rows=16, entries=16, warps=1, sums=144, programs=10),
    32: GradientBlocks(rows=32, entries=32, warps=2, sums=144, programs=4),
    64: GradientBlocks(rows=16, entries=32, warps=4, sums=64, programs=3),
}
"""By the least number of channels of the result."""
INTERPRETED_PROGRAMS = 3
"""Programs of the weights' gradient in Triton's interpreter, in all."""
REDUCE_ROWS, REDUCE_COLUMNS = 128, 16
"""Rows of partial sums that a program of the reduction adds at a time, and columns that it adds them for."""


class Product(NamedTuple):
    """The blocks of a convolution of a certain size."""

    rows: int
    outputs: int
    entries: int
    unrolls: bool
    warps: int
    stages: int


def product_blocks(
    num_rows: int, outputs: int, taps: int, depth: int, precision: str, *, is_padded: bool, is_back: bool
) -> Product:
    """Blocks of a product of `num_rows` rows with `outputs` columns that sums up `taps` of `depth` numbers."""
    columns = _columns(outputs, MOST_OUTPUTS)
    blocks = _from(CONVOLUTION, columns)
    most = MOST_ROWS_BACK if is_back and is_padded else blocks.rows
    rows = most // 2 if precision == "float32" else most
    rows = rows if is_padded and num_rows >= rows * SMALL_GRID else rows // 2
    unrolls = is_padded and taps * depth <= MOST_UNROLLED
    stages = 1 if is_padded and num_rows >= rows * LARGE_GRID else blocks.stages
    return Product(rows, columns, _entries(taps, depth, blocks.entries), unrolls, blocks.warps, stages)


class Gradient(NamedTuple):
    """The blocks of a gradient of weights of a certain size."""

    rows: int
    outputs: int
    entries: int
    number: int  # of blocks of entries that a program adds up
    groups: tuple[int, int]  # of such blocks, and of outputs
    chunk: int  # rows that a program goes through
    warps: int


def gradient_blocks(num_rows: int, outputs: int, taps: int, depth: int, shifts: int, device: torch.device) -> Gradient:
    """Blocks of the gradient of weights whose source is moved to `taps` of `depth` numbers, and result to `shifts`."""
    columns = _columns(outputs, max(GRADIENT))
    blocks = _from(GRADIENT, columns)
    entries = _entries(taps, depth, blocks.entries)
    number = -(-taps * depth // entries)
    most = max(1, blocks.sums * 32 * blocks.warps // (entries * columns * shifts))
    count = -(-number // -(-number // most))
    groups = -(-number // count), -(-outputs // columns)
    programs = max(1, _num_programs(device, blocks.programs) // (groups[0] * groups[1]))
    chunk = max(1, -(-num_rows // (programs * blocks.rows))) * blocks.rows
    return Gradient(blocks.rows, columns, entries, count, groups, chunk, blocks.warps)


def _columns(channels: int, most: int) -> int:
    """Columns of a product that makes so many channels; no product is narrower than 16."""
    return min(most, product_size(channels))


def _entries(taps: int, depth: int, most: int) -> int:
    """Entries of a block: such that it lies within a tap if that can be."""
    for entries in (most, most // 2, most // 4):
        if entries >= 16 and depth % entries == 0:
            return entries
    return min(most, 32, product_size(taps * depth))


def _from(table: dict[int, Blocks], channels: int) -> Blocks:
    return table[max(least for least in table if least <= channels)]


@cache
def _num_programs(device: torch.device, per_multiprocessor: int) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return per_multiprocessor * torch.cuda.get_device_properties(device).multi_processor_count


# --- layers by kernels or, if one does not fit on the GPU, by torch's operators


_too_large: set[tuple[str, Layer]] = set()
"""Methods and layers whose kernel did not fit: it is not tried again, since a graph of the GPU may be recorded."""


def layer_forward(
    layer: Layer, source: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None, precision: str
) -> Tensor:
    """See `Layer.forward`."""

    def by_torch() -> Tensor:
        results = []
        for i in range(len(source)):
            planes = _as_planes(source[i], layer.channels, layer.height, layer.width, layer.source_is_channels_first)
            made = functional.conv2d(planes.float() / layer.divisor, weight[i], bias[i], layer.stride, layer.padding)
            if added is not None:
                made = made + _as_planes(added[i], layer.outputs, layer.out_height, layer.out_width, False)
            results.append(torch.relu(made if layer.out_is_channels_first else made.permute(0, 2, 3, 1)).flatten(1))
        return torch.stack(results).to(storage(precision))

    return _by_kernel_or_torch(
        "forward", layer, lambda: layer.forward(source, weight, bias, added, precision), by_torch
    )


def layer_source_gradient(
    layer: Layer, gradient: Tensor, weight: Tensor, added: Tensor | None, mask: Tensor, precision: str
) -> Tensor:
    """See `Layer.source_gradient`."""

    def by_torch() -> Tensor:
        planes = _as_planes(mask, layer.channels, layer.height, layer.width, False).float()
        to_planes, _, _ = _layer_backward(layer, gradient, False, planes, weight, (True, False, False))
        out = to_planes.permute(0, 2, 3, 1).flatten(1)
        return torch.where(mask > 0, out if added is None else out + added, 0.0).to(mask.dtype)

    return _by_kernel_or_torch(
        "source_gradient", layer, lambda: layer.source_gradient(gradient, weight, added, mask, precision), by_torch
    )


def layer_weight_gradient(
    layer: Layer,
    source: Tensor,
    weight: Tensor,
    gradient: Tensor,
    result: Tensor | None,
    precision: str,
    *,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `Layer.weight_gradient`."""

    def by_torch() -> tuple[Tensor, Tensor, Tensor]:
        before, channels_first = gradient, result is not None and layer.out_is_channels_first
        if result is not None:
            before = torch.where(result > 0, gradient, 0.0)
        planes = _as_planes(source, layer.channels, layer.height, layer.width, layer.source_is_channels_first)
        planes = planes.float() / layer.divisor
        _, to_weight, to_bias = _layer_backward(layer, before, channels_first, planes, weight, (False, True, True))
        if channels_first:
            before = before.view(len(source), layer.outputs, -1).transpose(1, 2).flatten(1)
        return to_weight, to_bias, before

    return _by_kernel_or_torch(
        "weight_gradient",
        layer,
        lambda: layer.weight_gradient(source, weight, gradient, result, precision, keeps=keeps),
        by_torch,
    )


def _by_kernel_or_torch(name: str, layer: Layer, by_kernel: Callable[[], Any], by_torch: Callable[[], Any]) -> Any:
    """What the kernel gives or, from the first time on that it does not fit, torch's operators."""
    from triton.runtime.errors import OutOfResources

    if (name, layer) not in _too_large:
        try:
            return by_kernel()
        except OutOfResources as error:
            if not _too_large:
                warnings.warn(
                    f"a convolution from {layer.channels} to {layer.outputs} channels does not fit on this GPU "
                    f"({error}); torch's operators do it, slower",
                    RuntimeWarning,
                    stacklevel=2,
                )
            _too_large.add((name, layer))
    return by_torch()


def _as_planes(boards: Tensor, channels: int, height: int, width: int, channels_first: bool) -> Tensor:
    """Boards as [B, channels, height, width]."""
    if channels_first:
        return boards.reshape(-1, channels, height, width)
    return boards.reshape(-1, height, width, channels).permute(0, 3, 1, 2)


def _layer_backward(
    layer: Layer, gradient: Tensor, channels_first: bool, planes: Tensor, weight: Tensor, wanted: tuple[bool, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of planes, weights and bias that are wanted, float32."""
    gradient = _as_planes(gradient, layer.outputs, layer.out_height, layer.out_width, channels_first).float()
    step, padding = [layer.stride] * 2, [layer.padding] * 2
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        gradient, planes, weight, [layer.outputs], step, padding, [1, 1], False, [0, 0], 1, wanted
    )
    return found


# --- a tower of convolutions on the GPU, each followed by ReLU, as one operation of autograd
#
# Boards stay channels last between layers, and are rectified, masked and added up where they are computed. Gradients
# are autograd's up to rounding, and the same inputs give the same bits. Weights are those of `nn.Conv2d`.


def convolve(layers: Sequence[Layer], source: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The result of the last layer, [B, outputs * height * width] in its order, of observations [B, ...].

    The source has no gradient. Under `torch.vmap` all networks are done at once.
    """
    results = _Tower.apply(tuple(layers), product_precision(), source.contiguous(), *weights, *biases)
    last: Tensor = results[-1]
    return last


class _Tower(torch.autograd.Function):
    """Takes layers, precision, source, and their weights and biases; gives the results of all layers."""

    @staticmethod
    def forward(layers: tuple[Layer, ...], precision: str, source: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        results = _run(layers, precision, source.unsqueeze(0), [tensor.unsqueeze(0) for tensor in parameters])
        return tuple(result.squeeze(0) for result in results)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        layers, precision, source, *parameters = inputs
        ctx.layers, ctx.precision = layers, precision
        ctx.save_for_backward(source, *output, *parameters[: len(layers)])
        ctx.mark_non_differentiable(*output[:-1])
        ctx.set_materialize_grads(False)  # or zeros would be written for the others

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        layers: tuple[Layer, ...] = ctx.layers
        saved = ctx.saved_tensors
        boards, weights = saved[: len(layers) + 1], saved[len(layers) + 1 :]
        to_weights, to_biases = _gradients(layers, ctx.precision, boards, weights, grads[-1].contiguous())
        return None, None, None, *to_weights, *to_biases

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], layers: tuple[Layer, ...], precision: str, *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Several networks, each with boards and weights of its own; without gradients."""
        stacked = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims[2:], strict=True)
        ]
        source, *parameters = (tensor.contiguous() for tensor in stacked)
        return tuple(_run(layers, precision, source, parameters)), (0,) * len(layers)


def _run(layers: tuple[Layer, ...], precision: str, source: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The results of all layers; everything has a first axis for networks."""
    boards = [source]
    for i, layer in enumerate(layers):
        weight, bias = parameters[i], parameters[len(layers) + i]
        added = None if layer.added is None else boards[layer.added]
        boards.append(layer_forward(layer, boards[-1], weight, bias.contiguous(), added, precision))
    return boards[1:]


def _gradients(
    layers: tuple[Layer, ...], precision: str, boards: Sequence[Tensor], weights: Sequence[Tensor], gradient: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients of weights and biases; `boards` are the source and the results, `gradient` is the last one's."""
    to_weights: list[Tensor] = []
    to_biases: list[Tensor] = []
    result: Tensor | None = boards[-1]
    to_boards: dict[int, Tensor] = {}  # gradients that go to earlier boards past the convolutions between
    for i in range(len(layers) - 1, -1, -1):
        layer = layers[i]
        keeps = i > 0 or layer.added is not None
        to_weight, to_bias, before = layer_weight_gradient(
            layer, boards[i], weights[i], gradient, result, precision, keeps=keeps
        )
        to_weights.insert(0, to_weight)
        to_biases.insert(0, to_bias)
        if layer.added is not None:
            to_boards[layer.added] = before
        if i > 0:
            gradient, result = (
                layer_source_gradient(layer, before, weights[i], to_boards.get(i), boards[i], precision),
                None,
            )
    return to_weights, to_biases


# --- torch's convolutions run as one tower


class Source(NamedTuple):
    """Boards as they lie in memory: [B, height, width, channels] or, channels first, [B, channels, height, width]."""

    boards: Tensor
    height: int
    width: int
    channels_first: bool = False
    divisor: float = 1.0  # of their numbers


def convolve_modules(source: Source, convolutions: Sequence[tuple[nn.Conv2d, bool]]) -> Tensor:
    """Features [B, outputs * height * width], channels first, of square convolutions with a ReLU after each.

    With each convolution comes whether the board before the last two is added to its result, before the ReLU.
    """
    height, width = source.height, source.width
    layers: list[Layer] = []
    for i, (module, adds) in enumerate(convolutions):
        layer = Layer(
            module.in_channels, height, width, module.out_channels,
            module.kernel_size[0], module.stride[0], int(module.padding[0]),
            divisor=1.0 if i else source.divisor,
            source_is_channels_first=source.channels_first and i == 0,
            out_is_channels_first=i == len(convolutions) - 1,
            added=i - 1 if adds else None,
        )  # fmt: skip
        height, width = layer.out_height, layer.out_width
        layers.append(layer)
    weights, biases = [], []
    for module, _ in convolutions:
        assert module.bias is not None
        weights.append(module.weight)
        biases.append(module.bias)
    return convolve(layers, source.boards, weights, biases)
