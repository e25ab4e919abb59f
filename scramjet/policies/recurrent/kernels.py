"""The recurrences of memory on the CPU, compiled: whole sequences of some rows, forward and back, on one core.

A thread takes a few rows through all steps together, so that their gates and all weights stay in its core's cache;
nothing waits for another thread in between. All is float32. What each step began with, gates and cells are kept for the
way back, row after row of one step after the other: all steps of these rows are the rows of one matrix. `begins` is 0
where no episode begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scramjet.compile.addresses import AddressedFunction, call, flags, float_rows, floats, record_at, words
from scramjet.compile.blas import multiply, multiply_transposed, set_blas_threads
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import add, copy, fill, inlined, sigmoid, tanh

ROWS_PER_BLOCK = 16
"""Rows that go through all steps together."""
ROWS_PER_PRODUCT = 128
"""Rows of all steps that make one product for the gradients of weights."""

# A core in numbers: addresses of its weights [F, gates of the features], [gates] and [H, gates of the state], and of
# the first and the last turned round; sizes. The features act on the last columns of the gates, the state on the first.
(
    FEATURES_WEIGHT, BIAS, STATE_WEIGHT, FEATURES_BACK, STATE_BACK,
    NUM_FEATURES, SIZE, NUM_GATES, FEATURES_GATES, STATE_GATES, STATE_SIZE,
) = range(11)  # fmt: skip
NUM_COLUMNS = 11

_FLOAT = 4  # bytes

# Loops over the units of a row. Each is short: the compiler checks at every start of a loop that none of its arrays
# overlap, and with the whole of a step in one loop that took longer than the rest.


@inlined
def _open(gate, bias):  # type: ignore[no-untyped-def]
    for j in range(len(gate)):
        gate[j] = sigmoid(gate[j] + bias[j])


@inlined
def _squash(gate, bias):  # type: ignore[no-untyped-def]
    for j in range(len(gate)):
        gate[j] = tanh(gate[j] + bias[j])


@inlined
def _lstm_outputs(i, f, g, o, before, cell, output):  # type: ignore[no-untyped-def]
    for j in range(len(cell)):
        now = f[j] * before[j] + i[j] * g[j]
        cell[j] = now
        output[j] = o[j] * tanh(now)


@inlined
def _lstm_step(gate, bias, before, cell_before, cell, output):  # type: ignore[no-untyped-def]
    """Gates: input, forget, candidate, output."""
    size = len(output)
    _open(gate[: 2 * size], bias[: 2 * size])
    _squash(gate[2 * size : 3 * size], bias[2 * size : 3 * size])
    _open(gate[3 * size :], bias[3 * size :])
    i, f, g, o = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _lstm_outputs(i, f, g, o, cell_before, cell, output)


@inlined
def _lstm_back_to_cell(o, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(cell)):
        to_hidden, squashed, o_j = to_output[j] + recurrent[j], tanh(cell[j]), o[j]
        carried[j] += to_hidden * o_j * (one - squashed * squashed)
        o[j] = to_hidden * squashed * o_j * (one - o_j)


@inlined
def _lstm_back_to_input(i, g, to_cell):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(to_cell)):
        to_product, g_j = to_cell[j] * i[j], g[j]
        i[j] = to_product * g_j * (one - i[j])
        g[j] = to_product * (one - g_j * g_j)


@inlined
def _lstm_back_to_before(f, before, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(carried)):
        to_before = carried[j] * f[j]
        f[j] = to_before * before[j] * (one - f[j])
        carried[j] = to_before


@inlined
def _lstm_step_back(gate, before, cell_before, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    """`recurrent`: the gradients of the outputs from the step after, `carried` those of the cells."""
    size = len(cell)
    i, f, g, o = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _lstm_back_to_cell(o, cell, to_output, recurrent, carried)
    _lstm_back_to_input(i, g, carried)
    _lstm_back_to_before(f, cell_before, carried)


@inlined
def _gru_candidate(recalled, r, n, recurrent_bias, bias):  # type: ignore[no-untyped-def]
    for j in range(len(n)):
        recalled_j = recalled[j] + recurrent_bias[j]
        recalled[j] = recalled_j
        n[j] = tanh(n[j] + bias[j] + r[j] * recalled_j)


@inlined
def _between(share, start, end, result):  # type: ignore[no-untyped-def]
    for j in range(len(result)):
        result[j] = start[j] + share[j] * (end[j] - start[j])


@inlined
def _gru_step(gate, bias, before, cell_before, cell, output):  # type: ignore[no-untyped-def]
    """Gates: what the state gives to the candidate, reset, keep, candidate."""
    size = len(output)
    _open(gate[size : 3 * size], bias[size : 3 * size])
    recalled, r, z, n = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _gru_candidate(recalled, r, n, bias[:size], bias[3 * size :])
    _between(z, n, before, output)


@inlined
def _gru_back_to_gates(z, n, before, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(before)):
        to_hidden, z_j, n_j = to_output[j] + recurrent[j] + carried[j], z[j], n[j]
        carried[j] = to_hidden * z_j
        n[j] = to_hidden * (one - z_j) * (one - n_j * n_j)
        z[j] = to_hidden * z_j * (one - z_j) * (before[j] - n_j)


@inlined
def _gru_back_to_reset(recalled, r, to_n):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(to_n)):
        to_recalled, r_j = to_n[j] * r[j], r[j]
        r[j] = to_recalled * recalled[j] * (one - r_j)
        recalled[j] = to_recalled


@inlined
def _gru_step_back(gate, before, cell_before, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    """The gradients of the outputs from the step after: `recurrent` through its gates, `carried` directly."""
    size = len(before)
    recalled, r, z, n = gate[:size], gate[size : 2 * size], gate[2 * size : 3 * size], gate[3 * size :]
    _gru_back_to_gates(z, n, before, to_output, recurrent, carried)
    _gru_back_to_reset(recalled, r, n)


@inlined
def _mingru_step(gate, bias, before, cell_before, cell, output):  # type: ignore[no-untyped-def]
    """Gates: how far to go towards the candidate, candidate."""
    size = len(output)
    _open(gate[:size], bias[:size])
    z, candidate, candidate_bias = gate[:size], gate[size:], bias[size:]
    for j in range(size):
        candidate[j] += candidate_bias[j]
    _between(z, before, candidate, output)


@inlined
def _mingru_back(z, candidate, before, to_output, carried):  # type: ignore[no-untyped-def]
    one = np.float32(1)
    for j in range(len(before)):
        to_hidden, z_j = to_output[j] + carried[j], z[j]
        to_candidate = to_hidden * z_j
        carried[j] = to_hidden - to_candidate
        z[j] = to_candidate * (one - z_j) * (candidate[j] - before[j])
        candidate[j] = to_candidate


@inlined
def _mingru_step_back(gate, before, cell_before, cell, to_output, recurrent, carried):  # type: ignore[no-untyped-def]
    """The gradients of the outputs from the step after: all `carried`."""
    size = len(before)
    _mingru_back(gate[:size], gate[size:], before, to_output, carried)


class Sequences(NamedTuple):
    """One kind of recurrence over sequences: gates from features and outputs before, outputs from gates.

    Addresses: `core` of its numbers, `features`, `outputs` and `begins` of the first step, which are `stride` rows
    apart from step to step, `state` before the first step and `after` the last [rows, state size], `kept` of numbers
    that the way back needs, `width_kept` for each row of all steps.
    """

    forward: AddressedFunction
    """(core, features, outputs, begins, state, after, kept, rows, stride, steps)"""
    backward: AddressedFunction
    """(core, features, to_outputs, begins, state, to_state, kept, rows, stride, steps, to_features, to_weights): adds
    to the gradients of features' weight, bias and state's weight, one behind the other; `to_state`, the gradients of
    the state after, become those of the state before. `to_features` may be 0. Writes over what was kept."""


def width_kept(num_gates: int, state_size: int) -> int:
    """Numbers that are kept for each row of all steps."""
    return num_gates + state_size


def sequences(step: Any, step_back: Any, *, carries_outputs: bool) -> Sequences:
    """Compile a recurrence from what it does to one row: its gates, once the products are in them, and the way back.

    `carries_outputs`: what the way back carries from step to step is the gradient of outputs, not of cells.
    """

    def forward(  # type: ignore[no-untyped-def]
        core, features, outputs, begins, state, after, kept, rows, stride, steps
    ):
        numbers = words(core, NUM_COLUMNS)
        num_features, size, num_gates = numbers[NUM_FEATURES], numbers[SIZE], numbers[NUM_GATES]
        first, last, state_size = num_gates - numbers[FEATURES_GATES], numbers[STATE_GATES], numbers[STATE_SIZE]
        of_features = numbers[FEATURES_GATES]
        bias = floats(numbers[BIAS], num_gates)
        given, left = float_rows(state, rows, state_size), float_rows(after, rows, state_size)
        before = float_rows(kept, steps * rows, size)
        gates = float_rows(kept + _FLOAT * steps * rows * size, steps * rows, num_gates)
        cells = float_rows(kept + _FLOAT * steps * rows * (size + num_gates), steps * rows, state_size - size)
        nothing = np.zeros(size, np.float32)
        for t in range(steps):
            place = t * rows
            seen = features + _FLOAT * t * stride * num_features
            shown = float_rows(outputs + _FLOAT * t * stride * size, rows, size)
            last_shown = float_rows(outputs + _FLOAT * max(t - 1, 0) * stride * size, rows, size)
            begun = flags(begins + t * stride, rows)
            for row in range(rows):
                own = before[place + row]
                if begins != 0 and begun[row]:
                    fill(own, np.float32(0))
                elif t > 0:
                    copy(own, last_shown[row])
                else:
                    copy(own, given[row, :size])
                fill(gates[place + row, :first], np.float32(0))
            block = kept + _FLOAT * (steps * rows * size + place * num_gates)
            multiply(
                rows, of_features, num_features, seen, num_features, numbers[FEATURES_WEIGHT], of_features, 0.0,
                block + _FLOAT * first, num_gates,
            )  # fmt: skip
            if last > 0:
                begun_with = kept + _FLOAT * place * size
                multiply(rows, last, size, begun_with, size, numbers[STATE_WEIGHT], last, 1.0, block, num_gates)
            for row in range(rows):
                now = place + row
                cell_before = cells[now - rows] if t > 0 else given[row, size:]
                if begins != 0 and begun[row]:
                    cell_before = nothing
                step(gates[now], bias, before[now], cell_before, cells[now], shown[row])
        ended = float_rows(outputs + _FLOAT * (steps - 1) * stride * size, rows, size)
        for row in range(rows):
            copy(left[row, :size], ended[row])
            copy(left[row, size:], cells[(steps - 1) * rows + row])

    def backward(  # type: ignore[no-untyped-def]
        core, features, to_outputs, begins, state, to_state, kept, rows, stride, steps, to_features, to_weights
    ):
        numbers = words(core, NUM_COLUMNS)
        num_features, size, num_gates = numbers[NUM_FEATURES], numbers[SIZE], numbers[NUM_GATES]
        first, last, state_size = num_gates - numbers[FEATURES_GATES], numbers[STATE_GATES], numbers[STATE_SIZE]
        of_features = num_gates - first
        to_bias = floats(to_weights + _FLOAT * num_features * of_features, num_gates)
        to_state_weight = to_weights + _FLOAT * (num_features * of_features + num_gates)
        gates_at = kept + _FLOAT * steps * rows * size
        given, to_given = float_rows(state, rows, state_size), float_rows(to_state, rows, state_size)
        before = float_rows(kept, steps * rows, size)
        gates = float_rows(kept + _FLOAT * steps * rows * size, steps * rows, num_gates)
        cells = float_rows(kept + _FLOAT * steps * rows * (size + num_gates), steps * rows, state_size - size)
        nothing = np.zeros(size, np.float32)
        recurrent, carried = np.zeros((rows, size), np.float32), np.zeros((rows, size), np.float32)
        for row in range(rows):
            if carries_outputs:
                copy(carried[row], to_given[row])
            else:
                copy(recurrent[row], to_given[row, :size])
                copy(carried[row], to_given[row, size:])
        at_once = max(1, ROWS_PER_PRODUCT // rows)
        all_seen = np.empty((at_once * rows, num_features), np.float32)
        end = steps
        while end > 0:
            begin = max(0, end - at_once)
            for t in range(end - 1, begin - 1, -1):
                place = t * rows
                to_shown = float_rows(to_outputs + _FLOAT * t * stride * size, rows, size)
                begun = flags(begins + t * stride, rows)
                begun_after = flags(begins + (t + 1) * stride, rows)
                for row in range(rows):
                    now = place + row
                    cell_before = cells[now - rows] if t > 0 else given[row, size:]
                    if begins != 0:
                        if begun[row]:
                            cell_before = nothing
                        if t + 1 < steps and begun_after[row]:
                            fill(recurrent[row], np.float32(0))
                            fill(carried[row], np.float32(0))
                    step_back(
                        gates[now], before[now], cell_before, cells[now], to_shown[row], recurrent[row], carried[row]
                    )
                block = gates_at + _FLOAT * place * num_gates
                if last > 0:
                    multiply(
                        rows, size, last, block, num_gates, numbers[STATE_BACK], size, 0.0, recurrent.ctypes.data, size
                    )
                if to_features != 0:
                    to_seen = to_features + _FLOAT * t * stride * num_features
                    multiply(
                        rows, num_features, of_features, block + _FLOAT * first, num_gates, numbers[FEATURES_BACK],
                        num_features, 0.0, to_seen, num_features,
                    )  # fmt: skip
                seen = float_rows(features + _FLOAT * t * stride * num_features, rows, num_features)
                for row in range(rows):
                    copy(all_seen[(t - begin) * rows + row], seen[row])
            part = gates[begin * rows : end * rows]
            for now in range(len(part)):
                add(to_bias, part[now])
            count, block = (end - begin) * rows, gates_at + _FLOAT * begin * rows * num_gates
            if last > 0:
                begun_with = kept + _FLOAT * begin * rows * size
                multiply_transposed(size, last, count, begun_with, size, block, num_gates, 1.0, to_state_weight, last)
            multiply_transposed(
                num_features, of_features, count, all_seen.ctypes.data, num_features, block + _FLOAT * first, num_gates,
                1.0, to_weights, of_features,
            )  # fmt: skip
            end = begin
        begun = flags(begins, rows)
        for row in range(rows):
            if begins != 0 and begun[row]:
                fill(to_given[row], np.float32(0))
            elif carries_outputs:
                copy(to_given[row], carried[row])
                add(to_given[row], recurrent[row])
            else:
                copy(to_given[row, :size], recurrent[row])
                copy(to_given[row, size:], carried[row])

    return Sequences(AddressedFunction(forward), AddressedFunction(backward))


LSTM = sequences(_lstm_step, _lstm_step_back, carries_outputs=False)
GRU = sequences(_gru_step, _gru_step_back, carries_outputs=True)
MINGRU = sequences(_mingru_step, _mingru_step_back, carries_outputs=True)


@AddressedFunction
def turn_weights(core):  # type: ignore[no-untyped-def]
    """The weights turned round, as the way back needs them: products of few rows are twice as fast so."""
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


WORK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "function", "core", "features", "outputs", "begins", "state", "after", "kept", "to_features", "to_weights",
            "rows", "steps", "num_features", "size", "state_size", "width", "num_weights",
        )
    ]
)  # fmt: skip
"""Rows of sequences for several threads: `function` of a `Sequences` and its arguments; `outputs` and `after` stand for
their gradients on the way back, `num_weights` numbers of `to_weights` belong to each part."""

_work = record_at(WORK)


@AddressedFunction
def forward_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """A part's rows of `WORK`, a block after the other."""
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
    """The way back of a part's rows of `WORK`."""
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
