"""One convolution and its gradients, by the kernels of `kernels.py`: which blocks they take, and their launches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from scramjet.policies.encoders.convolutions import kernels

BLOCK_ROWS = {"float32": 64, "tf32": 128, "bfloat16": 128}
"""By precision: cells of a program that convolves, forward or back."""
SMALL_GRID = 264
"""Where there would be fewer programs than this, each takes half as many cells."""
BLOCK_SUM = 32
"""Entries of the summed axis (tap, channel) that a program multiplies at a time; all of one tap where channels are a
multiple of 16."""
MOST_OUTPUTS = 128
"""Most channels of the result that one program makes; with more, several programs read the same cells."""
WARPS_FROM = {16: 4, 64: 4, 128: 8}
"""Warps of a program that makes at least so many channels."""
GRADIENT_ROWS = {"float32": 32, "tf32": 64, "bfloat16": 64}
"""By precision: cells that a program of the weights' gradient takes at a time."""
GRADIENT_BLOCK = 64
"""Most entries of the summed axis in one product of the weights' gradient; tensor cores are fastest from 64 on."""
GRADIENT_SUMS = 16384
"""Most numbers of the weights' gradient that one program adds up; they stay in its registers."""
GRADIENT_WARPS_FROM = {0: 4, 12288: 8}
"""Warps of such a program that adds up at least so many."""
GRADIENT_STAGES = 1
"""With 1, loads go through the cache, where neighbouring taps find what others loaded; with more, around it."""
PROGRAMS_PER_MULTIPROCESSOR = 2
"""Programs of the weights' gradient, each with a row of partial sums."""
INTERPRETED_PROGRAMS = 3
"""The same in Triton's interpreter, in all."""
REDUCE_ROWS, REDUCE_COLUMNS = 64, 32
"""Rows of partial sums that a program of the reduction adds at a time, and columns that it adds them for."""


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
        out = source.new_empty(groups, num_boards, cells * self.outputs, dtype=_storage(precision))
        block_outputs = _block(self.outputs)
        block_rows = _block_rows(num_boards * cells * groups, precision)
        grid = (-(-num_boards * cells // block_rows), -(-self.outputs // block_outputs), groups)
        kernels.convolution_kernel[grid](
            as_numbers(source), weight.permute(0, 1, 3, 4, 2).contiguous(), bias, added, None, out, num_boards,
            rectifies=True, precision=precision, block_rows=block_rows, block_outputs=block_outputs,
            block_sum=_block_sum(self.channels * (self.size if self.by_rows else 1)),
            num_warps=_warps(WARPS_FROM, block_outputs), **self._shape, **self._layout,
        )  # fmt: skip
        return out

    def source_gradient(
        self, gradient: Tensor, weight: Tensor, added: Tensor | None, mask: Tensor, precision: str
    ) -> Tensor:
        """The gradient of the source [B, height * width * channels], from the result's before the ReLU, channels last;
        `added` to it, and 0 where the source, `mask`, is not above 0."""
        num_boards = len(gradient)
        out = torch.empty_like(mask)
        rows = -(-self.height // self.stride) * -(-self.width // self.stride)
        block_rows, block_channels = _block_rows(num_boards * rows * self.stride**2, precision), _block(self.channels)
        grid = (-(-num_boards * rows // block_rows), -(-self.channels // block_channels), self.stride**2)
        kernels.source_gradient_kernel[grid](
            gradient, weight.permute(1, 2, 3, 0).contiguous(), added, mask, out, num_boards,
            precision=precision, block_rows=block_rows, block_channels=block_channels,
            block_sum=_block_sum(self.outputs), num_warps=_warps(WARPS_FROM, block_channels), **self._shape,
        )  # fmt: skip
        return out

    def weight_gradient(
        self, source: Tensor, gradient: Tensor, result: Tensor | None, precision: str, *, keeps: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of weights and bias, and that of the result before the ReLU, channels last.

        With `result`, `gradient` is that after the ReLU, in the order of the result; the one before it is written only
        if asked to (`keeps`). Without, `gradient` is the one before it already, and is returned.
        """
        num_rows, masked = len(source) * self.out_height * self.out_width, gradient
        if result is not None and keeps:
            masked = torch.empty_like(result)
        block_rows, block_outputs = GRADIENT_ROWS[precision], _block(self.outputs)
        block_sum, blocks = _sums_of_a_program(self.entries, block_outputs)
        groups = -(-self.entries // (blocks * block_sum)), -(-self.outputs // block_outputs)
        most = max(1, _num_programs(source.device) // (groups[0] * groups[1]))
        chunk = max(1, -(-num_rows // (most * block_rows))) * block_rows
        grid = (-(-num_rows // chunk), *groups)
        partials = source.new_empty(grid[0], (self.entries + 1) * self.outputs, dtype=torch.float32)
        kernels.weight_gradient_kernel[grid](
            as_numbers(source), gradient, result, masked if result is not None and keeps else None, partials,
            len(source), chunk, precision=precision, block_rows=block_rows, block_outputs=block_outputs,
            block_sum=block_sum, blocks=blocks, num_stages=GRADIENT_STAGES,
            num_warps=_warps(GRADIENT_WARPS_FROM, block_sum * blocks * block_outputs),
            **self._shape, **self._layout,
        )  # fmt: skip
        return *self._reduced(partials), masked

    def _reduced(self, partials: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weights and bias from the rows of `weight_gradient`."""
        weight = partials.new_empty(self.outputs, self.channels, self.size, self.size)
        bias = partials.new_empty(self.outputs)
        kernels.reduce_kernel[(-(-partials.shape[1] // REDUCE_COLUMNS),)](
            partials, weight, bias, len(partials), channels=self.channels, taps=self.size**2, outputs=self.outputs,
            rows=REDUCE_ROWS, columns=REDUCE_COLUMNS,
        )  # fmt: skip
        return weight, bias


def _storage(precision: str) -> torch.dtype:
    """In which numbers boards are kept between layers."""
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def as_numbers(source: Tensor) -> Tensor:
    """Truth values as bytes: kernels read whole numbers and floats."""
    return source.view(torch.uint8) if source.dtype == torch.bool else source


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _block(channels: int) -> int:
    """Columns of a product that makes so many channels; no product is narrower than 16."""
    return max(16, min(MOST_OUTPUTS, power_of_two(channels)))


def _block_rows(num_rows: int, precision: str) -> int:
    most = BLOCK_ROWS[precision]
    return most if num_rows >= most * SMALL_GRID else most // 2


def _block_sum(channels: int) -> int:
    return 16 if channels % 32 == 16 else BLOCK_SUM


def _warps(table: dict[int, int], numbers: int) -> int:
    return max(warps for least, warps in table.items() if least <= numbers)


def _sums_of_a_program(entries: int, block_outputs: int) -> tuple[int, int]:
    """Rows of a block of the weights' gradient, and how many such blocks one program adds up."""
    rows = max(16, min(GRADIENT_BLOCK, power_of_two(entries)))
    most = max(1, GRADIENT_SUMS // (rows * block_outputs))
    blocks = -(-entries // rows)
    return rows, -(-blocks // -(-blocks // most))


@cache
def _num_programs(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return PROGRAMS_PER_MULTIPROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count
