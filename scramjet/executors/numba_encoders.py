"""Encoders with weights that compiled functions run: `GridCNN` (convolutions.py) and `ValuePropagation` (planning.py).

Such an encoder is a table of numbers that its functions read. `inputs_of` makes the rows that they take from
observations, with torch's operators; that part has no weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.compile.addresses import BOARDS, OUTPUTS, AddressedFunction
from scramjet.executors.supports import ENCODERS, no_numba_encoder, why_not
from scramjet.kernels.cpu import convolutions, planning
from scramjet.policies.encoders.grids import GridCNN, GridPlanes, ResidualBlock
from scramjet.policies.encoders.value_propagation import ValuePropagation

MOST_BYTES = 2 << 20
"""Most bytes of the activations of BOARDS boards: what does not fit into a core's cache, torch's operators learn as
fast."""


class CompiledEncoder(ABC):
    """What compiled functions need to know of an encoder: its weights, sizes and functions."""

    forward: ClassVar[AddressedFunction]
    backward: ClassVar[AddressedFunction]
    pack: ClassVar[AddressedFunction | None] = None
    """Called with the address of the table whenever weights have changed."""

    numbers: np.ndarray
    """The table, int64; it stays where it is."""
    num_inputs: int
    """Floats of a row of its inputs."""
    num_features: int
    width: int
    """Floats that its functions keep for each row, besides the features."""
    scratch: int = 0
    """Floats that its backward pass needs whatever the number of rows."""
    parameters: list[Tensor]
    """Its weights, in the order of their gradients."""
    turned: np.ndarray | None = None
    """The weight of the layer after it, transposed by `pack`, [inputs, outputs]; None if that is not transposed."""

    @abstractmethod
    def place_gradients(self, start: int) -> None:
        """Say where the gradient of its first parameter begins among all gradients."""

    @abstractmethod
    def point_to_weights(self) -> None:
        """Look up the addresses of the weights, which may have moved."""

    def refresh(self) -> None:
        """Look up the weights and pack them; call it whenever torch has changed them."""
        self.point_to_weights()
        if self.pack is not None:
            self.pack(self.numbers.ctypes.data)


class CompiledConvolutions(CompiledEncoder):
    """The convolutions of a `GridCNN`."""

    forward, backward = convolutions.convolutions, convolutions.convolutions_back
    pack = convolutions.pack_convolutions

    def __init__(self, encoder: GridCNN, following: nn.Linear) -> None:
        planes = encoder.planes
        cells = planes.height * planes.width
        channel = cells + (cells % 8 == 0)  # channels 4 KB apart would push each other out of the cache
        self.num_inputs, self.num_features = planes.num_planes * cells + planes.num_rest, encoder.num_features
        self._layers, self._following = list(_convolutions(encoder.layers)), following
        self.turned = np.zeros((following.in_features, following.out_features), np.float32)
        self.parameters = [weight for layer, _ in self._layers for weight in (layer.weight, _bias(layer))]
        rows, group, widest = self._rows(planes.num_planes, channel)
        sizes = [
            len(rows), planes.height, planes.width, channel, planes.num_planes, int(encoder.pools),
            encoder.num_features - planes.num_rest, planes.num_rest, group, widest,
            0, self.turned.ctypes.data, following.out_features,
        ]  # fmt: skip
        self.numbers = np.array([*sizes, *(number for row in rows for number in row)], np.int64)
        self.width, self.scratch = group // BOARDS, 3 * widest
        self._table = self.numbers[convolutions.NUM_SIZES :].reshape(-1, convolutions.NUM_COLUMNS)
        self._keep_packed()

    def _rows(self, num_planes: int, channel: int) -> tuple[list[list[int]], int, int]:
        """The table of convolutions without addresses, and the floats of a group's and of the widest activations."""
        size = BOARDS * channel
        source, result, widest = 0, size * _padded(num_planes), size * _padded(num_planes)
        rows: list[list[int]] = []
        for layer, closes_block in self._layers:
            added = rows[-1][convolutions.SOURCE] if closes_block else -1
            rows.append([0, 0, layer.in_channels, layer.out_channels, source, result, added, 0, 0, 0, 0])
            floats = size * _padded(layer.out_channels)
            source, result, widest = result, result + floats, max(widest, floats)
        return rows, result, widest

    def _keep_packed(self) -> None:
        """Make room for packed weights; what pads them stays 0."""
        self._packed = []
        for row, (layer, _) in zip(self._table, self._layers, strict=True):
            inputs, outputs = layer.in_channels, layer.out_channels
            sizes = (9 * inputs * _padded(outputs), 9 * outputs * _padded(inputs), _padded(outputs))
            buffers = [np.zeros(size, np.float32) for size in sizes]
            self._packed += buffers
            row[[convolutions.FORTH, convolutions.BACK, convolutions.PADDED_BIAS]] = [
                buffer.ctypes.data for buffer in buffers
            ]

    def place_gradients(self, start: int) -> None:
        for row, (layer, _) in zip(self._table, self._layers, strict=True):
            row[convolutions.GRADIENT] = start
            start += layer.weight.numel() + layer.out_channels

    def point_to_weights(self) -> None:
        self.numbers[convolutions.FOLLOWING] = self._following.weight.data_ptr()
        for row, (layer, _) in zip(self._table, self._layers, strict=True):
            row[convolutions.WEIGHT], row[convolutions.BIAS] = layer.weight.data_ptr(), _bias(layer).data_ptr()


class CompiledPlanning(CompiledEncoder):
    """The planning of a `ValuePropagation`."""

    forward, backward = planning.plan, planning.plan_back

    def __init__(self, encoder: ValuePropagation) -> None:
        self._encoder = encoder
        planes = encoder.planes
        cells = planes.height * planes.width
        self.num_inputs, self.num_features = planes.num_planes * cells + 1 + planes.num_rest, encoder.num_features
        self.width = planning.NUM_KEPT * cells
        self.parameters = [encoder.embed.weight, _bias(encoder.embed), encoder.maps.weight, _bias(encoder.maps)]
        self.numbers = np.zeros(planning.NUM_NUMBERS, np.int64)
        self.numbers[planning.HEIGHT : planning.GRADIENT] = [
            planes.height, planes.width, planes.num_planes, encoder.embed.out_channels, planes.num_rest,
            encoder.max_sweeps,
        ]  # fmt: skip

    def place_gradients(self, start: int) -> None:
        self.numbers[planning.GRADIENT] = start

    def point_to_weights(self) -> None:
        tensors = (*self.parameters, self._encoder.guess, self._encoder.bias)
        self.numbers[: len(tensors)] = [tensor.data_ptr() for tensor in tensors]


def compiled_encoder(encoder: nn.Module, following: nn.Linear) -> CompiledEncoder | str:
    """The functions for an encoder with weights before the layer `following`; or the reason why there are none."""
    if reason := why_not("numba", encoder, ENCODERS):
        return reason
    planes, no_functions = getattr(encoder, "planes", None), no_numba_encoder(type(encoder).__name__)
    if not isinstance(planes, GridPlanes) or any(True for _ in planes.parameters()):
        return no_functions
    if type(encoder) is ValuePropagation:
        is_plain = all(_is_plain(layer, 1) for layer in (encoder.embed, encoder.maps))
        return CompiledPlanning(encoder) if is_plain else no_functions
    if type(encoder) is not GridCNN:
        return no_functions
    if not _has_known_layers(encoder.layers):
        return "compiled functions run boards through 3x3 convolutions with ReLU, then residual blocks"
    found = CompiledConvolutions(encoder, following)
    num_bytes = 4 * BOARDS * found.width
    if num_bytes > MOST_BYTES:
        return f"torch's operators are as fast with boards of so many channels ({num_bytes >> 20} MB for {BOARDS})"
    return found


def inputs_of(encoder: nn.Module, obs: Any) -> Tensor:
    """The inputs [B, num_inputs] that a compiled encoder takes: planes, where the agent is, and other features."""
    planes: Any = encoder.planes
    parts = [planes(obs).flatten(1)]
    if isinstance(encoder, ValuePropagation):
        parts.append(encoder.corner(obs).unsqueeze(1).float())
    if planes.rest is not None:
        parts.append(planes.rest(obs))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _convolutions(layers: nn.Sequential) -> Sequence[tuple[nn.Conv2d, bool]]:
    """All convolutions in order, each with whether it closes a residual block."""
    found: list[tuple[nn.Conv2d, bool]] = []
    for module in layers:
        if isinstance(module, ResidualBlock):
            found += [(module.first, False), (module.second, True)]
        elif isinstance(module, nn.Conv2d):
            found.append((module, False))
    return found


def _has_known_layers(layers: nn.Sequential) -> bool:
    """Whether these are the layers that `GridCNN` makes: a user may have changed some."""
    modules = list(layers)
    num_blocks = sum(type(module) is ResidualBlock for module in modules)
    plain, blocks = modules[: len(modules) - num_blocks], modules[len(modules) - num_blocks :]
    kinds_fit = all(type(block) is ResidualBlock for block in blocks) and len(plain) % 2 == 0
    inner = [layer for block in blocks if isinstance(block, ResidualBlock) for layer in (block.first, block.second)]
    convolutions_fit = all(_is_plain(layer, 3) for layer in (*plain[::2], *inner))
    return kinds_fit and convolutions_fit and all(type(layer) is nn.ReLU for layer in plain[1::2])


def _is_plain(layer: nn.Module, size: int) -> bool:
    """Whether a layer is a convolution of this size that keeps every cell in its place."""
    return (
        type(layer) is nn.Conv2d
        and layer.bias is not None
        and layer.kernel_size == (size, size)
        and layer.padding == (size // 2, size // 2)
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
    )


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias


def _padded(channels: int) -> int:
    return -(-channels // OUTPUTS) * OUTPUTS
