"""LSTM, GRU and MinGRU compiled for the CPU: forward and backward over whole sequences of some rows, on one core.

A thread takes a few rows through all steps together, so that their gates and all weights stay in its core's cache;
nothing waits for another thread in between. All is float32. The outputs before each step, the gates and the cells are
kept for the backward pass, time-major: all steps of these rows are the rows of one matrix. The address `begins` is 0
where no episode begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.addresses import AddressedFunction, Task, call, flags, float_rows, floats, record_at, words
from scramjet.compile.blas import multiply, multiply_transposed, set_blas_threads
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import add, copy, fill, inlined
from scramjet.kernels.cpu.gates import (
    gru_step,
    gru_step_back,
    lstm_step,
    lstm_step_back,
    mingru_step,
    mingru_step_back,
)

ROWS_PER_BLOCK = 16
"""Rows that go through all steps together, so that they share a core's cache with the weights."""
ROWS_PER_PRODUCT = 128
"""Rows (of several steps) in one matrix product for the gradients of weights."""

# A layer as an array of int64: addresses of its weights [F, gates of features], [gates] and [H, gates of state], and of
# the first and the last transposed; then sizes. Features act on the last columns of the gates, the state on the first.
(
    FEATURES_WEIGHT, BIAS, STATE_WEIGHT, FEATURES_BACK, STATE_BACK,
    NUM_FEATURES, SIZE, NUM_GATES, FEATURES_GATES, STATE_GATES, STATE_SIZE,
) = range(11)  # fmt: skip
NUM_COLUMNS = 11

_FLOAT = 4  # bytes


class Sequences(NamedTuple):
    """The compiled forward and backward passes of one kind of recurrence.

    Both take addresses: `core` of a layer's numbers (see above); `features`, `outputs` and `begins` of the first step,
    where the next step is `stride` rows farther; `state` before the first step and `after` the last, [rows, state
    size]; `kept` of what the forward pass leaves for the backward pass, `width_kept` numbers for each row of each step.
    """

    forward: AddressedFunction
    """(core, features, outputs, begins, state, after, kept, rows, stride, steps)"""
    backward: AddressedFunction
    """(core, features, to_outputs, begins, state, to_state, kept, rows, stride, steps, to_features, to_weights): adds
    to the gradients of features' weight, bias and state's weight, one behind the other; `to_state`, the gradients of
    the state after, become those of the state before. `to_features` may be 0. Overwrites `kept`."""


def width_kept(num_gates: int, state_size: int) -> int:
    """Numbers that the forward pass keeps for each row of each step."""
    return num_gates + state_size


def sequences(step: Any, step_back: Any, *, carries_outputs: bool) -> Sequences:
    """Compile a recurrence from what it does to one row: `step` and, for the gradients, `step_back`.

    `carries_outputs`: the backward pass carries the gradient of outputs from step to step, not that of cells.
    """
    return Sequences(
        AddressedFunction(_forward_over_steps(step)),
        AddressedFunction(_backward_over_steps(step_back, carries_outputs)),
    )


@inlined
def _kept_arrays(kept, rows, steps, size, num_gates, state_size):  # type: ignore[no-untyped-def]
    """The outputs before each step, the gates and the cells, a row for each row of each step, at the address `kept`."""
    count = steps * rows
    before = float_rows(kept, count, size)
    gates = float_rows(kept + _FLOAT * count * size, count, num_gates)
    cells = float_rows(kept + _FLOAT * count * (size + num_gates), count, state_size - size)
    return before, gates, cells


@inlined
def _begin_step(is_new, has_new, before, given, gates, first):  # type: ignore[no-untyped-def]
    """Write the outputs before a step, 0 in rows whose episode begins, and 0 into gates that features do not act on."""
    for row in range(len(before)):
        if has_new and is_new[row]:
            fill(before[row], np.float32(0))
        else:
            copy(before[row], given[row, : before.shape[1]])
        fill(gates[row, :first], np.float32(0))


@inlined
def _fill_gates(numbers, features, before, gates, rows):  # type: ignore[no-untyped-def]
    """The matrix products of a step: features and outputs before it (addresses) into its gates."""
    num_features, size, num_gates = numbers[NUM_FEATURES], numbers[SIZE], numbers[NUM_GATES]
    of_features, of_state = numbers[FEATURES_GATES], numbers[STATE_GATES]
    multiply(
        rows, of_features, num_features, features, num_features, numbers[FEATURES_WEIGHT], of_features, 0.0,
        gates + _FLOAT * (num_gates - of_features), num_gates,
    )  # fmt: skip
    if of_state > 0:
        multiply(rows, of_state, size, before, size, numbers[STATE_WEIGHT], of_state, 1.0, gates, num_gates)


def _forward_over_steps(step: Any) -> Any:
    """The `forward` of `Sequences` for a recurrence with this step."""

    def forward(  # type: ignore[no-untyped-def]
        core, features, outputs, begins, state, after, kept, rows, stride, steps
    ):
        numbers = words(core, NUM_COLUMNS)
        num_features, size, num_gates = numbers[NUM_FEATURES], numbers[SIZE], numbers[NUM_GATES]
        first, state_size = num_gates - numbers[FEATURES_GATES], numbers[STATE_SIZE]
        bias = floats(numbers[BIAS], num_gates)
        given, left = float_rows(state, rows, state_size), float_rows(after, rows, state_size)
        before, gates, cells = _kept_arrays(kept, rows, steps, size, num_gates, state_size)
        nothing = np.zeros(size, np.float32)
        for t in range(steps):
            start, stop = t * rows, (t + 1) * rows
            step_outputs = float_rows(outputs + _FLOAT * t * stride * size, rows, size)
            last_outputs = float_rows(outputs + _FLOAT * (t - 1) * stride * size, rows, size) if t > 0 else given
            is_new = flags(begins + t * stride, rows)
            _begin_step(is_new, begins != 0, before[start:stop], last_outputs, gates[start:stop], first)
            gates_at = kept + _FLOAT * (steps * rows * size + start * num_gates)
            step_features = features + _FLOAT * t * stride * num_features
            _fill_gates(numbers, step_features, kept + _FLOAT * start * size, gates_at, rows)
            for row in range(rows):
                now = start + row
                cell_before = cells[now - rows] if t > 0 else given[row, size:]
                if begins != 0 and is_new[row]:
                    cell_before = nothing
                step(gates[now], bias, before[now], cell_before, cells[now], step_outputs[row])
        last_outputs = float_rows(outputs + _FLOAT * (steps - 1) * stride * size, rows, size)
        for row in range(rows):
            copy(left[row, :size], last_outputs[row])
            copy(left[row, size:], cells[(steps - 1) * rows + row])

    return forward


@inlined
def _spread_gradients(numbers, gates, recurrent, to_features, rows):  # type: ignore[no-untyped-def]
    """From the gradients of a step's gates those of the outputs before it and, unless the address is 0, of features."""
    num_features, size, num_gates = numbers[NUM_FEATURES], numbers[SIZE], numbers[NUM_GATES]
    of_features, of_state = numbers[FEATURES_GATES], numbers[STATE_GATES]
    if of_state > 0:
        multiply(rows, size, of_state, gates, num_gates, numbers[STATE_BACK], size, 0.0, recurrent, size)
    if to_features != 0:
        multiply(
            rows, num_features, of_features, gates + _FLOAT * (num_gates - of_features), num_gates,
            numbers[FEATURES_BACK], num_features, 0.0, to_features, num_features,
        )  # fmt: skip


@inlined
def _add_weight_gradients(numbers, to_weights, features, before, gates, to_gates):  # type: ignore[no-untyped-def]
    """Add what some rows contribute: the gradients of their gates (an array, and its address) times their features
    and the outputs before their step (addresses)."""
    num_features, size, num_gates = numbers[NUM_FEATURES], numbers[SIZE], numbers[NUM_GATES]
    of_features, of_state, count = numbers[FEATURES_GATES], numbers[STATE_GATES], len(gates)
    to_bias = floats(to_weights + _FLOAT * num_features * of_features, num_gates)
    to_state_weight = to_weights + _FLOAT * (num_features * of_features + num_gates)
    for row in range(count):
        add(to_bias, gates[row])
    if of_state > 0:
        multiply_transposed(size, of_state, count, before, size, to_gates, num_gates, 1.0, to_state_weight, of_state)
    multiply_transposed(
        num_features, of_features, count, features, num_features, to_gates + _FLOAT * (num_gates - of_features),
        num_gates, 1.0, to_weights, of_features,
    )  # fmt: skip


@inlined
def _begin_gradients(to_given, recurrent, carried, carries_outputs):  # type: ignore[no-untyped-def]
    """Begin with the gradients of the state after the last step, `to_given`."""
    size = recurrent.shape[1]
    for row in range(len(to_given)):
        if carries_outputs:
            copy(carried[row], to_given[row])
        else:
            copy(recurrent[row], to_given[row, :size])
            copy(carried[row], to_given[row, size:])


@inlined
def _end_gradients(to_given, recurrent, carried, carries_outputs, is_new, has_new):  # type: ignore[no-untyped-def]
    """Write the gradients of the state before the first step into `to_given`, 0 in rows whose episode begins there."""
    size = recurrent.shape[1]
    for row in range(len(to_given)):
        if has_new and is_new[row]:
            fill(to_given[row], np.float32(0))
        elif carries_outputs:
            copy(to_given[row], carried[row])
            add(to_given[row], recurrent[row])
        else:
            copy(to_given[row, :size], recurrent[row])
            copy(to_given[row, size:], carried[row])


def _backward_over_steps(step_back: Any, carries_outputs: bool) -> Any:
    """The `backward` of `Sequences` for a recurrence with this step."""

    def backward(  # type: ignore[no-untyped-def]
        core, features, to_outputs, begins, state, to_state, kept, rows, stride, steps, to_features, to_weights
    ):
        numbers = words(core, NUM_COLUMNS)
        num_features, size, num_gates = numbers[NUM_FEATURES], numbers[SIZE], numbers[NUM_GATES]
        state_size = numbers[STATE_SIZE]
        given, to_given = float_rows(state, rows, state_size), float_rows(to_state, rows, state_size)
        before, gates, cells = _kept_arrays(kept, rows, steps, size, num_gates, state_size)
        gates_at, nothing = kept + _FLOAT * steps * rows * size, np.zeros(size, np.float32)
        recurrent, carried = np.zeros((rows, size), np.float32), np.zeros((rows, size), np.float32)
        _begin_gradients(to_given, recurrent, carried, carries_outputs)
        at_once = max(1, ROWS_PER_PRODUCT // rows)  # steps in one product for the gradients of weights
        their_features = np.empty((at_once * rows, num_features), np.float32)
        stop = steps
        while stop > 0:
            start = max(0, stop - at_once)
            for t in range(stop - 1, start - 1, -1):
                to_step_outputs = float_rows(to_outputs + _FLOAT * t * stride * size, rows, size)
                is_new, is_next_new = flags(begins + t * stride, rows), flags(begins + (t + 1) * stride, rows)
                for row in range(rows):
                    now = t * rows + row
                    cell_before = cells[now - rows] if t > 0 else given[row, size:]
                    if begins != 0:
                        if is_new[row]:
                            cell_before = nothing
                        if t + 1 < steps and is_next_new[row]:
                            fill(recurrent[row], np.float32(0))
                            fill(carried[row], np.float32(0))
                    to_output = to_step_outputs[row]
                    step_back(gates[now], before[now], cell_before, cells[now], to_output, recurrent[row], carried[row])
                to_seen = to_features + _FLOAT * t * stride * num_features if to_features != 0 else 0
                step_gates = gates_at + _FLOAT * t * rows * num_gates
                _spread_gradients(numbers, step_gates, recurrent.ctypes.data, to_seen, rows)
                step_features = float_rows(features + _FLOAT * t * stride * num_features, rows, num_features)
                for row in range(rows):
                    copy(their_features[(t - start) * rows + row], step_features[row])
            _add_weight_gradients(
                numbers, to_weights, their_features.ctypes.data, kept + _FLOAT * start * rows * size,
                gates[start * rows : stop * rows], gates_at + _FLOAT * start * rows * num_gates,
            )  # fmt: skip
            stop = start
        _end_gradients(to_given, recurrent, carried, carries_outputs, flags(begins, rows), begins != 0)

    return backward


LSTM = sequences(lstm_step, lstm_step_back, carries_outputs=False)
GRU = sequences(gru_step, gru_step_back, carries_outputs=True)
MINGRU = sequences(mingru_step, mingru_step_back, carries_outputs=True)
KINDS = {"lstm": LSTM, "gru": GRU, "mingru": MINGRU}


@AddressedFunction
def turn_weights(core):  # type: ignore[no-untyped-def]
    """Write the transposed weights for the backward pass: products of few rows are twice as fast with them."""
    numbers = words(core, NUM_COLUMNS)
    weight = float_rows(numbers[FEATURES_WEIGHT], numbers[NUM_FEATURES], numbers[FEATURES_GATES])
    _turn(weight, float_rows(numbers[FEATURES_BACK], numbers[FEATURES_GATES], numbers[NUM_FEATURES]))
    state_weight = float_rows(numbers[STATE_WEIGHT], numbers[SIZE], numbers[STATE_GATES])
    _turn(state_weight, float_rows(numbers[STATE_BACK], numbers[STATE_GATES], numbers[SIZE]))


@callable_from_compiled
def _turn(matrix, turned):  # type: ignore[no-untyped-def]
    rows, columns = matrix.shape
    for first_row in range(0, rows, 16):  # a cache line of each
        for first in range(0, columns, 16):
            for j in range(first, min(first + 16, columns)):
                for i in range(first_row, min(first_row + 16, rows)):
                    turned[j, i] = matrix[i, j]


# --- sequences of many rows split among threads: each part of the rows goes through all steps on one thread


WORK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "function", "core", "features", "outputs", "begins", "state", "after", "kept", "to_features", "to_weights",
            "rows", "steps", "num_features", "size", "state_size", "width", "num_weights",
        )
    ]
)  # fmt: skip
"""Sequences to be split among threads: `function` is an address out of a `Sequences`, the rest are its arguments. In
the backward pass `outputs` and `after` are gradients; each part has its own `num_weights` numbers of `to_weights`."""

_work = record_at(WORK)


@AddressedFunction
def forward_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """The forward pass for part number `part` of the rows of `WORK`, ROWS_PER_BLOCK at a time."""
    work, threads = _work(address), set_blas_threads(1)
    stop = work.rows * (part + 1) // num_parts
    for start in range(work.rows * part // num_parts, stop, ROWS_PER_BLOCK):
        rows = min(ROWS_PER_BLOCK, stop - start)
        arguments = (
            work.core,
            work.features + _FLOAT * start * work.num_features,
            work.outputs + _FLOAT * start * work.size,
            work.begins + start if work.begins != 0 else 0,
            work.state + _FLOAT * start * work.state_size,
            work.after + _FLOAT * start * work.state_size,
            work.kept + _FLOAT * start * work.steps * work.width,
            rows,
            work.rows,
            work.steps,
        )
        call(work.function, arguments)
    set_blas_threads(threads)


@AddressedFunction
def backward_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """The backward pass for part number `part` of the rows of `WORK`, ROWS_PER_BLOCK at a time."""
    work, threads = _work(address), set_blas_threads(1)
    stop = work.rows * (part + 1) // num_parts
    for start in range(work.rows * part // num_parts, stop, ROWS_PER_BLOCK):
        rows = min(ROWS_PER_BLOCK, stop - start)
        arguments = (
            work.core,
            work.features + _FLOAT * start * work.num_features,
            work.outputs + _FLOAT * start * work.size,
            work.begins + start if work.begins != 0 else 0,
            work.state + _FLOAT * start * work.state_size,
            work.after + _FLOAT * start * work.state_size,
            work.kept + _FLOAT * start * work.steps * work.width,
            rows,
            work.rows,
            work.steps,
            work.to_features + _FLOAT * start * work.num_features if work.to_features != 0 else 0,
            work.to_weights + _FLOAT * part * work.num_weights,
        )
        call(work.function, arguments)
    set_blas_threads(threads)


# --- whole sequences of torch tensors, split among threads

THREADS_FROM_UNITS = 16_384
"""Outputs (units of all rows and steps) from which on several threads save more time than it takes to wake them."""
ROWS_PER_PART = 4
"""The fewest rows for a thread: each thread reads all weights at every step."""


class CompiledPasses(NamedTuple):
    """The passes of the kernels for the CPU."""

    sequences: Sequences

    def forward(
        self, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor], keeps: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        return forward(self.sequences, features, state, begins, weights)

    def backward(self, *arguments: Any) -> tuple[Tensor | None, ...]:
        return backward(self.sequences, *arguments)


class CoreNumbers:
    """One layer of a core as the kernels take it: addresses of weights, sizes, and room for transposed weights."""

    def __init__(self, weights: Sequence[Tensor], state_size: int) -> None:
        """Weights of the features [F, G], bias, and of the state [H, G'], which may be missing."""
        weight, bias, *others = weights
        num_units = state_size if not others else len(others[0])
        shapes = [weight.shape, bias.shape, others[0].shape if others else torch.Size([num_units, 0])]
        self.shapes = shapes
        self._back = [torch.empty(shape[1], shape[0]) for shape in (shapes[0], shapes[2])]
        sizes = [shapes[0][0], shapes[2][0], shapes[1][0], shapes[0][1], shapes[2][1], state_size]
        self.numbers = np.array([0, 0, 0, *(tensor.data_ptr() for tensor in self._back), *sizes], np.int64)
        self.point_to(weights)

    def point_to(self, weights: Sequence[Tensor]) -> None:
        """Use these weights; they must be contiguous, and somebody must keep them alive."""
        self.numbers[: len(weights)] = [tensor.data_ptr() for tensor in weights]

    @property
    def size(self) -> int:
        """Units in the output of a step."""
        return int(self.numbers[SIZE])

    @property
    def width_kept(self) -> int:
        """Numbers that the forward pass keeps for the backward pass, for each row of each step."""
        return width_kept(*(int(self.numbers[c]) for c in (NUM_GATES, STATE_SIZE)))


def forward(
    kind: Sequences, features: Tensor, state: Tensor, begins: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs [T, B, H], the state after the last step, and the numbers that `backward` needs."""
    weights = [tensor.detach().contiguous() for tensor in weights]
    core = CoreNumbers(weights, state.shape[1])
    outputs, after = torch.empty(*features.shape[:2], core.size), torch.empty(state.shape)
    kept = torch.empty(features.shape[0] * features.shape[1] * core.width_kept)
    task = _task(kind.forward.address, core, features, state, begins, kept)
    task.set(outputs=outputs.numpy(), after=after.numpy())
    forward_part.in_parts(_num_parts(outputs), task.address)
    return outputs, after, kept


def backward(
    kind: Sequences, to_outputs: Tensor, to_after: Tensor, features: Tensor, state: Tensor,
    begins: Tensor | None, weights: Sequence[Tensor], needs_features: bool, kept: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the features, the state and the three weights, from those of the outputs and the state after.

    Overwrites `kept`: a second copy of these arrays, the largest here, would take longer than the arithmetic.
    """
    weights = [tensor.detach().contiguous() for tensor in weights]
    core, num_parts = CoreNumbers(weights, state.shape[1]), _num_parts(to_outputs)
    sizes = [shape.numel() for shape in core.shapes]
    to_features = torch.empty(features.shape if needs_features else 0)
    to_weights, to_state = torch.zeros(num_parts, sum(sizes)), to_after.clone(memory_format=torch.contiguous_format)
    turn_weights(core.numbers.ctypes.data)
    task = _task(kind.backward.address, core, features, state, begins, kept)
    task.set(outputs=to_outputs.contiguous().numpy(), after=to_state.numpy(), to_features=to_features.numpy())
    task.set(to_weights=to_weights.numpy(), num_weights=sum(sizes))
    backward_part.in_parts(num_parts, task.address)
    found = [part.view(shape) for part, shape in zip(to_weights.sum(0).split(sizes), core.shapes, strict=True)]
    return to_features if needs_features else None, to_state, *found


def _task(
    function: int, core: CoreNumbers, features: Tensor, state: Tensor, begins: Tensor | None, kept: Tensor
) -> Task:
    steps, rows, num_features = features.shape
    task = Task(WORK)
    task.set(function=function, core=core.numbers, rows=rows, steps=steps, num_features=num_features, size=core.size)
    task.set(features=features.detach().contiguous().numpy(), state=state.detach().contiguous().numpy())
    task.set(state_size=state.shape[1], width=core.width_kept, kept=kept.numpy())
    if begins is not None:
        task.set(begins=begins.contiguous().numpy())
    return task


def _num_parts(outputs: Tensor) -> int:
    """Into how many parts the rows are split, one for each thread."""
    pay = outputs.numel() // THREADS_FROM_UNITS
    return max(1, min(torch.get_num_threads(), pay, outputs.shape[1] // ROWS_PER_PART))
