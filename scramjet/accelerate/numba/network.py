"""Runs small networks on the CPU with compiled functions (kernels.py, towers.py) instead of torch's operators: acting,
values and gradient steps, on the network's own weights in place.

Networks: one or two towers of tanh or ReLU layers, each with or without an encoder of boards before and a recurrent
core after them; actions are discrete or from normal distributions. Inputs are float32 [B, D].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.accelerate.executor import Diagnostics, LossSettings
from scramjet.accelerate.minibatches import Minibatches
from scramjet.accelerate.numba import kernels, loss_kernels
from scramjet.accelerate.numba import towers as layers
from scramjet.accelerate.samples import Samples
from scramjet.compile.addresses import StepCalls, Task
from scramjet.compile.jit import AdaptiveThreading
from scramjet.compile.vector_blocks import BOARDS
from scramjet.engine.trees import leaves, map_leaves
from scramjet.policies.recurrent import kernels as memory_kernels
from scramjet.policies.recurrent.autograd import CoreNumbers
from scramjet.policies.recurrent.cores import GRU, LSTM, LayeredCore, MinGRU

if TYPE_CHECKING:
    from scramjet.accelerate.numba.encoders import CompiledEncoder

BLOCK = 128
"""Rows that a thread computes at a time; gradient steps with memory take whole sequences instead."""
ROWS_PER_PART = 32
"""Fewest rows of a forward pass for each thread: fewer take less time than waking the thread."""
SAMPLES_PER_PART = 64
"""Fewest samples of a minibatch for each thread."""
SAMPLES_PER_PART_SQUARED = 16
"""Fewest samples of a minibatch divided by the square of the number of threads: one thread adds up the gradients of
all of them."""
SAMPLES_TO_SHARE, PARTS_PER_THREAD = 2048, 8
"""Larger minibatches are split into up to PARTS_PER_THREAD parts for each thread, of at least SAMPLES_TO_SHARE samples;
threads take parts until none is left, so that a slow thread takes fewer."""
BOARDS_TO_SHARE = 256
"""As SAMPLES_TO_SHARE, for networks with an encoder of boards, of which each sample takes far longer."""
ROWS_IN_SCRATCH = 8192
"""With memory: most steps that a thread computes at a time, in whole sequences, since it keeps all their
activations."""
ROWS_PER_ENCODER = 1024
"""The same with memory after an encoder of boards, which keeps thousands of numbers of each step."""
ENCODED_AT_ONCE = 4096
"""Observations that are encoded at a time."""
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


class NumbaStep(NamedTuple):
    """The tensors that the compiled functions read and write when they draw the actions of one step."""

    inputs: Tensor  # [B, D] float32
    mask: Tensor | None  # [B, A] bool, legal actions
    noise: Tensor  # [B] or [B, components], the random numbers that actions are drawn with
    action: Tensor  # [B, ...], written
    log_prob: Tensor  # [B], written
    value: Tensor | None  # [B], written; None: not computed, and a tower that only has the value does not run


class _Steps(NamedTuple):
    """How gradient steps are divided, and where their results are; the next ones write over them."""

    division: tuple[int, int]  # number of threads, and of the parts of a minibatch that they take
    gradients: np.ndarray  # [weights], of the last minibatch
    exchanged: np.ndarray  # [weights + terms], what ranks add up: the gradients and the loss terms of a minibatch
    diagnostics: np.ndarray  # [minibatches, terms + 1]


class NumbaNetwork:
    """Acts, values and takes PPO's gradient steps for one network, on its own weights in place."""

    def __init__(
        self,
        towers: Sequence[Tower],
        encode: Callable[[Any], Tensor],
        *,
        num_inputs: int,
        num_components: int,
        offsets: Tensor | None,
        turns: Tensor | None = None,
    ) -> None:
        """`encode` turns observations into inputs [B, D], of which each tower takes the first so many. `num_inputs` is
        the size of the distribution's inputs and `num_components` that of an action. `offsets` are where each
        component's logits begin and the last ones end, or None for normal distributions. `turns` [G, A] says for
        boards that are shown turned which logit is that of each action; the last of the inputs is the number of the
        row.

        The first tower has the policy's heads; the last head of the last tower is the value, column `num_inputs`.
        """
        self.encode = encode
        self.num_outputs = num_inputs + 1
        self.has_memory = any(tower.core is not None for tower in towers)
        self._rows: list[list[int]] = []  # one row of numbers for each layer, see towers.py
        self._num_weights = 0
        self._layers_of: list[tuple[int, Tensor | None, Tensor]] = []  # layer, weight, bias
        self._cores: list[tuple[LayeredCore, CoreNumbers]] = []
        self._encoders: list[CompiledEncoder] = []
        self._places: list[tuple[Tensor, int]] = []  # each parameter, and where its gradient begins
        self._offsets = None if offsets is None else offsets.numpy()
        self._task = Task(layers.WORK)
        self._width_of_inputs = max(tower.num_inputs for tower in towers) + (turns is not None)
        self._number(towers)
        if turns is not None:
            self._turn_outputs(turns)
        self._task.set(
            num_towers=len(towers), num_outputs=self.num_outputs, num_components=num_components,
            offsets=self._offsets, num_weights=self._num_weights, num_inputs=self._width_of_inputs,
            state_size=sum(core.state_size for core, _ in self._cores),
            widest=self._layers[:, [layers.INPUTS, layers.OUTPUTS]].max(),
            layer=layers.layer.address, head=layers.head.address,
            core=layers.core.address if self.has_memory else 0,
            draw=(kernels.draw_choices if offsets is not None else kernels.draw_points).address,
        )  # fmt: skip
        record = self._task.record
        inputs, widest, states = (int(record[name]) for name in ("num_inputs", "widest", "state_size"))
        self._scratch_per_row = inputs + 2 * self.num_outputs + 2 * widest + states + 1 + self._width
        self._scratch = np.zeros(0, np.float32)
        self._pays = AdaptiveThreading()  # runs gradient steps on one thread while threads are slow to start
        assert (*kernels.TERMS, "grad_norm") == Diagnostics.NAMES
        self._task.set(next_part=np.zeros(1, np.int64))
        self._results: _Steps | None = None
        self._bounds: tuple[int, ...] | None = None  # steps and bounds of the minibatches that the task holds now
        self._loss: LossSettings | None = None  # the settings that the task holds now
        self._acting: list[Task] = []  # kept alive: functions hold their addresses
        self._is_current = False  # whether addresses and packed weights are those of the weights now

    def _number(self, towers: Sequence[Tower]) -> None:
        """Describe the network in the tables of numbers that compiled functions read (see towers.py)."""
        rows: list[list[int]] = []
        for tower in towers:
            first, place, core, encoder = len(self._rows), 0, [0] * 7, [0] * 7
            if tower.encoder is not None:
                encoder = self._add_encoder(tower.encoder)
            for linear, activation in tower.layers:
                reads_inputs = place == 0 and tower.encoder is None
                stride = self._width_of_inputs if reads_inputs else linear.in_features
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
            rows.append([first, first_head, len(self._rows), place, width, *core, *encoder])
        self._layers = np.array(self._rows, np.int64)
        self._width = sum(row[layers.WIDTH] for row in rows)
        self._towers = np.array(rows, np.int64)
        self._task.set(layers=self._layers, towers=self._towers)

    def _add_layer(self, weight: Tensor | None, bias: Tensor, activation: int, place: int, stride: int) -> None:
        outputs, inputs = len(bias), 0 if weight is None else weight.shape[1]
        self._layers_of.append((len(self._rows), weight, bias))
        self._rows.append([0, 0, inputs, outputs, activation, self._num_weights, place, stride, 0])
        for parameter in (bias,) if weight is None else (weight, bias):
            self._add_weights(parameter)

    def _add_encoder(self, encoder: CompiledEncoder) -> list[int]:
        """Add an encoder; returns its columns in the table of towers."""
        self._encoders.append(encoder)
        encoder.place_gradients(self._num_weights)
        for parameter in encoder.parameters:
            self._add_weights(parameter)
        pack = 0 if encoder.pack is None else encoder.pack.address
        functions = encoder.forward.address, 0, pack  # the backward pass is compiled when something is to be learned
        sizes = encoder.num_features, encoder.width, encoder.scratch
        return [encoder.numbers.ctypes.data, *functions, *sizes]

    def _turn_outputs(self, turns: Tensor) -> None:
        """Have logits of turned boards turned back."""
        from scramjet.accelerate.numba import turned_boards

        self._task.set(
            turns=turns.contiguous().numpy(), turn_outputs=turned_boards.turn_outputs.address,
            turn_back=turned_boards.turn_back.address,
        )  # fmt: skip

    def _add_core(self, core: LayeredCore) -> tuple[list[int], int]:
        """Add a recurrent core; returns its columns in the table of towers and the number of floats it keeps a row."""
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

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, in the order of their gradients."""
        return [parameter for parameter, _ in self._places]

    def refresh(self) -> None:
        """Look up the addresses of all weights; call it before acting, since the weights may have moved."""
        for index, weight, bias in self._layers_of:
            self._layers[index, layers.BIAS] = bias.data_ptr()
            if weight is not None:
                self._layers[index, layers.WEIGHT] = weight.data_ptr()
        for core, numbers in self._cores:
            numbers.point_to(core.layers[0].weights())
        for encoder in self._encoders:
            encoder.refresh()
        self._is_current = True

    def acts(self, steps: Sequence[NumbaStep], state: Tensor | None) -> list[Callable[[], None]]:
        """Return one function for each step, which draws its actions and writes their log-probabilities.

        With memory, each call updates `state` [B, state_size]. Addresses are looked up once, here; call `refresh`
        before the functions. Tensors must be contiguous, and are kept alive.
        """
        num_parts, pays = self._num_parts(len(steps[0].inputs), ROWS_PER_PART), AdaptiveThreading()
        tasks = self.act_tasks(steps, state, num_parts)
        return [kernels.act_in_part.prepared(num_parts, task.address, pays) for task in tasks]

    def act_calls(self, steps: Sequence[NumbaStep]) -> StepCalls | None:
        """What compiled code calls for each step to do what the functions of `acts` do; None where these use threads.

        Only for networks without memory.
        """
        if self._num_parts(len(steps[0].inputs), ROWS_PER_PART) > 1:
            return None
        tasks = self.act_tasks(steps, None, 1)
        return StepCalls(kernels.act_in_part.address, tasks[0].address, tasks[0].record.dtype.itemsize)

    def act_tasks(self, steps: Sequence[NumbaStep], state: Tensor | None, num_parts: int) -> list[Task]:
        """One task for each step, for `kernels.act_in_part` in `num_parts` parts; see `acts`."""
        num_rows = len(steps[0].inputs)
        scratch = np.zeros((num_parts, self._scratch_size(min(num_rows, BLOCK))), np.float32)
        self._task.set(scratch=scratch, scratch_size=scratch.shape[1], block=BLOCK, num_taken=num_rows)
        self._task.set(state=_array(state))
        tasks = self._task.copies(len(steps))
        for step, task in zip(steps, tasks, strict=True):
            task.set(**{name: _array(getattr(step, name)) for name in NumbaStep._fields})
        self._acting += tasks
        return tasks

    def values(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        """Write the values of observations to `value` [B]; `state` [B, state_size] are their recurrent states."""
        inputs = self._encoded(obs)
        if not self._is_current:
            self.refresh()
        num_parts = self._num_parts(len(inputs), ROWS_PER_PART)
        self._give_scratch(num_parts, BLOCK)
        self._task.set(inputs=_array(inputs), state=_array(state), value=_array(value), num_taken=len(inputs))
        self._task.set(block=BLOCK)
        kernels.value_in_part.in_parts(num_parts, self._task.address)

    def _encoded(self, obs: Any) -> Tensor:
        """The inputs [B, D] of many observations, some at a time: on the way they may take many times as much memory.

        Where observations are inputs as they are, it is they that are returned.
        """
        num_rows = len(leaves(obs)[0])
        first = self.encode(map_leaves(lambda leaf: leaf[:ENCODED_AT_ONCE], obs))
        if num_rows <= ENCODED_AT_ONCE:
            return first
        if isinstance(obs, Tensor) and first.data_ptr() == obs.data_ptr():
            return self.encode(obs)
        inputs = torch.empty(num_rows, first.shape[1])
        inputs[:ENCODED_AT_ONCE] = first
        for start in range(ENCODED_AT_ONCE, num_rows, ENCODED_AT_ONCE):
            rows = slice(start, start + ENCODED_AT_ONCE)
            inputs[rows] = self.encode(map_leaves(lambda leaf, rows=rows: leaf[rows], obs))
        return inputs

    def use_samples(self, samples: Samples) -> None:
        """Take minibatches from these samples from now on; call it again when their tensors have moved."""
        steps = 1 if samples.begins is None else len(samples.begins)
        for row, encoder in zip(self._towers, self._encoders, strict=False):  # all towers have one, or none
            row[layers.ENCODER_BACKWARD] = encoder.backward.address
        self._task.set(
            inputs=_array(self._encoded(samples.obs)), mask=_array(samples.mask), action=_array(samples.action),
            log_prob=_array(samples.log_prob), value=_array(samples.value), advantage=_array(samples.advantage),
            returns=_array(samples.returns), state=_array(samples.state), begins=_array(samples.begins),
            steps=steps, num_units=len(samples.action) // steps,
            layer_back=layers.layer_back.address, head_back=layers.head_back.address,
            turn_weights=memory_kernels.turn_weights.address if self.has_memory else 0,
            core_back=layers.core_back.address if self.has_memory else 0,
        )  # fmt: skip

    def gradients(self, units: Tensor, loss: LossSettings) -> list[float]:
        """Set the gradient of all parameters to that of `ppo_loss` over the samples, or sequences, numbered `units`.

        Returns the loss terms in the order of `kernels.TERMS`, then the norm of the gradient before clipping.
        """
        steps = self._prepare_steps(Minibatches.even(units, 1), loss)
        kernels.take_steps(self._task.address, *steps.division, range(1), self._pays)
        (diagnostics,) = steps.diagnostics
        grads = torch.from_numpy(steps.gradients.copy())
        for parameter, at in self._places:
            parameter.grad = grads[at : at + parameter.numel()].view(parameter.shape)
        return diagnostics.tolist()

    def use_optimizer(self, optimizer: torch.optim.Adam) -> None:
        """Have `learn` use this optimizer's moments and current learning rate; call it again when either changed."""
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

    def learn(self, minibatches: Minibatches, loss: LossSettings) -> Tensor:
        """Take a gradient step on each of the minibatches, with several ranks together.

        Changes the weights and the optimizer's moments. Returns the diagnostics, [minibatches, 7], with columns as in
        `Diagnostics.NAMES`.
        """
        self._task.set(num_parameters=len(self._places))
        steps = self._prepare_steps(minibatches, loss)
        self._is_current = False
        if minibatches.ranks.is_alone:
            kernels.take_steps(self._task.address, *steps.division, range(len(minibatches)), self._pays)
        else:
            self._take_shared_steps(steps, minibatches)
        self._task.set(num_parameters=0)
        return torch.from_numpy(steps.diagnostics.astype(np.float32))

    def _take_shared_steps(self, steps: _Steps, minibatches: Minibatches) -> None:
        """Take each gradient step on what all ranks hold of a minibatch."""
        address, own = self._task.address, torch.from_numpy(steps.exchanged)
        for k in range(len(minibatches)):
            kernels.take_steps(address, *steps.division, range(k, k + 1), self._pays, kernels.end_own_part)
            minibatches.ranks.add(own)
            kernels.end_shared_step(address, k)

    def _prepare_steps(self, minibatches: Minibatches, loss: LossSettings) -> _Steps:
        """Set the task for gradient steps on these minibatches; the optimizer steps if it has `num_parameters`."""
        self.refresh()
        steps, fewest = int(self._task.record["steps"]), len(minibatches.order) // len(minibatches)
        most_rows = ROWS_PER_ENCODER if self._encoders else ROWS_IN_SCRATCH
        block = BLOCK if not self.has_memory else max(1, min(memory_kernels.ROWS_PER_BLOCK, most_rows // steps))
        most = math.isqrt(steps * fewest // SAMPLES_PER_PART_SQUARED)  # one thread adds up all gradients
        num_workers = max(1, min(self._num_parts(steps * fewest, SAMPLES_PER_PART), most, fewest))
        # Large enough that most blocks are full.
        to_share = max(BOARDS_TO_SHARE if self._encoders else SAMPLES_TO_SHARE, 2 * block * steps)
        parts_each = max(1, min(PARTS_PER_THREAD, steps * fewest // num_workers // to_share))
        num_parts = num_workers * parts_each if num_workers > 1 else 1
        self._give_scratch(num_workers, block * steps)
        results = self._give_results(num_workers, num_parts, len(minibatches))
        self._give_bounds(minibatches, steps)
        self._task.set(order=_array(minibatches.order), statistics=_array(minibatches.statistics), block=block)
        if loss != self._loss:
            self._loss = loss
            kernels.compile_steps(num_workers)
            # Asked for last, since the process of compile_ahead.py compiles it last.
            function = loss_kernels.loss_of_points if self._offsets is None else loss_kernels.loss_of_choices
            self._task.set(
                loss=function.address,
                normalizes=loss.normalizes_advantages, clip=loss.clip, entropy_coef=loss.entropy_coef,
                value_coef=loss.value_coef,
                value_clip=math.inf if loss.value_clip is None else loss.value_clip,
                max_norm=math.inf if loss.max_grad_norm is None else loss.max_grad_norm,
            )  # fmt: skip
        return results

    def _give_bounds(self, minibatches: Minibatches, steps: int) -> None:
        """Set where each minibatch begins and how many samples it has; with one rank, only where either changed."""
        key = None if minibatches.num_counted is not None else (steps, *minibatches.bounds)
        if key is not None and key == self._bounds:
            return
        totals = minibatches.num_counted
        if totals is None:
            totals = steps * torch.tensor(minibatches.sizes, dtype=torch.float64)
        self._task.set(bounds=np.array(minibatches.bounds, np.int64), totals=_array(totals))
        self._bounds = key

    def _give_results(self, num_workers: int, num_parts: int, num_minibatches: int) -> _Steps:
        """Arrays for the gradients of each part and the diagnostics of each minibatch; reused while sizes are equal."""
        division, known = (num_workers, num_parts), self._results
        if known is None or (known.division, len(known.diagnostics)) != (division, num_minibatches):
            # Once the parts are added up to the first, the second makes room for the loss terms.
            partials = np.empty(num_parts * self._num_weights + kernels.NUM_TERMS, np.float32)
            diagnostics = np.empty((num_minibatches, kernels.NUM_TERMS + 1))
            exchanged = partials[: self._num_weights + kernels.NUM_TERMS]
            known = self._results = _Steps(division, partials[: self._num_weights], exchanged, diagnostics)
            self._task.set(
                partials=partials, terms=np.empty((num_parts, kernels.NUM_TERMS)), diagnostics=diagnostics
            )  # fmt: skip
        return known

    def _num_parts(self, rows: int, least: int) -> int:
        """The number of parts that `rows` are split into: one a thread, of at least `least` rows each."""
        return max(1, min(torch.get_num_threads(), rows // least))

    def _scratch_size(self, rows: int) -> int:
        """Floats of scratch memory that a thread needs for `rows` rows."""
        whole = -(-rows // BOARDS) * BOARDS  # see towers.encoder_floats
        return rows * self._scratch_per_row + sum(
            rows * each.num_features + layers.ALIGNMENT + whole * each.width + each.scratch for each in self._encoders
        )

    def _give_scratch(self, num_parts: int, rows: int) -> None:
        size = self._scratch_size(rows)
        if self._scratch.size < num_parts * size:
            self._scratch = np.zeros(num_parts * size, np.float32)
        self._task.set(scratch=self._scratch, scratch_size=size)


def _adam_state(optimizer: torch.optim.Adam, parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first and second moments and the step count that an optimizer holds for a parameter; created if missing."""
    state = optimizer.state[parameter]
    if not state:  # as torch creates it in its first step
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return state["exp_avg"], state["exp_avg_sq"], state["step"]


def _array(tensor: Tensor | None) -> np.ndarray | None:
    return None if tensor is None else tensor.contiguous().numpy()
