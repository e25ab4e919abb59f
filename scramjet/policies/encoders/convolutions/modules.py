"""Torch's convolutions run as one tower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from scramjet.policies.encoders.convolutions.layers import Layer
from scramjet.policies.encoders.convolutions.tower import convolve


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
