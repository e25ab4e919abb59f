"""PPO of small networks on the CPU, compiled: forward, loss and backward of a block of samples on one core.

Operator by operator, a small network's time goes into calling operators, waiting for threads between them and moving
activations through memory. Here a thread takes its part of a minibatch through everything, block by block: what it
computes stays in the cache of its core. Products are those of torch's own BLAS (see engine/blas.py).

A network is one or two towers: layers, where asked for a memory core, and heads that write some columns of the outputs
[rows, A + 1]: what the distribution needs, then the value. Numbers say where weights are and what follows what, so that
one compilation serves every network (see engine/machine.py); an address of 0 stands for what is not there. Letters of
shapes: N samples, D inputs, A inputs of the distribution, U units (samples, or with memory sequences of T steps).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import numpy as np
from numba import prange, types

from scramjet.engine.activations import add, copy, fill, inlined, inlined_sum, sum_of_squares, tanh
from scramjet.engine.blas import multiply, multiply_by_transposed, multiply_transposed, set_blas_threads
from scramjet.engine.jit import PARALLEL_REGION, ThreadsThatPay, callable_from_compiled, compiled, launch_threads
from scramjet.engine.machine import (
    NativeFunction,
    call,
    doubles,
    flags,
    float_rows,
    floats,
    next_number,
    record_at,
    use_wide_vectors,
    word_rows,
    words,
)
from scramjet.policies.config import MAX_LOG_STD, MIN_LOG_STD
from scramjet.policies.sampling import MASKED_LOGIT, sample_components, sample_normal

# A layer in numbers: addresses of its weight [outputs, inputs] and bias, sizes, what follows, where the gradients of
# weight and bias stand among all, and its first column: among a tower's activations, or of a head in the outputs.
WEIGHT, BIAS, INPUTS, OUTPUTS, ACTIVATION, GRADIENT, PLACE = range(7)
NUM_LAYER_COLUMNS = 7
NOTHING, TANH, RELU = range(3)
# A tower in numbers: its layers and heads, columns of activations and of all it keeps; with a core its numbers and
# functions, its sizes, and its places among gradients and in a state.
(
    FIRST_LAYER, FIRST_HEAD, END, NUM_ACTIVATIONS, WIDTH,
    CORE, CORE_FORWARD, CORE_BACKWARD, CORE_SIZE, CORE_STATE, CORE_GRADIENT, STATE_PLACE,
) = range(12)  # fmt: skip
NUM_TOWER_COLUMNS = 12

# What Adam needs of a parameter: addresses of it, of both its moments and of its count of steps, its place among
# gradients, how many numbers.
VALUES, MEANS, SQUARES, STEPS, AT, COUNT = range(6)
NUM_PARAMETER_COLUMNS = 6

TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction")
NUM_TERMS = len(TERMS)

WORK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "layers", "towers", "num_towers", "num_outputs", "offsets", "num_components", "num_inputs", "state_size",
            "widest", "inputs", "mask", "noise", "action", "log_prob", "value", "advantage", "returns", "state",
            "begins", "units", "num_units", "num_taken", "steps", "block", "scratch", "scratch_size", "partials",
            "num_weights", "terms", "normalizes", "order", "num_ordered", "num_minibatches", "diagnostics",
            "parameters", "num_parameters", "draw", "loss", "layer", "layer_back", "head", "head_back",
            "turn_weights", "core", "core_back", "next_part",
        )
    ]
    + [
        (name, np.float64)
        for name in (
            "advantage_mean", "advantage_scale", "clip", "entropy_coef", "value_clip", "value_coef", "max_norm", "norm",
            "learning_rate", "beta1", "beta2", "epsilon", "num_steps",
        )
    ]
)  # fmt: skip
"""What the functions below work on. Addresses: of the network's numbers, of samples [N, ...] or rows, of functions."""

work_at = record_at(WORK)
_FLOAT = 4  # bytes


@inlined
def _add_and_squash(row, bias):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for j in range(len(row)):
        row[j] = tanh(row[j] + bias[j])


@inlined
def _add_and_cut(row, bias):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for j in range(len(row)):
        total = row[j] + bias[j]
        row[j] = np.float32(0) if total < 0 else total  # what is not a number stays so


@inlined
def _through_tanh(to_row, row):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for j in range(len(row)):
        to_row[j] *= np.float32(1) - row[j] * row[j]


@inlined
def _through_cut(to_row, row):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for j in range(len(row)):
        to_row[j] = to_row[j] if row[j] > 0 else np.float32(0)


@inlined
def _add_turned(matrix, turned):  # type: ignore[no-untyped-def]
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] += turned[j, i]


@inlined_sum
def _dot(row, other):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    total = np.float32(0)
    for j in range(len(row)):
        total += row[j] * other[j]
    return total


@NativeFunction
def layer(numbers, x, y, rows):  # type: ignore[no-untyped-def]
    """y [rows, outputs] of x [rows, inputs]."""
    use_wide_vectors()
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    multiply_by_transposed(
        rows, num_outputs, num_inputs, x, num_inputs, own[WEIGHT], num_inputs, 0.0, y, num_outputs
    )  # fmt: skip
    bias = floats(own[BIAS], num_outputs)
    for row in range(rows):
        if own[ACTIVATION] == TANH:
            _add_and_squash(floats(y + _FLOAT * row * num_outputs, num_outputs), bias)
        else:
            _add_and_cut(floats(y + _FLOAT * row * num_outputs, num_outputs), bias)


@NativeFunction
def layer_back(numbers, x, y, to_y, to_x, is_first, rows, to_weights):  # type: ignore[no-untyped-def]
    """Adds to the gradients of its weights, sets to_x [rows, inputs]; nobody reads that of the first layer. `to_y` is
    written over."""
    use_wide_vectors()
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    to_weight = to_weights + _FLOAT * own[GRADIENT]
    to_bias = floats(to_weight + _FLOAT * num_inputs * num_outputs, num_outputs)
    for row in range(rows):
        to_result = floats(to_y + _FLOAT * row * num_outputs, num_outputs)
        if own[ACTIVATION] == TANH:
            _through_tanh(to_result, floats(y + _FLOAT * row * num_outputs, num_outputs))
        else:
            _through_cut(to_result, floats(y + _FLOAT * row * num_outputs, num_outputs))
        add(to_bias, to_result)
    if is_first != 0 and 4 * num_inputs < num_outputs and num_inputs < rows:
        # A long thin product is faster the other way round; there is room for it.
        multiply_transposed(
            num_inputs, num_outputs, rows, x, num_inputs, to_y, num_outputs, 0.0, to_x, num_outputs
        )  # fmt: skip
        _add_turned(float_rows(to_weight, num_outputs, num_inputs), float_rows(to_x, num_inputs, num_outputs))
        return
    multiply_transposed(
        num_outputs, num_inputs, rows, to_y, num_outputs, x, num_inputs, 1.0, to_weight, num_inputs
    )  # fmt: skip
    if is_first == 0:
        multiply(rows, num_inputs, num_outputs, to_y, num_outputs, own[WEIGHT], num_inputs, 0.0, to_x, num_inputs)


NARROW = 4
"""Columns of a head up to which loops are faster than products."""


@NativeFunction
def head(numbers, features, outputs, rows, width):  # type: ignore[no-untyped-def]
    """A head's columns of outputs [rows, width]; one without inputs gives its bias."""
    use_wide_vectors()
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    columns, bias = outputs + _FLOAT * own[PLACE], floats(own[BIAS], num_outputs)
    if num_inputs > 0 and num_outputs <= NARROW:
        for row in range(rows):
            own_columns = floats(columns + _FLOAT * row * width, num_outputs)
            seen = floats(features + _FLOAT * row * num_inputs, num_inputs)
            for k in range(num_outputs):
                own_columns[k] = _dot(seen, floats(own[WEIGHT] + _FLOAT * k * num_inputs, num_inputs)) + bias[k]
        return
    if num_inputs > 0:
        multiply_by_transposed(
            rows, num_outputs, num_inputs, features, num_inputs, own[WEIGHT], num_inputs, 0.0, columns, width
        )  # fmt: skip
    for row in range(rows):
        own_columns = floats(columns + _FLOAT * row * width, num_outputs)
        if num_inputs > 0:
            add(own_columns, bias)
        else:
            copy(own_columns, bias)


@NativeFunction
def head_back(numbers, features, to_outputs, to_features, keep, rows, width, to_weights):  # type: ignore[no-untyped-def]
    """Adds to the gradients of its weights; sets those of the features, or adds to them where it is to `keep` them."""
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    to_columns, to_weight = to_outputs + _FLOAT * own[PLACE], to_weights + _FLOAT * own[GRADIENT]
    to_bias = floats(to_weight + _FLOAT * num_inputs * num_outputs, num_outputs)
    for row in range(rows):
        add(to_bias, floats(to_columns + _FLOAT * row * width, num_outputs))
    if num_inputs == 0:
        return
    multiply_transposed(
        num_outputs, num_inputs, rows, to_columns, width, features, num_inputs, 1.0, to_weight, num_inputs
    )  # fmt: skip
    multiply(
        rows, num_inputs, num_outputs, to_columns, width, own[WEIGHT], num_inputs, np.float32(keep), to_features,
        num_inputs,
    )  # fmt: skip


@callable_from_compiled
def _address_of(layers, k):  # type: ignore[no-untyped-def]
    return layers + 8 * NUM_LAYER_COLUMNS * k


@callable_from_compiled
def _tower(work, tower):  # type: ignore[no-untyped-def]
    return words(work.towers + 8 * NUM_TOWER_COLUMNS * tower, NUM_TOWER_COLUMNS)


@callable_from_compiled
def _features(address, tower, x, rows, sequences, state, begins, kept):  # type: ignore[no-untyped-def]
    """Where a tower's features are, of inputs at x; all that it computes lies from `kept` on.

    `rows` of all steps of `sequences`; with a core `state` [sequences, state size] is brought up to date.
    """
    work = work_at(address)
    own = _tower(work, tower)
    for k in range(own[FIRST_LAYER], own[FIRST_HEAD]):
        call(work.layer, (_address_of(work.layers, k), x, kept, rows))
        x = kept
        kept += _FLOAT * rows * words(_address_of(work.layers, k), NUM_LAYER_COLUMNS)[OUTPUTS]
    if own[CORE] == 0:
        return x
    call(work.core, (address, tower, x, rows, sequences, state, begins, kept))
    return kept + _FLOAT * sequences * own[CORE_STATE]


# A tower's core is compiled by itself, where there is one. From `kept` on lie the states it was given, its outputs, the
# states after it, and what its way back needs.


@NativeFunction
def core(address, tower, x, rows, sequences, state, begins, kept):  # type: ignore[no-untyped-def]
    """The outputs of a tower's core, of features at x; `state` is brought up to date."""
    work = work_at(address)
    own = _tower(work, tower)
    states = sequences * own[CORE_STATE]
    outputs = kept + _FLOAT * states
    after = outputs + _FLOAT * rows * own[CORE_SIZE]
    _take_state(work, own, sequences, state, kept)
    call(
        own[CORE_FORWARD],
        (own[CORE], x, outputs, begins, kept, after, after + _FLOAT * states, sequences, sequences, rows // sequences),
    )
    _give_state(work, own, sequences, after, state)


@NativeFunction
def core_back(address, tower, x, to_outputs, rows, sequences, begins, kept, to_x, to_weights):  # type: ignore[no-untyped-def]
    """Sets the gradient by x and adds to that of the core's weights."""
    work = work_at(address)
    own = _tower(work, tower)
    states = sequences * own[CORE_STATE]
    after = kept + _FLOAT * (states + rows * own[CORE_SIZE])
    fill(floats(after, states), np.float32(0))  # nobody learns from what comes after the rollout
    arguments = (
        own[CORE], x, to_outputs, begins, kept, after, after + _FLOAT * states, sequences, sequences, rows // sequences,
        to_x, to_weights + _FLOAT * own[CORE_GRADIENT],
    )  # fmt: skip
    call(own[CORE_BACKWARD], arguments)


@callable_from_compiled
def _take_state(work, own, sequences, state, result):  # type: ignore[no-untyped-def]
    """A core's own part of states."""
    size = own[CORE_STATE]
    for i in range(sequences):
        part = floats(state + _FLOAT * (i * work.state_size + own[STATE_PLACE]), size)
        copy(floats(result + _FLOAT * i * size, size), part)


@callable_from_compiled
def _give_state(work, own, sequences, part, state):  # type: ignore[no-untyped-def]
    size = own[CORE_STATE]
    for i in range(sequences):
        place = floats(state + _FLOAT * (i * work.state_size + own[STATE_PLACE]), size)
        copy(place, floats(part + _FLOAT * i * size, size))


@callable_from_compiled
def _features_back(address, tower, x, rows, sequences, begins, kept, to_features, other, to_weights):  # type: ignore[no-untyped-def]
    """The way back from a tower's features; `to_features` and `other` are written over."""
    work = work_at(address)
    own = _tower(work, tower)
    if own[CORE] != 0:
        last = words(_address_of(work.layers, own[FIRST_HEAD] - 1), NUM_LAYER_COLUMNS)
        core_kept = kept + _FLOAT * rows * own[NUM_ACTIVATIONS]
        given = core_kept - _FLOAT * rows * last[OUTPUTS]
        call(
            work.core_back,
            (address, tower, given, to_features, rows, sequences, begins, core_kept, other, to_weights),
        )
        to_features, other = other, to_features
    first = words(_address_of(work.layers, own[FIRST_LAYER]), NUM_LAYER_COLUMNS)[PLACE]
    for k in range(own[FIRST_HEAD] - 1, own[FIRST_LAYER] - 1, -1):
        numbers = words(_address_of(work.layers, k), NUM_LAYER_COLUMNS)
        y = kept + _FLOAT * rows * (numbers[PLACE] - first)
        is_first = k == own[FIRST_LAYER]
        below = x if is_first else y - _FLOAT * rows * numbers[INPUTS]
        arguments = _address_of(work.layers, k), below, y, to_features, other, 1 if is_first else 0, rows, to_weights
        call(work.layer_back, arguments)
        to_features, other = other, to_features


@callable_from_compiled
def _outputs(work, tower, features, outputs, rows):  # type: ignore[no-untyped-def]
    own = _tower(work, tower)
    for k in range(own[FIRST_HEAD], own[END]):
        call(work.head, (_address_of(work.layers, k), features, outputs, rows, work.num_outputs))


@callable_from_compiled
def samples_of(work, address):  # type: ignore[no-untyped-def]
    """One number for each sample."""
    return floats(address, work.num_units * work.steps)


@callable_from_compiled
def _fetch(work, first, num_units, samples, x, begins, state):  # type: ignore[no-untyped-def]
    """Units `first` on of those taken: their samples' numbers, inputs, and with memory beginnings and states."""
    units = words(work.units + 8 * first, num_units)
    steps, width, states = work.steps, work.num_inputs, work.state_size
    for t in range(steps):
        for i in range(num_units):
            row, sample = t * num_units + i, t * work.num_units + units[i]
            samples[row] = sample
            seen = floats(work.inputs + _FLOAT * sample * width, width)
            copy(floats(x + _FLOAT * row * width, width), seen)
            if work.begins != 0:
                flags(begins + row, 1)[0] = flags(work.begins + sample, 1)[0]
    if states > 0:
        for i in range(num_units):
            given = floats(work.state + _FLOAT * units[i] * states, states)
            copy(floats(state + _FLOAT * i * states, states), given)


@NativeFunction
def gradients_of_parts(worker, num_parts, address):  # type: ignore[no-untyped-def]
    """A worker's: of parts that nobody has begun, one after the other, so that all end together however fast each is.
    Which worker did a part makes no difference."""
    work, threads = work_at(address), set_blas_threads(1)
    part = next_number(work.next_part)
    while part < num_parts:
        _gradients_of_part(address, part, num_parts, work.scratch + _FLOAT * worker * work.scratch_size)
        part = next_number(work.next_part)
    set_blas_threads(threads)


@callable_from_compiled
def _gradients_of_part(address, part, num_parts, x):  # type: ignore[no-untyped-def]
    """Forward, loss and backward of a part's units; its gradients to partials[part], its terms to terms[part]. All that
    it computes lies from `x` on."""
    work = work_at(address)
    steps, width, num_towers = work.steps, work.num_outputs, work.num_towers
    partial, terms = work.partials + _FLOAT * part * work.num_weights, work.terms + 8 * NUM_TERMS * part
    fill(floats(partial, work.num_weights), np.float32(0))
    fill(doubles(terms, NUM_TERMS), 0.0)
    scale = np.empty(1, np.float32)
    scale[0] = 1.0 / (work.num_taken * steps)
    samples_of_block = np.empty(work.block * steps, np.int64)
    stop = work.num_taken * (part + 1) // num_parts
    for first in range(work.num_taken * part // num_parts, stop, work.block):
        num_units = min(work.block, stop - first)
        rows = num_units * steps
        samples = samples_of_block[:rows]
        outputs = x + _FLOAT * rows * work.num_inputs
        to_outputs = outputs + _FLOAT * rows * width
        to_features = to_outputs + _FLOAT * rows * width
        other = to_features + _FLOAT * rows * work.widest
        state = other + _FLOAT * rows * work.widest
        begins = state + _FLOAT * num_units * work.state_size
        kept = begins + _FLOAT * rows
        _fetch(work, first, num_units, samples, x, begins, state)
        if work.begins == 0:
            begins = 0
        at = kept
        for tower in range(num_towers):
            features = _features(address, tower, x, rows, num_units, state, begins, at)
            _outputs(work, tower, features, outputs, rows)
            at += _FLOAT * rows * _tower(work, tower)[WIDTH]
        call(
            work.loss, (address, samples.ctypes.data, rows, outputs, to_outputs, scale.ctypes.data, terms)
        )  # fmt: skip
        at = kept
        for tower in range(num_towers):
            own = _tower(work, tower)
            size = words(_address_of(work.layers, own[FIRST_HEAD]), NUM_LAYER_COLUMNS)[INPUTS]
            features = at + _FLOAT * rows * (own[NUM_ACTIVATIONS] - size)
            if own[CORE] != 0:
                size = own[CORE_SIZE]
                features = at + _FLOAT * (rows * own[NUM_ACTIVATIONS] + num_units * own[CORE_STATE])
            for k in range(own[FIRST_HEAD], own[END]):  # the first has inputs
                numbers, keep = _address_of(work.layers, k), 0 if k == own[FIRST_HEAD] else 1
                call(work.head_back, (numbers, features, to_outputs, to_features, keep, rows, width, partial))
            _features_back(address, tower, x, rows, num_units, begins, at, to_features, other, partial)
            at += _FLOAT * rows * own[WIDTH]


@NativeFunction
def begin_step(address, k):  # type: ignore[no-untyped-def]
    """Minibatch k of `order`, in `num_minibatches` parts of one size or one more; weights turned round for memory."""
    work = work_at(address)
    size, rest = work.num_ordered // work.num_minibatches, work.num_ordered % work.num_minibatches
    work.units = work.order + 8 * (size * k + min(k, rest))
    work.num_taken = size + 1 if k < rest else size
    words(work.next_part, 1)[0] = 0
    work.advantage_mean, work.advantage_scale = 0.0, 1.0
    if work.normalizes != 0:
        _normalize_advantages(work)
    for tower in range(work.num_towers):
        if _tower(work, tower)[CORE] != 0:
            call(work.turn_weights, (_tower(work, tower)[CORE],))


@callable_from_compiled
def _normalize_advantages(work):  # type: ignore[no-untyped-def]
    """Mean and 1 / (deviation + 1e-8) of the advantages taken, as `ppo.normalize` has it."""
    units, count, total, squares = words(work.units, work.num_taken), work.num_taken * work.steps, 0.0, 0.0
    for t in range(work.steps):
        advantage = floats(work.advantage + _FLOAT * t * work.num_units, work.num_units)
        total += _sum_of_chosen(advantage, units)
    mean = total / count
    for t in range(work.steps):
        advantage = floats(work.advantage + _FLOAT * t * work.num_units, work.num_units)
        squares += _squared_distances_of_chosen(advantage, units, mean)
    work.advantage_mean = mean
    work.advantage_scale = 1.0 / (math.sqrt(squares / max(count - 1, 1)) + 1e-8)


@inlined_sum
def _sum_of_chosen(row, chosen):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(chosen)):
        total += row[chosen[i]]
    return total


@inlined_sum
def _squared_distances_of_chosen(row, chosen, centre):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(chosen)):
        distance = row[chosen[i]] - centre
        total += distance * distance
    return total


@NativeFunction
def end_step(address, k, num_parts):  # type: ignore[no-untyped-def]
    """The gradients of all parts to those of the first, brought to a norm of at most `max_norm`; diagnostics to row k,
    the terms and the norm it had. With a learning rate, a step of Adam."""
    work = work_at(address)
    size = work.num_weights
    total = floats(work.partials, size)
    for part in range(1, num_parts):
        add(total, floats(work.partials + _FLOAT * part * size, size))
    norm = math.sqrt(sum_of_squares(total))
    factor = np.float32(work.max_norm / (norm + 1e-6))
    if not factor >= 1:  # nor where it is not a number: that must be seen
        for i in range(size):
            total[i] *= factor
    row = doubles(work.diagnostics + 8 * (NUM_TERMS + 1) * k, NUM_TERMS + 1)
    for i in range(NUM_TERMS):
        row[i] = 0.0
        for part in range(num_parts):
            row[i] += doubles(work.terms + 8 * NUM_TERMS * part, NUM_TERMS)[i] / (work.num_taken * work.steps)
    row[NUM_TERMS] = norm
    if work.num_parameters > 0:
        _adam(work)


@callable_from_compiled
def _adam(work):  # type: ignore[no-untyped-def]
    """One step of Adam (Kingma and Ba 2015), as torch has it."""
    work.num_steps += 1.0
    rate = np.float32(work.learning_rate / (1.0 - work.beta1**work.num_steps))
    root = np.float32(1.0 / math.sqrt(1.0 - work.beta2**work.num_steps))
    for k in range(work.num_parameters):
        own = words(work.parameters + 8 * NUM_PARAMETER_COLUMNS * k, NUM_PARAMETER_COLUMNS)
        count = own[COUNT]
        gradient = floats(work.partials + _FLOAT * own[AT], count)
        weight, mean = floats(own[VALUES], count), floats(own[MEANS], count)
        floats(own[STEPS], 1)[0] = work.num_steps
        _adam_loop(
            weight, gradient, mean, floats(own[SQUARES], count), rate, root, np.float32(1.0 - work.beta1),
            np.float32(work.beta2), np.float32(1.0 - work.beta2), np.float32(work.epsilon),
        )  # fmt: skip


@inlined
def _adam_loop(weight, gradient, mean, square, rate, root, one_less_beta1, beta2, one_less_beta2, epsilon):  # type: ignore[no-untyped-def]
    for i in range(len(weight)):
        g = gradient[i]
        mean[i] += one_less_beta1 * (g - mean[i])
        square[i] = beta2 * square[i] + one_less_beta2 * g * g
        weight[i] -= rate * mean[i] / (np.sqrt(square[i]) * root + epsilon)


def _steps(
    address: int, num_workers: int, num_parts: int, begin: int, gradients: int, end: int, num_minibatches: int
) -> None:
    """A gradient step on each minibatch: its parts on as many threads as there are workers, the rest on this one."""
    for k in range(num_minibatches):
        call(begin, (address, k))
        for worker in prange(num_workers):
            call(gradients, (worker, num_parts, address))
        call(end, (address, k, num_parts))


_steps_alone, _steps_threaded = compiled(_steps), compiled(_steps, parallel=True)


def compile_steps(num_workers: int) -> None:
    """Do what `take_steps` would wait for, but for functions that it is given addresses of."""
    steps = cast(Any, _steps_alone if num_workers == 1 else _steps_threaded)
    if not steps.signatures:
        steps.compile((types.int64,) * 7)
    for function in (begin_step, end_step, gradients_of_parts):
        function.address  # noqa: B018 - asked for, it is compiled


def take_steps(address: int, num_workers: int, num_parts: int, num_minibatches: int, pays: ThreadsThatPay) -> None:
    """A gradient step on each minibatch of a `WORK`."""
    functions = begin_step.address, gradients_of_parts.address, end_step.address
    if num_workers == 1:
        _steps_alone(address, 1, num_parts, *functions, num_minibatches)
        return
    launch_threads()
    arguments = address, num_workers, num_parts, *functions, num_minibatches
    pays(partial(_take_steps_threaded, *arguments), partial(_steps_alone, *arguments))


def _take_steps_threaded(*arguments: int) -> None:
    with PARALLEL_REGION:
        _steps_threaded(*arguments)


_sample_components, _sample_normal = sample_components.body, sample_normal.body


@NativeFunction
def draw_choices(address, start, rows, outputs_at):  # type: ignore[no-untyped-def]
    """Actions and log-probabilities of rows `start` on."""
    work = work_at(address)
    width, size = work.num_components, work.num_outputs - 1
    outputs, offsets = float_rows(outputs_at, rows, size + 1), words(work.offsets, width + 1)
    if work.mask != 0:
        for row in range(rows):
            mask = flags(work.mask + (start + row) * size, size)
            for a in range(size):
                if not mask[a]:
                    outputs[row, a] = MASKED_LOGIT
    noise = float_rows(work.noise + _FLOAT * start * width, rows, width)
    action, log_prob = (
        word_rows(work.action + 8 * start * width, rows, width),
        floats(work.log_prob + _FLOAT * start, rows),
    )
    _sample_components(0, rows, outputs, offsets, noise, action, log_prob)


@NativeFunction
def draw_points(address, start, rows, outputs_at):  # type: ignore[no-untyped-def]
    """The same for a normal distribution."""
    work = work_at(address)
    width = work.num_components
    outputs, noise = (
        float_rows(outputs_at, rows, 2 * width + 1),
        float_rows(work.noise + _FLOAT * start * width, rows, width),
    )
    action = float_rows(work.action + _FLOAT * start * width, rows, width)
    log_prob = floats(work.log_prob + _FLOAT * start, rows)
    _sample_normal(0, rows, outputs, noise, False, 0.0, MIN_LOG_STD, MAX_LOG_STD, action, log_prob)


@NativeFunction
def act_in_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """Draw the actions of a part's rows. Where there is a value all towers run, and `state` is brought up to date."""
    work, threads = work_at(address), set_blas_threads(1)
    num_towers = work.num_towers if work.value != 0 else 1
    stop = work.num_taken * (part + 1) // num_parts
    outputs = work.scratch + _FLOAT * part * work.scratch_size
    for start in range(work.num_taken * part // num_parts, stop, work.block):
        rows = min(work.block, stop - start)
        x, state = work.inputs + _FLOAT * start * work.num_inputs, work.state + _FLOAT * start * work.state_size
        kept = outputs + _FLOAT * rows * work.num_outputs
        for tower in range(num_towers):
            features = _features(address, tower, x, rows, rows, state, 0, kept)
            _outputs(work, tower, features, outputs, rows)
        if work.value != 0:
            _give_values(work, outputs, start, rows)
        call(work.draw, (address, start, rows, outputs))
    set_blas_threads(threads)


@callable_from_compiled
def _give_values(work, outputs, start, rows):  # type: ignore[no-untyped-def]
    value, given = floats(work.value + _FLOAT * start, rows), float_rows(outputs, rows, work.num_outputs)
    for row in range(rows):
        value[row] = given[row, work.num_outputs - 1]


@NativeFunction
def value_in_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """Values of a part's rows; states stay as they are."""
    work, threads = work_at(address), set_blas_threads(1)
    stop, tower = work.num_taken * (part + 1) // num_parts, work.num_towers - 1
    outputs = work.scratch + _FLOAT * part * work.scratch_size
    for start in range(work.num_taken * part // num_parts, stop, work.block):
        rows, states = min(work.block, stop - start), work.state_size
        state = outputs + _FLOAT * rows * work.num_outputs
        kept = state + _FLOAT * rows * states
        if states > 0:
            copy(floats(state, rows * states), floats(work.state + _FLOAT * start * states, rows * states))
        x = work.inputs + _FLOAT * start * work.num_inputs
        features = _features(address, tower, x, rows, rows, state, 0, kept)
        _outputs(work, tower, features, outputs, rows)
        _give_values(work, outputs, start, rows)
    set_blas_threads(threads)
