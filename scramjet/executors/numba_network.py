"""Runs small networks on the CPU with compiled functions instead of torch's operators, on the network's own weights in
place: acting and values (kernels/cpu/acting.py), and gradient steps (kernels/cpu/steps.py).

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

from scramjet.compile.addresses import BOARDS, StepCalls, Task
from scramjet.compile.jit import AdaptiveThreading
from scramjet.engine.trees import leaves, map_leaves
from scramjet.executors.executor import Diagnostics
from scramjet.executors.losses import LossSettings
from scramjet.executors.samples import Minibatches, Samples
from scramjet.executors.supports import ACTIVATIONS
from scramjet.kernels.cpu import acting, dense, losses, recurrent
from scramjet.kernels.cpu import steps as step_kernels
from scramjet.kernels.cpu.recurrent import CoreNumbers
from scramjet.kernels.cpu.steps import NUM_TERMS, TERMS
from scramjet.policies.recurrent import LayeredCore

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
        self._offsets = None if offsets is None else offsets.numpy()
        self._task = Task(dense.WORK)
        columns = max(tower.num_inputs for tower in towers) + (turns is not None)
        tables = self._tables = NetworkTables(towers, columns)
        if turns is not None:
            self._turn_outputs(turns)
        self._task.set(
            layers=tables.layers, towers=tables.towers, num_towers=len(towers), num_outputs=self.num_outputs,
            num_components=num_components, offsets=self._offsets, num_weights=tables.num_weights, num_inputs=columns,
            state_size=tables.state_size, widest=tables.widest,
            layer=dense.layer.address, head=dense.head.address,
            core=dense.core.address if self.has_memory else 0,
            draw=(acting.draw_choices if offsets is not None else acting.draw_points).address,
        )  # fmt: skip
        outputs_and_widest = 2 * (self.num_outputs + tables.widest)
        self._scratch_per_row = columns + outputs_and_widest + tables.state_size + 1 + tables.width
        self._scratch = np.zeros(0, np.float32)
        self._pays = AdaptiveThreading()  # runs gradient steps on one thread while threads are slow to start
        assert (*TERMS, "grad_norm") == Diagnostics.NAMES
        self._task.set(next_part=np.zeros(1, np.int64))
        self._results: _Steps | None = None
        self._bounds: tuple[int, ...] | None = None  # steps and bounds of the minibatches that the task holds now
        self._loss: LossSettings | None = None  # the settings that the task holds now
        self._acting: list[Task] = []  # kept alive: functions hold their addresses
        self._is_current = False  # whether addresses and packed weights are those of the weights now

    def _turn_outputs(self, turns: Tensor) -> None:
        """Have logits of turned boards turned back."""

        self._task.set(
            turns=turns.contiguous().numpy(), turn_outputs=dense.turn_outputs.address,
            turn_back=dense.turn_back.address,
        )  # fmt: skip

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, in the order of their gradients."""
        return self._tables.parameters

    def refresh(self) -> None:
        """Look up the addresses of all weights; call it before acting, since the weights may have moved."""
        self._tables.refresh()
        self._is_current = True

    def acts(self, steps: Sequence[NumbaStep], state: Tensor | None) -> list[Callable[[], None]]:
        """Return one function for each step, which draws its actions and writes their log-probabilities.

        With memory, each call updates `state` [B, state_size]. Addresses are looked up once, here; call `refresh`
        before the functions. Tensors must be contiguous, and are kept alive.
        """
        num_parts, pays = self._num_parts(len(steps[0].inputs), ROWS_PER_PART), AdaptiveThreading()
        tasks = self.act_tasks(steps, state, num_parts)
        return [acting.act_in_part.prepared(num_parts, task.address, pays) for task in tasks]

    def act_calls(self, steps: Sequence[NumbaStep]) -> StepCalls | None:
        """What compiled code calls for each step to do what the functions of `acts` do; None where these use threads.

        Only for networks without memory.
        """
        if self._num_parts(len(steps[0].inputs), ROWS_PER_PART) > 1:
            return None
        tasks = self.act_tasks(steps, None, 1)
        return StepCalls(acting.act_in_part.address, tasks[0].address, tasks[0].record.dtype.itemsize)

    def act_tasks(self, steps: Sequence[NumbaStep], state: Tensor | None, num_parts: int) -> list[Task]:
        """One task for each step, for `acting.act_in_part` in `num_parts` parts; see `acts`."""
        num_rows = len(steps[0].inputs)
        scratch = np.zeros((num_parts, self._scratch_size(min(num_rows, BLOCK))), np.float32)
        self._task.set(scratch=scratch, scratch_size=scratch.shape[1], block=BLOCK, num_taken=num_rows)
        self._task.set(state=_kept(state))
        tasks = self._task.copies(len(steps))
        for step, task in zip(steps, tasks, strict=True):
            task.set(**{name: _kept(getattr(step, name)) for name in NumbaStep._fields})
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
        acting.value_in_part.in_parts(num_parts, self._task.address)

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
        self._tables.learns()
        self._task.set(
            inputs=_array(self._encoded(samples.obs)), mask=_array(samples.mask), action=_array(samples.action),
            log_prob=_array(samples.log_prob), value=_array(samples.value), advantage=_array(samples.advantage),
            returns=_array(samples.returns), state=_array(samples.state), begins=_array(samples.begins),
            steps=steps, num_units=len(samples.action) // steps,
            layer_back=dense.layer_back.address, head_back=dense.head_back.address,
            turn_weights=recurrent.turn_weights.address if self.has_memory else 0,
            core_back=dense.core_back.address if self.has_memory else 0,
        )  # fmt: skip

    def gradients(self, units: Tensor, loss: LossSettings) -> list[float]:
        """Set the gradient of all parameters to that of `ppo_loss` over the samples, or sequences, numbered `units`.

        Returns the loss terms in the order of `TERMS`, then the norm of the gradient before clipping.
        """
        steps = self._prepare_steps(Minibatches.even(units, 1), loss)
        step_kernels.take_steps(self._task.address, *steps.division, range(1), self._pays)
        (diagnostics,) = steps.diagnostics
        grads = torch.from_numpy(steps.gradients.copy())
        for parameter, at in self._tables.places:
            parameter.grad = grads[at : at + parameter.numel()].view(parameter.shape)
        return diagnostics.tolist()

    def use_optimizer(self, optimizer: torch.optim.Adam) -> None:
        """Have `learn` use this optimizer's moments and current learning rate; call it again when either changed."""
        (group,) = optimizer.param_groups
        states = [_adam_state(optimizer, parameter) for parameter, _ in self._tables.places]
        table = np.array(
            [
                (*(tensor.data_ptr() for tensor in (parameter, *state)), at, parameter.numel())
                for (parameter, at), state in zip(self._tables.places, states, strict=True)
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
        self._task.set(num_parameters=len(self._tables.places))
        steps = self._prepare_steps(minibatches, loss)
        self._is_current = False
        if minibatches.ranks.is_alone:
            step_kernels.take_steps(self._task.address, *steps.division, range(len(minibatches)), self._pays)
        else:
            self._take_shared_steps(steps, minibatches)
        self._task.set(num_parameters=0)
        return torch.from_numpy(steps.diagnostics.astype(np.float32))

    def _take_shared_steps(self, steps: _Steps, minibatches: Minibatches) -> None:
        """Take each gradient step on what all ranks hold of a minibatch."""
        address, own = self._task.address, torch.from_numpy(steps.exchanged)
        for k in range(len(minibatches)):
            step_kernels.take_steps(address, *steps.division, range(k, k + 1), self._pays, step_kernels.end_own_part)
            minibatches.ranks.add(own)
            step_kernels.end_shared_step(address, k)

    def _prepare_steps(self, minibatches: Minibatches, loss: LossSettings) -> _Steps:
        """Set the task for gradient steps on these minibatches; the optimizer steps if it has `num_parameters`."""
        self.refresh()
        steps, fewest = int(self._task.record["steps"]), len(minibatches.order) // len(minibatches)
        most_rows = ROWS_PER_ENCODER if self._tables.encoders else ROWS_IN_SCRATCH
        block = BLOCK if not self.has_memory else max(1, min(recurrent.ROWS_PER_BLOCK, most_rows // steps))
        most = math.isqrt(steps * fewest // SAMPLES_PER_PART_SQUARED)  # one thread adds up all gradients
        num_workers = max(1, min(self._num_parts(steps * fewest, SAMPLES_PER_PART), most, fewest))
        # Large enough that most blocks are full.
        to_share = max(BOARDS_TO_SHARE if self._tables.encoders else SAMPLES_TO_SHARE, 2 * block * steps)
        parts_each = max(1, min(PARTS_PER_THREAD, steps * fewest // num_workers // to_share))
        num_parts = num_workers * parts_each if num_workers > 1 else 1
        self._give_scratch(num_workers, block * steps)
        results = self._give_results(num_workers, num_parts, len(minibatches))
        self._give_bounds(minibatches, steps)
        self._task.set(order=_array(minibatches.order), statistics=_array(minibatches.statistics), block=block)
        if loss != self._loss:
            self._loss = loss
            step_kernels.compile_steps(num_workers)
            # Asked for last, since the process of compile_ahead.py compiles it last.
            function = losses.loss_of_points if self._offsets is None else losses.loss_of_choices
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
            partials = np.empty(num_parts * self._tables.num_weights + NUM_TERMS, np.float32)
            diagnostics = np.empty((num_minibatches, NUM_TERMS + 1))
            exchanged = partials[: self._tables.num_weights + NUM_TERMS]
            known = self._results = _Steps(division, partials[: self._tables.num_weights], exchanged, diagnostics)
            self._task.set(
                partials=partials, terms=np.empty((num_parts, NUM_TERMS)), diagnostics=diagnostics
            )  # fmt: skip
        return known

    def _num_parts(self, rows: int, least: int) -> int:
        """The number of parts that `rows` are split into: one a thread, of at least `least` rows each."""
        return max(1, min(torch.get_num_threads(), rows // least))

    def _scratch_size(self, rows: int) -> int:
        """Floats of scratch memory that a thread needs for `rows` rows."""
        whole = -(-rows // BOARDS) * BOARDS  # see towers.encoder_floats
        return rows * self._scratch_per_row + sum(
            rows * each.num_features + dense.ALIGNMENT + whole * each.width + each.scratch
            for each in self._tables.encoders
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


def _kept(tensor: Tensor | None) -> np.ndarray | None:
    """The memory of a tensor that is bound once and read in every step; a copy would never change."""
    assert tensor is None or tensor.is_contiguous(), f"a tensor of strides {tensor.stride()} cannot be bound"
    return None if tensor is None else tensor.numpy()


def _array(tensor: Tensor | None) -> np.ndarray | None:
    """The numbers of a tensor that is read at once, copied where they do not lie one after the other."""
    return None if tensor is None else tensor.contiguous().numpy()


# --- the tables of numbers by which compiled functions know a network
#
# Columns are those of dense.py. Compiled functions hold the tables' addresses, so a table is written in place.


if TYPE_CHECKING:
    from scramjet.executors.numba_encoders import CompiledEncoder

_ACTIVATIONS = {"tanh": dense.TANH, "relu": dense.RELU}


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
        self.width = sum(row[dense.WIDTH] for row in rows)
        """Floats that the towers keep of a row for the backward pass."""
        self.widest = int(self.layers[:, [dense.INPUTS, dense.OUTPUTS]].max())
        self.state_size = sum(core.state_size for core, _ in self._cores)

    @property
    def parameters(self) -> list[Tensor]:
        """All weights, in the order of their gradients."""
        return [parameter for parameter, _ in self.places]

    def refresh(self) -> None:
        """Look up the addresses of all weights, which may have moved."""
        for index, weight, bias in self._layers_of:
            self.layers[index, dense.BIAS] = bias.data_ptr()
            if weight is not None:
                self.layers[index, dense.WEIGHT] = weight.data_ptr()
        for core, numbers in self._cores:
            numbers.point_to(core.layers[0].weights())
        for encoder in self.encoders:
            encoder.refresh()

    def learns(self) -> None:
        """Have the encoders' backward passes compiled."""
        for row, encoder in zip(self.towers, self.encoders, strict=False):  # all towers have one, or none
            row[dense.ENCODER_BACKWARD] = encoder.backward.address

    def _add_tower(self, tower: Tower) -> list[int]:
        """Add a tower; returns its row."""
        first, place, core, encoder = len(self._rows), 0, [0] * 7, [0] * 7
        if tower.encoder is not None:
            encoder = self._add_encoder(tower.encoder)
        for linear, activation in tower.layers:
            reads_inputs = place == 0 and tower.encoder is None
            stride = self.num_inputs if reads_inputs else linear.in_features
            self._add_layer(linear.weight, linear.bias, _ACTIVATIONS[ACTIVATIONS[type(activation)]], place, stride)
            place += len(linear.bias)
        if tower.encoder is not None and tower.encoder.turned is not None:
            self._rows[first][dense.TURNED] = tower.encoder.turned.ctypes.data
        first_head, width = len(self._rows), place
        if tower.core is not None:
            core, core_width = self._add_core(tower.core)
            width += core_width
        for head in tower.heads:
            stride = 0 if head.weight is None else head.weight.shape[1]
            self._add_layer(head.weight, head.bias, dense.NOTHING, head.place, stride)
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
        kind, states = recurrent.KINDS[core.recurrence.name], core.state_size
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
