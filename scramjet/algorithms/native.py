"""PPO of small networks on the CPU without torch's operators: acting, valuing and gradients over a network's own
weights, by compiled functions (native_kernels.py).

Networks: one or two towers of tanh or ReLU layers, each with a memory core or none; choices or normal numbers. Inputs
are float32 [B, D]: whatever stands before the first layer has no weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.algorithms import native_kernels as kernels
from scramjet.engine.machine import NativeFunction, Task
from scramjet.policies import memory_kernels
from scramjet.policies.memory import GRU, LSTM, LayeredCore, MinGRU
from scramjet.policies.memory_fused import core_numbers, gru_gradients, gru_weights

BLOCK = 128
"""Rows that a thread takes at a time; with memory sequences, as many as memory does."""
ROWS_PER_PART = 32
"""At least so many rows of a forward pass for a thread: fewer take less time than to wake it."""
SAMPLES_PER_PART = 64
"""At least so many samples of a minibatch for a thread."""
ACTIVATIONS: dict[type, int] = {nn.Tanh: kernels.TANH, nn.ReLU: kernels.RELU}
CORES: dict[type, memory_kernels.Sequences] = {
    LSTM: memory_kernels.LSTM,
    GRU: memory_kernels.GRU,
    MinGRU: memory_kernels.MINGRU,
}


@dataclass(frozen=True, slots=True)
class Head:
    """Some columns of the outputs, from the features; without a weight the bias itself."""

    weight: Tensor | None  # [outputs, features]
    bias: Tensor  # [outputs]
    place: int  # the first column


@dataclass(frozen=True, slots=True)
class Tower:
    """Layers, a core or none, heads."""

    layers: Sequence[tuple[nn.Linear, nn.Module]]  # each with its activation
    core: LayeredCore | None
    heads: Sequence[Head]


class ActStep(NamedTuple):
    """What acting reads and writes in one step."""

    inputs: Tensor  # [B, D] float32
    mask: Tensor | None  # [B, A] bool, legal actions
    noise: Tensor  # [B] or [B, components], what actions are drawn with
    action: Tensor  # [B, ...]
    log_prob: Tensor  # [B]
    value: Tensor | None  # [B]; None: not asked for, and towers that only value do not run


class _Core:
    """A core's weights as the kernels take them, kept alive here: numbers hold their addresses only."""

    def __init__(self, module: LayeredCore, gradient: int) -> None:
        self.module = module
        self.gradient = gradient
        self.numbers = np.zeros(memory_kernels.NUM_COLUMNS, np.int64)
        self.fetch()

    def fetch(self) -> None:
        """Take in what the weights have become."""
        weight, bias, *others = (tensor.detach() for tensor in self.module.layers[0].weights())
        if isinstance(self.module, GRU):
            weight, bias, state_weight = gru_weights(weight, bias, *others)
        else:
            state_weight = others[0] if others else weight.new_empty(self.module.num_features, 0)
        back = weight.t().contiguous(), state_weight.t().contiguous()
        self._kept = (weight, bias, state_weight, *back)
        self.numbers[:] = core_numbers(weight, bias, state_weight, self.module.state_size, back)

    @property
    def shapes(self) -> list[torch.Size]:
        """Of the features' weight, the bias and the state's weight."""
        return [tensor.shape for tensor in self._kept[:3]]

    def take(self, grads: Tensor) -> None:
        """Hand gradients [all of the network's] to the module's parameters."""
        sizes = [shape.numel() for shape in self.shapes]
        own = grads[self.gradient : self.gradient + sum(sizes)].split(sizes)
        found: Sequence[Tensor] = [part.view(shape) for part, shape in zip(own, self.shapes, strict=True)]
        if isinstance(self.module, GRU):
            found = gru_gradients(*found)
        for parameter, gradient in zip(self.module.layers[0].weights(), found, strict=False):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(gradient)


class NativeNetwork:
    """A network's forward, PPO's loss and backward, over its own weights."""

    def __init__(
        self,
        towers: Sequence[Tower],
        encode: Callable[[Any], Tensor],
        *,
        num_inputs: int,
        num_components: int,
        offsets: Tensor | None,
    ) -> None:
        """`encode` makes inputs of observations. `num_inputs` of the distribution and its `num_components`; `offsets`
        of each component's logits, or None for normal numbers.

        The first tower has the policy's heads; the last head of the last tower is the value, column `num_inputs`.
        """
        self.encode = encode
        self.num_outputs = num_inputs + 1
        self.has_memory = any(tower.core is not None for tower in towers)
        self.is_shared = len(towers) == 1
        self._pairs: list[tuple[int, Tensor | None, Tensor]] = []  # layer, weight, bias
        self._cores: list[_Core] = []
        self._offsets = None if offsets is None else offsets.numpy()
        self._task = Task(kernels.WORK)
        self._number(towers)
        self._task.set(
            num_towers=len(towers), num_outputs=self.num_outputs, num_components=num_components,
            offsets=self._offsets, num_weights=self._num_weights, num_inputs=self._layers[0, kernels.INPUTS],
            state_size=sum(core.module.state_size for core in self._cores),
            widest=self._layers[:, [kernels.INPUTS, kernels.OUTPUTS]].max(),
            layer=kernels.layer.address, head=kernels.head.address,
            draw=(kernels.draw_choices if offsets is not None else kernels.draw_points).address,
        )  # fmt: skip
        self._scratch = np.zeros(0, np.float32)

    def _number(self, towers: Sequence[Tower]) -> None:
        """Put the network into numbers."""
        layers: list[list[int]] = []
        rows: list[list[int]] = []
        gradient = state_place = 0
        for tower in towers:
            first, place, core = len(layers), 0, [0] * 7
            for linear, activation in tower.layers:
                outputs, inputs = linear.weight.shape
                self._pairs.append((len(layers), linear.weight, linear.bias))
                layers.append([0, 0, inputs, outputs, ACTIVATIONS[type(activation)], gradient, place])
                gradient, place = gradient + outputs * (inputs + 1), place + outputs
            first_head, width = len(layers), place
            if tower.core is not None:
                made, kind = _Core(tower.core, gradient), CORES[type(tower.core)]
                self._cores.append(made)
                size, num_gates, states = (
                    int(made.numbers[column])
                    for column in (memory_kernels.SIZE, memory_kernels.NUM_GATES, memory_kernels.STATE_SIZE)
                )
                addresses = [made.numbers.ctypes.data, kind.forward.address, kind.backward.address]
                core = [*addresses, size, states, gradient, state_place]
                width += size + memory_kernels.width_kept(size, num_gates, states) + 2 * states
                gradient += sum(shape.numel() for shape in made.shapes)
                state_place += states
            for head in tower.heads:
                inputs = 0 if head.weight is None else head.weight.shape[1]
                self._pairs.append((len(layers), head.weight, head.bias))
                layers.append([0, 0, inputs, len(head.bias), kernels.NOTHING, gradient, head.place])
                gradient += len(head.bias) * (inputs + 1)
            rows.append([first, first_head, len(layers), place, width, *core])
        self._layers, self._num_weights = np.array(layers, np.int64), gradient
        self._width = sum(row[kernels.WIDTH] for row in rows)
        self._task.set(layers=self._layers, towers=np.array(rows, np.int64))

    def refresh(self) -> None:
        """Look where the weights are and what they have become; before acting with them."""
        for index, weight, bias in self._pairs:
            self._layers[index, kernels.BIAS] = bias.data_ptr()
            if weight is not None:
                self._layers[index, kernels.WEIGHT] = weight.data_ptr()
        for core in self._cores:
            core.fetch()

    def acts(self, steps: Sequence[ActStep], state: Tensor | None) -> list[Callable[[], None]]:
        """Functions that act in each of these steps, with addresses looked up once: call `refresh` before.

        Each draws actions and writes their log-probabilities; with memory `state` [B, state_size] is brought up to
        date. Tensors must be contiguous, and are kept alive.
        """
        num_rows = len(steps[0].inputs)
        num_parts = self._num_parts(num_rows, ROWS_PER_PART)
        scratch = np.zeros((num_parts, self._scratch_size(min(num_rows, BLOCK))), np.float32)
        self._task.set(scratch=scratch, scratch_size=scratch.shape[1], block=BLOCK, num_taken=num_rows)
        self._task.set(state=_array(state))
        functions: list[Callable[[], None]] = []
        for step, task in zip(steps, self._task.copies(len(steps)), strict=True):
            task.set(**{name: _array(getattr(step, name)) for name in ActStep._fields})
            functions.append(partial(_run, kernels.act_in_part, num_parts, task))
        return functions

    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        """Write `value` [B] of observations and, with memory, states [B, state_size]."""
        inputs = self.encode(obs)
        num_parts = self._num_parts(len(inputs), ROWS_PER_PART)
        self._give_scratch(num_parts, BLOCK)
        self._task.set(inputs=_array(inputs), state=_array(state), value=_array(value), num_taken=len(inputs))
        self._task.set(block=BLOCK)
        kernels.value_in_part.in_parts(num_parts, self._task.address)

    def use_samples(
        self, *, obs: Any, mask: Tensor | None, action: Tensor, log_prob: Tensor, value: Tensor,
        advantage: Tensor, returns: Tensor, state: Tensor | None, begins: Tensor | None,
    ) -> None:  # fmt: skip
        """What minibatches are taken from; with memory time-major, [T * U, ...], from states [U, state_size]."""
        steps = 1 if begins is None else len(begins)
        self._task.set(
            inputs=_array(self.encode(obs)), mask=_array(mask), action=_array(action), log_prob=_array(log_prob),
            value=_array(value), advantage=_array(advantage), returns=_array(returns), state=_array(state),
            begins=_array(begins), steps=steps, num_units=len(action) // steps, layer_back=kernels.layer_back.address,
            head_back=kernels.head_back.address,
            loss=(kernels.loss_of_points if self._offsets is None else kernels.loss_of_choices).address,
        )  # fmt: skip

    def gradients(
        self, units: Tensor, *, normalizes: bool, clip: float, entropy_coef: float, value_clip: float | None,
        value_coef: float, max_norm: float | None,
    ) -> list[float]:  # fmt: skip
        """Give all weights the gradient of `ppo_loss` over the samples, or sequences, `units`, of a norm of at most
        `max_norm`. Returns the terms of the loss, as `ppo.DIAGNOSTICS` has them, and the norm it had."""
        self.refresh()
        task, record = self._task, self._task.record
        steps = int(record["steps"])
        num_samples, block = steps * len(units), BLOCK if not self.has_memory else memory_kernels.ROWS_PER_BLOCK
        num_parts = min(self._num_parts(num_samples, SAMPLES_PER_PART), len(units))
        self._give_scratch(num_parts, block * steps)
        partials, terms = (
            np.empty((num_parts, self._num_weights), np.float32),
            np.empty((num_parts, len(kernels.TERMS))),
        )
        task.set(
            units=_array(units), num_taken=len(units), block=block, partials=partials, terms=terms, clip=clip,
            entropy_coef=entropy_coef, value_clip=math.inf if value_clip is None else value_clip,
            value_coef=value_coef, max_norm=math.inf if max_norm is None else max_norm, advantage_mean=0.0,
            advantage_scale=1.0,
        )  # fmt: skip
        if normalizes:
            kernels.normalize_advantages(task.address)
        kernels.gradients_of_part.in_parts(num_parts, task.address)
        kernels.add_parts(num_parts, task.address)
        self._give(torch.from_numpy(partials[0]))
        return [*(terms.sum(0) / num_samples).tolist(), float(record["norm"])]

    def _give(self, grads: Tensor) -> None:
        """Let parameters' gradients be parts of `grads`."""
        for index, weight, bias in self._pairs:
            inputs, outputs, at = self._layers[index, [kernels.INPUTS, kernels.OUTPUTS, kernels.GRADIENT]].tolist()
            if weight is not None:
                weight.grad = grads[at : at + inputs * outputs].view(outputs, inputs)
            bias.grad = grads[at + inputs * outputs : at + (inputs + 1) * outputs]
        for core in self._cores:
            core.take(grads)

    def _num_parts(self, rows: int, least: int) -> int:
        """In how many parts so many rows are done, of at least so many each."""
        return max(1, min(torch.get_num_threads(), rows // least))

    def _scratch_size(self, rows: int) -> int:
        """Numbers that a part needs for so many rows of all steps."""
        record = self._task.record
        inputs, widest, states = (int(record[name]) for name in ("num_inputs", "widest", "state_size"))
        return rows * (inputs + 2 * self.num_outputs + 2 * widest + states + 1 + self._width)

    def _give_scratch(self, num_parts: int, rows: int) -> None:
        size = self._scratch_size(rows)
        if self._scratch.size < num_parts * size:
            self._scratch = np.zeros(num_parts * size, np.float32)
        self._task.set(scratch=self._scratch, scratch_size=size)


def _run(function: NativeFunction, num_parts: int, task: Task) -> None:
    function.in_parts(num_parts, task.address)


def _array(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else tensor.contiguous().numpy()
