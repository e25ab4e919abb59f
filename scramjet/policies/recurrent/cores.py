"""Memory cores: what a policy carries from one step to the next.

A core stands between a trunk and the heads. It takes the features of T steps of B rows together with each row's state,
one row of numbers; a state of zeros is the beginning of an episode.

Each recurrence stands here in torch's operators, to be read and to run anywhere; on the CPU, compiled steps with the
same results take its place (memory_fused.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from scramjet.policies.config import PolicyConfig
from scramjet.policies.recurrent import kernels
from scramjet.policies.recurrent.autograd import Recurrence


class Core(nn.Module, ABC):
    """The protocol of a core; subclass it to bring your own."""

    num_features: int
    """What comes out for each step."""
    state_size: int
    """Numbers kept for each row between steps."""

    @abstractmethod
    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features [T, B, F] to [T, B, num_features]; the state [B, state_size] before the first step to that after.

        `begins` [T, B] bool: this step is an episode's first, and its row must start from a state of zeros, whatever
        stood there. None: no episode begins here.
        """


def kept(state: Tensor, begins: Tensor | None, t: int) -> Tensor:
    """A state [B, S] with the rows set to zero whose episode begins at step t."""
    return state if begins is None else state.masked_fill(begins[t].unsqueeze(1), 0.0)


def lstm(
    features: Tensor, state: Tensor, begins: Tensor | None,
    input_weight: Tensor, bias: Tensor, recurrent_weight: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000).

    Features [T, B, F] to [T, B, H]; state [B, 2H]: what was put out last, then the cells. Weights of the gates in the
    order of input, forget, candidate, output: [F, 4H], [4H] and [H, 4H].
    """
    hidden, cell = state.chunk(2, dim=1)
    gates, outputs = features @ input_weight + bias, []
    for t in range(len(features)):
        hidden, cell = kept(hidden, begins, t), kept(cell, begins, t)
        i, f, g, o = (gates[t] + hidden @ recurrent_weight).chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs), torch.cat([hidden, cell], dim=1)


def gru(
    features: Tensor, state: Tensor, begins: Tensor | None,
    input_weight: Tensor, bias: Tensor, recurrent_weight: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gated recurrent unit (Cho et al. 2014), in the form of cuDNN: the reset gate acts after the product.

    Features [T, B, F] to [T, B, H]; state [B, H]. Four blocks of gates: what the candidate recalls of the state, reset,
    keep, candidate. The features act on the last three, [F, 3H], the state on the first three, [H, 3H]; bias [4H].
    """
    size = state.shape[1]
    gates, outputs = features @ input_weight + bias[size:], []
    for t in range(len(features)):
        state = kept(state, begins, t)
        recurrent = state @ recurrent_weight
        r, z = (gates[t, :, : 2 * size] + recurrent[:, size:]).sigmoid().chunk(2, dim=1)
        candidate = (gates[t, :, 2 * size :] + r * (recurrent[:, :size] + bias[:size])).tanh()
        state = (1 - z) * candidate + z * state
        outputs.append(state)
    return torch.stack(outputs), state


def mingru(
    features: Tensor, state: Tensor, begins: Tensor | None, input_weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Minimal gated recurrent unit (Feng et al. 2024, "Were RNNs all we needed?", section 3.1).

    Features [T, B, F] to [T, B, H]; state [B, H]. Weights in the order of update gate, candidate: [F, 2H] and [2H].
    """
    z, candidate = (features @ input_weight + bias).chunk(2, dim=2)
    z, outputs = z.sigmoid(), []
    for t in range(len(features)):
        state = (1 - z[t]) * kept(state, begins, t) + z[t] * candidate[t]
        outputs.append(state)
    return torch.stack(outputs), state


class Gates(NamedTuple):
    """How many blocks of gates a recurrence has, and on how many features and state act."""

    all: int
    of_features: int
    of_state: int


class Layer(nn.Module):
    """The weights of one layer. A row for each input, a column for each gate: so products of few rows are faster."""

    def __init__(self, num_inputs: int, size: int, gates: Gates) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.zeros(num_inputs, gates.of_features * size))
        self.bias = nn.Parameter(torch.zeros(gates.all * size))
        if gates.of_state:
            self.recurrent_weight = nn.Parameter(torch.zeros(size, gates.of_state * size))
        for name, parameter in self.named_parameters():
            for gate in parameter.split(size, dim=1) if name.endswith("weight") else ():
                nn.init.orthogonal_(gate)

    def weights(self) -> tuple[Tensor, ...]:
        """In the order that the recurrence takes them."""
        return tuple(self._parameters.values())  # type: ignore[arg-type]  # none is None; rollouts ask for them often


class LayeredCore(Core):
    """Layers of one recurrence, each on top of the other; a row's state is theirs side by side."""

    recurrence: ClassVar[Recurrence]
    gates: ClassVar[Gates]
    states_per_unit: ClassVar[int] = 1

    def __init__(self, num_inputs: int, size: int, layers: int = 1) -> None:
        super().__init__()
        widths = [num_inputs] + [size] * (layers - 1)
        modules = nn.ModuleList([Layer(width, size, self.gates) for width in widths])
        self.layers = cast("Sequence[Layer]", modules)
        self.num_features = size
        self.layer_state_size = self.states_per_unit * size
        self.state_size = self.layer_state_size * layers

    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.state_size == self.layer_state_size:
            return self.recurrence.run(features, state, begins, self.layers[0].weights())
        after = []
        for layer, own in zip(self.layers, state.split(self.layer_state_size, dim=1), strict=True):
            features, own = self.recurrence.run(features, own, begins, layer.weights())
            after.append(own)
        return features, torch.cat(after, dim=1)

    def set_biases(self, gate: int, value: float) -> None:
        """Give one gate of every layer its first bias."""
        for layer in self.layers:
            nn.init.constant_(layer.bias.chunk(self.gates.all)[gate], value)


class LSTM(LayeredCore):
    """Long short-term memory; the forget gate is open at first (Jozefowicz et al. 2015)."""

    recurrence = Recurrence(lstm, kernels.LSTM)
    gates, states_per_unit = Gates(4, 4, 4), 2

    def __init__(self, num_inputs: int, size: int, layers: int = 1) -> None:
        super().__init__(num_inputs, size, layers)
        self.set_biases(1, 1.0)


class GRU(LayeredCore):
    """Gated recurrent unit; it keeps more than it takes at first."""

    recurrence = Recurrence(gru, kernels.GRU)
    gates = Gates(4, 3, 3)

    def __init__(self, num_inputs: int, size: int, layers: int = 1) -> None:
        super().__init__(num_inputs, size, layers)
        self.set_biases(2, 1.0)


class MinGRU(LayeredCore):
    """Minimal gated recurrent unit, whose gates see the features only; it keeps more than it takes at first."""

    recurrence = Recurrence(mingru, kernels.MINGRU)
    gates = Gates(2, 2, 0)

    def __init__(self, num_inputs: int, size: int, layers: int = 1) -> None:
        super().__init__(num_inputs, size, layers)
        self.set_biases(0, -1.0)


def make_core(num_inputs: int, config: PolicyConfig) -> Core | None:
    """The core a config asks for; None: no memory."""
    if config.memory is None:
        return None
    return {"lstm": LSTM, "gru": GRU, "mingru": MinGRU}[config.memory](
        num_inputs, config.memory_size, config.memory_layers
    )
