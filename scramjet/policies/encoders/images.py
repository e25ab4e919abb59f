"""Convolutional encoders of images.

An image is a Box with three axes, one of them channels: the smaller of the first and the last (the first, where they
are equal). Pixels are uint8 and are divided by 255 here, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from scramjet.errors import ConfigError
from scramjet.kernels.operations import are_convolutions, takes_kernels
from scramjet.policies.config import PolicyConfig
from scramjet.policies.encoders.vectors import Encoder, pixel_divisor
from scramjet.policies.layers import convolution

NATURE_SMALLEST = 36
"""The shortest side that survives the three strided convolutions of `NatureCNN`."""
IMPALA_SMALLEST = 8
"""The shortest side that `ImpalaCNN` can halve three times."""


@dataclass(frozen=True)
class ImageLayout:
    """Where an image's axes are, and how its numbers become floats."""

    channels: int
    height: int
    width: int
    is_channels_last: bool
    divisor: float

    @classmethod
    def of(cls, space: Box) -> ImageLayout:
        """The layout of a Box with three axes. If two neighbouring axes are equal, the other one is channels; else the
        smaller of the first and the last."""
        first, middle, last = space.shape
        is_square = middle == last or first == middle
        if middle == last if is_square else first <= last:
            return cls(first, middle, last, False, pixel_divisor(space))
        return cls(last, first, middle, True, pixel_divisor(space))

    def planes_first(self, obs: Tensor) -> Tensor:
        """Images as [B, channels, height, width], in their own number type."""
        return obs.permute(0, 3, 1, 2) if self.is_channels_last else obs

    def planes(self, obs: Tensor) -> Tensor:
        """Images as float32 [B, channels, height, width]; on the GPU channels last in memory, as its
        convolutions are fastest.

        Weights keep their order, in which checkpoints hold them: a convolution follows the order of its input.
        """
        planes = self.planes_first(obs)
        order = torch.channels_last if planes.is_cuda else torch.preserve_format
        floats = planes.to(torch.float32, memory_format=order)
        return floats if planes.dtype == torch.float32 else floats.div_(self.divisor)


def is_image(space: object) -> bool:
    """Whether a space has the three axes of an image."""
    return isinstance(space, Box) and len(space.shape) == 3


class ImageEncoder(Encoder):
    """Convolutions over an image; the features are the flattened output of the last one."""

    def __init__(self, layout: ImageLayout, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layout = layout
        self.layers = nn.Sequential(*layers)
        with torch.no_grad():
            tried = self.layers(torch.zeros(1, layout.channels, layout.height, layout.width))
        self.num_features = tried.numel()

    def forward(self, obs: Tensor) -> Tensor:
        """[B, *image] to [B, F]."""
        features: Tensor = self.layers(self.layout.planes(obs))
        return features.flatten(1)


class NatureCNN(ImageEncoder):
    """The three convolutions of Mnih et al. 2015; their 512 units are `--policy.hidden 512`."""

    def __init__(self, space: Box, config: PolicyConfig) -> None:
        layout = ImageLayout.of(space)
        check_size(layout, NATURE_SMALLEST, "nature_cnn")
        relu = nn.ReLU
        super().__init__(
            layout,
            [
                convolution(layout.channels, 32, 8, stride=4), relu(),
                convolution(32, 64, 4, stride=2), relu(),
                convolution(64, 64, 3), relu(),
            ],
        )  # fmt: skip

    def forward(self, obs: Tensor) -> Tensor:
        """[B, *image] to [B, F]; on the GPU pixels are read as they are."""
        if not (takes_kernels(obs) and are_convolutions(self.layers)) or obs.requires_grad:
            return super().forward(obs)
        from scramjet.kernels.gpu.convolutions import Source, convolve_modules

        layout = self.layout
        divisor = 1.0 if obs.dtype == torch.float32 else layout.divisor
        source = Source(obs, layout.height, layout.width, not layout.is_channels_last, divisor)
        return convolve_modules(source, [(layer, False) for layer in self.layers if isinstance(layer, nn.Conv2d)])


class ImpalaCNN(ImageEncoder):
    """The residual network of Espeholt et al. 2018; their 256 units are `--policy.hidden 256`."""

    def __init__(self, space: Box, config: PolicyConfig) -> None:
        layout = ImageLayout.of(space)
        check_size(layout, IMPALA_SMALLEST, "impala_cnn")
        layers: list[nn.Module] = []
        inputs = layout.channels
        for channels in (16 * config.impala_width, 32 * config.impala_width, 32 * config.impala_width):
            layers += [convolution(inputs, channels, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [Residual(channels), Residual(channels)]
            inputs = channels
        super().__init__(layout, [*layers, nn.ReLU()])


class Residual(nn.Module):
    """Two convolutions with a residual connection around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = convolution(channels, channels, 3, padding=1)
        self.second = convolution(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to the same."""
        inner: Tensor = self.second(torch.relu(self.first(torch.relu(x))))
        return x + inner


def check_size(layout: ImageLayout, smallest: int, encoder: str) -> None:
    """Refuse an image that a network's strides would shrink to nothing."""
    if min(layout.height, layout.width) < smallest:
        raise ConfigError(
            f"policy.encoder='{encoder}' needs images of at least {smallest}x{smallest}, and this one is "
            f"{layout.height}x{layout.width} with {layout.channels} channels; use --policy.encoder grid_cnn"
        )
