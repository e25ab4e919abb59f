"""One convolution and its gradients, by the kernels of `kernels.py`: which blocks they take, and their launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scramjet.policies.encoders.convolutions import kernels, weight_kernels
from scramjet.policies.encoders.convolutions.blocks import (
    REDUCE_COLUMNS,
    REDUCE_ROWS,
    gradient_blocks,
    product_blocks,
)


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
        weight_kernels.weight_gradient_kernel[grid](
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
        weight_kernels.reduce_kernel[(-(-partials.shape[1] // REDUCE_COLUMNS),)](
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
