"""PPO of small networks on the CPU without torch's operators: acting, valuing and gradients over a network's own
weights, by compiled functions (towers.py, kernels.py).

Networks: one or two towers of tanh or ReLU layers, each with a memory core or none; choices or normal numbers. Inputs
are float32 [B, D]: whatever stands before the first layer has no weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.accelerate.executor import Diagnostics, LossSettings
from scramjet.accelerate.numba import kernels, loss_kernels
from scramjet.accelerate.numba import towers as layers
from scramjet.accelerate.samples import Samples
from scramjet.compile.addresses import Task
from scramjet.compile.jit import ThreadsThatPay
from scramjet.policies.recurrent import kernels as memory_kernels
from scramjet.policies.recurrent.autograd import CoreNumbers
from scramjet.policies.recurrent.cores import GRU, LSTM, LayeredCore, MinGRU

BLOCK = 128
"""Rows that a thread takes at a time; with memory sequences, as many as memory does."""
ROWS_PER_PART = 32
"""At least so many rows of a forward pass for a thread: fewer take less time than to wake it."""
SAMPLES_PER_PART = 64
"""At least so many samples of a minibatch for a thread."""
SAMPLES_PER_PART_SQUARED = 16
"""Samples of a minibatch for the square of the number of threads: gradients of all are added up by one."""
SAMPLES_TO_SHARE, PARTS_PER_THREAD = 2048, 8
"""Of larger minibatches a thread takes parts of at least so many samples, up to so many parts, until none is left: the
one that others hold up takes fewer."""
ROWS_IN_SCRATCH = 8192
"""With memory: of long sequences fewer are taken at a time, for all their steps are kept."""
ACTIVATIONS: dict[type, int] = {nn.Tanh: layers.TANH, nn.ReLU: layers.RELU}
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


class NumbaStep(NamedTuple):
    """What the compiled functions read and write when they act in one step."""

    inputs: Tensor  # [B, D] float32
    mask: Tensor | None  # [B, A] bool, legal actions
    noise: Tensor  # [B] or [B, components], what actions are drawn with
    action: Tensor  # [B, ...]
    log_prob: Tensor  # [B]
    value: Tensor | None  # [B]; None: not asked for, and towers that only value do not run


class NumbaNetwork:
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
        self._rows: list[list[int]] = []  # the numbers of layers
        self._num_weights = 0
        self._layers_of: list[tuple[int, Tensor | None, Tensor]] = []  # layer, weight, bias
        self._cores: list[tuple[LayeredCore, CoreNumbers]] = []
        self._places: list[tuple[Tensor, int]] = []  # each parameter and its place among gradients
        self._offsets = None if offsets is None else offsets.numpy()
        self._task = Task(layers.WORK)
        self._number(towers)
        self._task.set(
            num_towers=len(towers), num_outputs=self.num_outputs, num_components=num_components,
            offsets=self._offsets, num_weights=self._num_weights, num_inputs=self._layers[0, layers.INPUTS],
            state_size=sum(core.state_size for core, _ in self._cores),
            widest=self._layers[:, [layers.INPUTS, layers.OUTPUTS]].max(),
            layer=layers.layer.address, head=layers.head.address,
            core=layers.core.address if self.has_memory else 0,
            draw=(kernels.draw_choices if offsets is not None else kernels.draw_points).address,
        )  # fmt: skip
        self._scratch = np.zeros(0, np.float32)
        self._pays = ThreadsThatPay()  # of gradient steps
        assert (*kernels.TERMS, "grad_norm") == Diagnostics.NAMES
        self._task.set(next_part=np.zeros(1, np.int64))
        self._results: tuple[np.ndarray, np.ndarray] | None = None  # gradients of each part, diagnostics
        self._loss: LossSettings | None = None  # as the task has it
        self._acting: list[Task] = []  # kept, for functions hold their addresses

    def _number(self, towers: Sequence[Tower]) -> None:
        """Put the network into numbers."""
        rows: list[list[int]] = []
        for tower in towers:
            first, place, core = len(self._rows), 0, [0] * 7
            for linear, activation in tower.layers:
                self._add_layer(linear.weight, linear.bias, ACTIVATIONS[type(activation)], place)
                place += len(linear.bias)
            first_head, width = len(self._rows), place
            if tower.core is not None:
                core, core_width = self._add_core(tower.core)
                width += core_width
            for head in tower.heads:
                self._add_layer(head.weight, head.bias, layers.NOTHING, head.place)
            rows.append([first, first_head, len(self._rows), place, width, *core])
        self._layers = np.array(self._rows, np.int64)
        self._width = sum(row[layers.WIDTH] for row in rows)
        self._task.set(layers=self._layers, towers=np.array(rows, np.int64))

    def _add_layer(self, weight: Tensor | None, bias: Tensor, activation: int, place: int) -> None:
        outputs, inputs = len(bias), 0 if weight is None else weight.shape[1]
        self._layers_of.append((len(self._rows), weight, bias))
        self._rows.append([0, 0, inputs, outputs, activation, self._num_weights, place])
        for parameter in (bias,) if weight is None else (weight, bias):
            self._add_weights(parameter)

    def _add_core(self, core: LayeredCore) -> tuple[list[int], int]:
        """Its columns in the numbers of a tower, and how many numbers it keeps for each row."""
        kind, states = CORES[type(core)], core.state_size
        state_place = sum(before.state_size for before, _ in self._cores)
        made = CoreNumbers(core.layers[0].weights(), states)
        self._cores.append((core, made))
        addresses = [made.numbers.ctypes.data, kind.forward.address, kind.backward.address]
        columns = [*addresses, made.size, states, self._num_weights, state_place]
        for parameter in core.layers[0].weights():
            self._add_weights(parameter)
        return columns, made.size + made.width_kept + 2 * states

    def _add_weights(self, parameter: Tensor) -> None:
        self._places.append((parameter, self._num_weights))
        self._num_weights += parameter.numel()

    def refresh(self) -> None:
        """Look where the weights are and what they have become; before acting with them."""
        for index, weight, bias in self._layers_of:
            self._layers[index, layers.BIAS] = bias.data_ptr()
            if weight is not None:
                self._layers[index, layers.WEIGHT] = weight.data_ptr()
        for core, numbers in self._cores:
            numbers.point_to(core.layers[0].weights())

    def acts(self, steps: Sequence[NumbaStep], state: Tensor | None) -> list[Callable[[], None]]:
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
        pays = ThreadsThatPay()
        for step, task in zip(steps, self._task.copies(len(steps)), strict=True):
            task.set(**{name: _array(getattr(step, name)) for name in NumbaStep._fields})
            functions.append(kernels.act_in_part.ready(num_parts, task.address, pays))
            self._acting.append(task)
        return functions

    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        """Write `value` [B] of observations and, with memory, states [B, state_size]."""
        inputs = self.encode(obs)
        num_parts = self._num_parts(len(inputs), ROWS_PER_PART)
        self._give_scratch(num_parts, BLOCK)
        self._task.set(inputs=_array(inputs), state=_array(state), value=_array(value), num_taken=len(inputs))
        self._task.set(block=BLOCK)
        kernels.value_in_part.in_parts(num_parts, self._task.address)

    def use_samples(self, samples: Samples) -> None:
        """Take minibatches from these samples; call it again when they lie elsewhere."""
        steps = 1 if samples.begins is None else len(samples.begins)
        self._task.set(
            inputs=_array(self.encode(samples.obs)), mask=_array(samples.mask), action=_array(samples.action),
            log_prob=_array(samples.log_prob), value=_array(samples.value), advantage=_array(samples.advantage),
            returns=_array(samples.returns), state=_array(samples.state), begins=_array(samples.begins),
            steps=steps, num_units=len(samples.action) // steps,
            layer_back=layers.layer_back.address, head_back=layers.head_back.address,
            turn_weights=memory_kernels.turn_weights.address if self.has_memory else 0,
            core_back=layers.core_back.address if self.has_memory else 0,
        )  # fmt: skip

    def gradients(self, units: Tensor, loss: LossSettings) -> list[float]:
        """Give all parameters the gradient of `ppo_loss` over the samples, or sequences, `units`. Returns its terms, in
        the order of `native_kernels.TERMS`, and the norm it had."""
        (diagnostics,), partials = self._take_steps(units, 1, loss)
        grads = torch.from_numpy(partials.copy())
        for parameter, at in self._places:
            parameter.grad = grads[at : at + parameter.numel()].view(parameter.shape)
        return diagnostics.tolist()

    def use_optimizer(self, optimizer: torch.optim.Adam) -> None:
        """Whose moments `learn` moves, and the learning rate it has now; look again after they were loaded."""
        (group,) = optimizer.param_groups
        states = [_adam_state(optimizer, parameter) for parameter, _ in self._places]
        table = np.array(
            [
                (*(tensor.data_ptr() for tensor in (parameter, *state)), at, parameter.numel())
                for (parameter, at), state in zip(self._places, states, strict=True)
            ],
            np.int64,
        )
        beta1, beta2 = group["betas"]
        self._task.set(
            parameters=table, learning_rate=group["lr"], beta1=beta1, beta2=beta2, epsilon=group["eps"],
            num_steps=states[0][2].item(),
        )  # fmt: skip

    def learn(self, order: Tensor, num_minibatches: int, loss: LossSettings) -> Tensor:
        """A gradient step on each of the minibatches that `order` is split into; moves weights and the optimizer's
        moments. Returns diagnostics as `gradients` has them, [num_minibatches, 7]."""
        self._task.set(num_parameters=len(self._places))
        diagnostics, _ = self._take_steps(order, num_minibatches, loss)
        self._task.set(num_parameters=0)
        return torch.from_numpy(diagnostics).float()

    def _take_steps(self, order: Tensor, num_minibatches: int, loss: LossSettings) -> tuple[np.ndarray, np.ndarray]:
        """Diagnostics of each minibatch, and the gradients of the last; the next call writes over both."""
        self.refresh()
        steps, fewest = int(self._task.record["steps"]), len(order) // num_minibatches
        block = BLOCK if not self.has_memory else max(1, min(memory_kernels.ROWS_PER_BLOCK, ROWS_IN_SCRATCH // steps))
        most = math.isqrt(steps * fewest // SAMPLES_PER_PART_SQUARED)  # adding up the gradients of all is one's work
        num_workers = max(1, min(self._num_parts(steps * fewest, SAMPLES_PER_PART), most, fewest))
        to_share = max(SAMPLES_TO_SHARE, 2 * block * steps)  # so that few blocks are not full
        parts_each = max(1, min(PARTS_PER_THREAD, steps * fewest // num_workers // to_share))
        num_parts = num_workers * parts_each if num_workers > 1 else 1
        self._give_scratch(num_workers, block * steps)
        partials, diagnostics = self._give_results(num_parts, num_minibatches)
        self._task.set(order=_array(order), num_ordered=len(order), num_minibatches=num_minibatches, block=block)
        if loss != self._loss:
            self._loss = loss
            kernels.compile_steps(num_workers)
            # Asked for last, for it is compiled last by the process that does so ahead.
            function = loss_kernels.loss_of_points if self._offsets is None else loss_kernels.loss_of_choices
            self._task.set(
                loss=function.address,
                normalizes=loss.normalizes_advantages, clip=loss.clip, entropy_coef=loss.entropy_coef,
                value_coef=loss.value_coef,
                value_clip=math.inf if loss.value_clip is None else loss.value_clip,
                max_norm=math.inf if loss.max_grad_norm is None else loss.max_grad_norm,
            )  # fmt: skip
        kernels.take_steps(self._task.address, num_workers, num_parts, num_minibatches, self._pays)
        return diagnostics, partials[0]

    def _give_results(self, num_parts: int, num_minibatches: int) -> tuple[np.ndarray, np.ndarray]:
        """Room for the gradients of each part and the diagnostics of each minibatch; the same as long as both last."""
        if self._results is None or (len(self._results[0]), len(self._results[1])) != (num_parts, num_minibatches):
            partials = np.empty((num_parts, self._num_weights), np.float32)
            diagnostics = np.empty((num_minibatches, len(kernels.TERMS) + 1))
            self._results = partials, diagnostics
            self._task.set(
                partials=partials, terms=np.empty((num_parts, len(kernels.TERMS))), diagnostics=diagnostics
            )  # fmt: skip
        return self._results

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


def _adam_state(optimizer: torch.optim.Adam, parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both moments and the count of steps of a parameter."""
    state = optimizer.state[parameter]
    if not state:  # as torch makes it in its first step
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return state["exp_avg"], state["exp_avg_sq"], state["step"]


def _array(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else tensor.contiguous().numpy()
