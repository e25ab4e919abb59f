"""Recurrent cores: LSTM, GRU and MinGRU, and how networks run them.

A core stands between a network's trunk and its heads. It takes the features of T steps of B rows together with each
row's state, one row of numbers; a state of zeros is the beginning of an episode.

The functions `lstm`, `gru` and `mingru` are the recurrences in torch's operators, to be read and to run on any device.
Compiled kernels with the same results up to rounding take their place, on the CPU and on a GPU: see
`Recurrence`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn

from scramjet.errors import ConfigError
from scramjet.kernels.operations import Recurrence
from scramjet.policies.config import PolicyConfig
from scramjet.policies.layers import fill_orthogonal


class Core(nn.Module, ABC):
    """What networks need of a recurrent core; subclass it to write your own."""

    num_features: int
    """Numbers in the output of each step."""
    state_size: int
    """Numbers in a row's state, which is carried from step to step."""

    @abstractmethod
    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features [T, B, F] to [T, B, num_features]; the state [B, state_size] before the first step to that after.

        `begins` [T, B] bool is set where a step is an episode's first: the row must start from a state of zeros there,
        whatever the state was. None: no episode begins in these steps.
        """


def reset_begun(state: Tensor, begins: Tensor | None, t: int) -> Tensor:
    """A state [B, S] with those rows set to zero whose episode begins at step t."""
    return state if begins is None else state.masked_fill(begins[t].unsqueeze(1), 0.0)


def lstm(
    features: Tensor, state: Tensor, begins: Tensor | None,
    input_weight: Tensor, bias: Tensor, recurrent_weight: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000).

    Features [T, B, F] to [T, B, H]; state [B, 2H]: the last output, then the cells. Weights of the gates in the order
    of input, forget, candidate, output: [F, 4H], [4H] and [H, 4H].
    """
    hidden, cell = state.chunk(2, dim=1)
    gates, outputs = features @ input_weight + bias, []
    for t in range(len(features)):
        hidden, cell = reset_begun(hidden, begins, t), reset_begun(cell, begins, t)
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
        state = reset_begun(state, begins, t)
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
        state = (1 - z[t]) * reset_begun(state, begins, t) + z[t] * candidate[t]
        outputs.append(state)
    return torch.stack(outputs), state


class Gates(NamedTuple):
    """How many blocks of gates a recurrence has, and on how many features and state act."""

    all: int
    of_features: int
    of_state: int


class Layer(nn.Module):
    """The weights of one layer: a row for each input, a column for each gate, as products of few rows are faster so."""

    def __init__(self, num_inputs: int, size: int, gates: Gates) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.zeros(num_inputs, gates.of_features * size))
        self.bias = nn.Parameter(torch.zeros(gates.all * size))
        if gates.of_state:
            self.recurrent_weight = nn.Parameter(torch.zeros(size, gates.of_state * size))
        for name, parameter in self.named_parameters():
            for gate in parameter.split(size, dim=1) if name.endswith("weight") else ():
                fill_orthogonal(gate)

    def weights(self) -> tuple[Tensor, ...]:
        """Input weight, bias and, where there is one, recurrent weight: as the recurrence takes them."""
        return tuple(self._parameters.values())  # type: ignore[arg-type]  # none is None; rollouts ask for them often


class LayeredCore(Core):
    """Layers of one recurrence, each on the outputs of the one before; a row's state holds theirs side by side."""

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
        """Set the bias of gate number `gate` in every layer."""
        for layer in self.layers:
            nn.init.constant_(layer.bias.chunk(self.gates.all)[gate], value)


class LSTM(LayeredCore):
    """Long short-term memory; the forget gate is open at first (Jozefowicz et al. 2015)."""

    recurrence = Recurrence(lstm, "lstm")
    gates, states_per_unit = Gates(4, 4, 4), 2

    def __init__(self, num_inputs: int, size: int, layers: int = 1) -> None:
        super().__init__(num_inputs, size, layers)
        self.set_biases(1, 1.0)


class GRU(LayeredCore):
    """Gated recurrent unit; its first bias lets it keep more of the state than it replaces."""

    recurrence = Recurrence(gru, "gru")
    gates = Gates(4, 3, 3)

    def __init__(self, num_inputs: int, size: int, layers: int = 1) -> None:
        super().__init__(num_inputs, size, layers)
        self.set_biases(2, 1.0)


class MinGRU(LayeredCore):
    """Minimal gated recurrent unit, whose gates see the features only; at first it keeps more than it replaces."""

    recurrence = Recurrence(mingru, "mingru")
    gates = Gates(2, 2, 0)

    def __init__(self, num_inputs: int, size: int, layers: int = 1) -> None:
        super().__init__(num_inputs, size, layers)
        self.set_biases(0, -1.0)


def make_core(num_inputs: int, config: PolicyConfig) -> Core | None:
    """The core that a config asks for; None where it asks for none."""
    if config.memory is None:
        return None
    return {"lstm": LSTM, "gru": GRU, "mingru": MinGRU}[config.memory](
        num_inputs, config.memory_size, config.memory_layers
    )


CoreMaker: TypeAlias = Callable[[int, PolicyConfig], Core | None]
"""Makes a core from a number of features and the config; None for a network without one."""


def check_core(core: Core | None) -> Core | None:
    """The core that a user's function made; refuses one without `num_features` or `state_size`."""
    if core is None:
        return None
    for name in ("num_features", "state_size"):
        count = getattr(core, name, None)
        if not callable(core) or not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ConfigError(
                f"the memory core {type(core).__name__} has {name}={count!r}; a core is a module with num_features and "
                f"state_size, whole numbers of at least 1, and forward(features, state, begins) -> (features, state)"
            )
    return core


def run_core(core: Core, features: Tensor, state: Tensor | None, begins: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run a core over features [T * rows, F], time-major, from a state [rows, S].

    Returns its outputs [T * rows, num_features] and the state after the last step [rows, S]. Without a state, every row
    of features is the first step of an episode.
    """
    if state is None:
        state = features.new_zeros(len(features), core.state_size)
    after, state = core(features.unflatten(0, (-1, len(state))), state, begins)
    return after.flatten(0, 1), state


def state_size(*cores: Core | None) -> int:
    """Numbers in the states of all these cores together, for each row; 0 without cores."""
    return sum(core.state_size for core in cores if core is not None)


def split_state(state: Tensor | None, *cores: Core | None) -> list[Tensor | None]:
    """The state of each core, [rows, its state_size], out of a state [rows, S] that holds them side by side."""
    if state is None:
        return [None for _ in cores]
    return list(state.split([state_size(core) for core in cores], dim=1))
