"""The tables of numbers by which compiled functions know a network: its towers, layers, and where its weights are.

Columns are those of towers.py. Compiled functions hold the tables' addresses, so a table is written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from scramjet.accelerate.numba import towers as layers
from scramjet.policies.recurrent import kernels as memory_kernels
from scramjet.policies.recurrent.autograd import CoreNumbers
from scramjet.policies.recurrent.cores import GRU, LSTM, LayeredCore, MinGRU

if TYPE_CHECKING:
    from scramjet.accelerate.numba.encoders import CompiledEncoder

ACTIVATIONS: dict[type, int] = {nn.Tanh: layers.TANH, nn.ReLU: layers.RELU}
CORES: dict[type, memory_kernels.Sequences] = {
    LSTM: memory_kernels.LSTM,
    GRU: memory_kernels.GRU,
    MinGRU: memory_kernels.MINGRU,
}


@dataclass(frozen=True, slots=True)
class Head:
    """Computes some columns of the outputs from a tower's features; without a weight they are the bias."""

    weight: Tensor | None  # [outputs, features]
    bias: Tensor  # [outputs]
    place: int  # the first of its columns in the outputs


@dataclass(frozen=True, slots=True)
class Tower:
    """One part of a network: possibly an encoder, hidden layers, possibly a recurrent core, then heads."""

    layers: Sequence[tuple[nn.Linear, nn.Module]]  # linear layers, each with its activation
    core: LayeredCore | None
    heads: Sequence[Head]
    encoder: CompiledEncoder | None = None

    @property
    def num_inputs(self) -> int:
        """Columns of the inputs that it takes."""
        return self.layers[0][0].in_features if self.encoder is None else self.encoder.num_inputs


class NetworkTables:
    """A network in numbers."""

    def __init__(self, towers: Sequence[Tower], num_inputs: int) -> None:
        """`num_inputs`: columns of the inputs, of which each tower takes the first so many."""
        self.num_inputs = num_inputs
        self.num_weights = 0
        self.places: list[tuple[Tensor, int]] = []
        """Each parameter, and where its gradient begins among all."""
        self.encoders: list[CompiledEncoder] = []
        """One for each tower, or none at all."""
        self._rows: list[list[int]] = []
        self._layers_of: list[tuple[int, Tensor | None, Tensor]] = []  # layer, weight, bias
        self._cores: list[tuple[LayeredCore, CoreNumbers]] = []
        rows = [self._add_tower(tower) for tower in towers]
        self.layers = np.array(self._rows, np.int64)
        self.towers = np.array(rows, np.int64)
        self.width = sum(row[layers.WIDTH] for row in rows)
        """Floats that the towers keep of a row for the backward pass."""
        self.widest = int(self.layers[:, [layers.INPUTS, layers.OUTPUTS]].max())
        self.state_size = sum(core.state_size for core, _ in self._cores)

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, in the order of their gradients."""
        return [parameter for parameter, _ in self.places]

    def refresh(self) -> None:
        """Look up the addresses of all weights, which may have moved."""
        for index, weight, bias in self._layers_of:
            self.layers[index, layers.BIAS] = bias.data_ptr()
            if weight is not None:
                self.layers[index, layers.WEIGHT] = weight.data_ptr()
        for core, numbers in self._cores:
            numbers.point_to(core.layers[0].weights())
        for encoder in self.encoders:
            encoder.refresh()

    def learns(self) -> None:
        """Have the encoders' backward passes compiled."""
        for row, encoder in zip(self.towers, self.encoders, strict=False):  # all towers have one, or none
            row[layers.ENCODER_BACKWARD] = encoder.backward.address

    def _add_tower(self, tower: Tower) -> list[int]:
        """Add a tower; returns its row."""
        first, place, core, encoder = len(self._rows), 0, [0] * 7, [0] * 7
        if tower.encoder is not None:
            encoder = self._add_encoder(tower.encoder)
        for linear, activation in tower.layers:
            reads_inputs = place == 0 and tower.encoder is None
            stride = self.num_inputs if reads_inputs else linear.in_features
            self._add_layer(linear.weight, linear.bias, ACTIVATIONS[type(activation)], place, stride)
            place += len(linear.bias)
        if tower.encoder is not None and tower.encoder.turned is not None:
            self._rows[first][layers.TURNED] = tower.encoder.turned.ctypes.data
        first_head, width = len(self._rows), place
        if tower.core is not None:
            core, core_width = self._add_core(tower.core)
            width += core_width
        for head in tower.heads:
            stride = 0 if head.weight is None else head.weight.shape[1]
            self._add_layer(head.weight, head.bias, layers.NOTHING, head.place, stride)
        return [first, first_head, len(self._rows), place, width, *core, *encoder]

    def _add_layer(self, weight: Tensor | None, bias: Tensor, activation: int, place: int, stride: int) -> None:
        outputs, inputs = len(bias), 0 if weight is None else weight.shape[1]
        self._layers_of.append((len(self._rows), weight, bias))
        self._rows.append([0, 0, inputs, outputs, activation, self.num_weights, place, stride, 0])
        for parameter in (bias,) if weight is None else (weight, bias):
            self._add_weights(parameter)

    def _add_encoder(self, encoder: CompiledEncoder) -> list[int]:
        """Add an encoder; returns its columns in the table of towers."""
        self.encoders.append(encoder)
        encoder.place_gradients(self.num_weights)
        for parameter in encoder.parameters:
            self._add_weights(parameter)
        pack = 0 if encoder.pack is None else encoder.pack.address
        functions = encoder.forward.address, 0, pack  # the backward pass is compiled when something is to be learned
        sizes = encoder.num_features, encoder.width, encoder.scratch
        return [encoder.numbers.ctypes.data, *functions, *sizes]

    def _add_core(self, core: LayeredCore) -> tuple[list[int], int]:
        """Add a recurrent core; returns its columns in the table of towers and the number of floats it keeps a row."""
        kind, states = CORES[type(core)], core.state_size
        state_place = sum(before.state_size for before, _ in self._cores)
        made = CoreNumbers(core.layers[0].weights(), states)
        self._cores.append((core, made))
        addresses = [made.numbers.ctypes.data, kind.forward.address, kind.backward.address]
        columns = [*addresses, made.size, states, self.num_weights, state_place]
        for parameter in core.layers[0].weights():
            self._add_weights(parameter)
        return columns, made.size + made.width_kept + 2 * states

    def _add_weights(self, parameter: Tensor) -> None:
        self.places.append((parameter, self.num_weights))
        self.num_weights += parameter.numel()
