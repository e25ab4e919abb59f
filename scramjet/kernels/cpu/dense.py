"""Forward and backward passes of layers, recurrent cores and heads, as compiled functions.

A network is one or two towers: possibly an encoder, hidden layers, possibly a recurrent core, and heads that write some
columns of the outputs [rows, A + 1]: the inputs of the distribution, then the value. Tables of numbers describe the
network, such as the addresses and sizes of its weights, so that one compilation serves every network (see
compile/addresses.py); the address 0 means that something does not exist. Matrix products are those of torch's BLAS (see
compile/blas.py).
"""

from __future__ import annotations

import numpy as np

from scramjet.compile.addresses import (
    BOARDS,
    AddressedFunction,
    call,
    float_rows,
    floats,
    record_at,
    use_wide_vectors,
    words,
)
from scramjet.compile.blas import multiply, multiply_by_transposed, multiply_transposed
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import add, copy, dot, fill, inlined, tanh

# Columns of the table of layers: addresses of the weight [outputs, inputs] and the bias; sizes; the activation; where
# the gradients of weight and bias begin among all gradients; the first column of its results: among the tower's
# activations, or for a head among the outputs; floats from one row of its inputs to the next, more than it takes
# where a policy sees the first columns of what its critic sees; and the address of its weight transposed, 0 without.
WEIGHT, BIAS, INPUTS, OUTPUTS, ACTIVATION, GRADIENT, PLACE, STRIDE, TURNED = range(9)
NUM_LAYER_COLUMNS = 9
NOTHING, TANH, RELU = range(3)
# Columns of the table of towers: its first layer, first head and end in the table of layers; floats of activations and
# of everything it keeps, for each row; for a recurrent core the address of its numbers, its functions, its sizes, and
# where its gradients and its part of a recurrent state begin; for an encoder the address of its numbers, its functions,
# its features, floats that it keeps for each row besides them, and those that it needs besides.
(
    FIRST_LAYER, FIRST_HEAD, END, NUM_ACTIVATIONS, WIDTH,
    CORE, CORE_FORWARD, CORE_BACKWARD, CORE_SIZE, CORE_STATE, CORE_GRADIENT, STATE_PLACE,
    ENCODER, ENCODER_FORWARD, ENCODER_BACKWARD, ENCODER_PACK, ENCODER_FEATURES, ENCODER_WIDTH, ENCODER_SCRATCH,
) = range(19)  # fmt: skip
NUM_TOWER_COLUMNS = 19

WORK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "layers", "towers", "num_towers", "num_outputs", "offsets", "num_components", "num_inputs", "state_size",
            "widest", "inputs", "mask", "noise", "action", "log_prob", "value", "advantage", "returns", "state",
            "begins", "units", "num_units", "num_taken", "steps", "block", "scratch", "scratch_size", "partials",
            "num_weights", "terms", "normalizes", "order", "bounds", "totals", "statistics", "diagnostics",
            "parameters", "num_parameters", "draw", "loss", "layer", "layer_back", "head", "head_back",
            "turn_weights", "core", "core_back", "next_part", "turns", "turn_outputs", "turn_back",
        )
    ]
    + [
        (name, np.float64)
        for name in (
            "advantage_mean", "advantage_scale", "clip", "entropy_coef", "value_clip", "value_coef", "max_norm", "norm",
            "learning_rate", "beta1", "beta2", "epsilon", "num_steps", "num_averaged",
        )
    ]
)  # fmt: skip
"""The record that all functions read: addresses of the network's tables, of tensors and of functions, sizes, and
coefficients."""

work_at = record_at(WORK)
FLOAT = 4  # bytes
ALIGNMENT = 16
"""Floats in a line of the cache: vectors that lie across two lines take an encoder up to a third longer."""


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
        row[j] = np.float32(0) if total < 0 else total  # NaN stays NaN


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


@AddressedFunction
def layer(numbers, x, y, rows):  # type: ignore[no-untyped-def]
    """Write y [rows, outputs], the layer's activations for x [rows, inputs], rows of which are STRIDE floats apart."""
    use_wide_vectors()
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    if own[TURNED] != 0:  # takes half the time where inputs are many
        multiply(rows, num_outputs, num_inputs, x, own[STRIDE], own[TURNED], num_outputs, 0.0, y, num_outputs)
    else:
        multiply_by_transposed(
            rows, num_outputs, num_inputs, x, own[STRIDE], own[WEIGHT], num_inputs, 0.0, y, num_outputs
        )  # fmt: skip
    bias = floats(own[BIAS], num_outputs)
    for row in range(rows):
        if own[ACTIVATION] == TANH:
            _add_and_squash(floats(y + FLOAT * row * num_outputs, num_outputs), bias)
        else:
            _add_and_cut(floats(y + FLOAT * row * num_outputs, num_outputs), bias)


@AddressedFunction
def layer_back(numbers, x, y, to_y, to_x, is_first, rows, to_weights):  # type: ignore[no-untyped-def]
    """The backward pass of a layer: adds to the gradients of its weights and writes `to_x` [rows, inputs].

    `to_y` [rows, outputs], the gradient with respect to its results, is overwritten. For the first layer `to_x` holds
    no gradient: it may be used as scratch memory.
    """
    use_wide_vectors()
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    to_weight = to_weights + FLOAT * own[GRADIENT]
    to_bias = floats(to_weight + FLOAT * num_inputs * num_outputs, num_outputs)
    for row in range(rows):
        to_result = floats(to_y + FLOAT * row * num_outputs, num_outputs)
        if own[ACTIVATION] == TANH:
            _through_tanh(to_result, floats(y + FLOAT * row * num_outputs, num_outputs))
        else:
            _through_cut(to_result, floats(y + FLOAT * row * num_outputs, num_outputs))
        add(to_bias, to_result)
    if is_first != 0 and 4 * num_inputs < num_outputs and num_inputs < rows:
        # A long thin product is faster transposed; `to_x` is free to hold it.
        multiply_transposed(
            num_inputs, num_outputs, rows, x, own[STRIDE], to_y, num_outputs, 0.0, to_x, num_outputs
        )  # fmt: skip
        _add_turned(float_rows(to_weight, num_outputs, num_inputs), float_rows(to_x, num_inputs, num_outputs))
        return
    multiply_transposed(
        num_outputs, num_inputs, rows, to_y, num_outputs, x, own[STRIDE], 1.0, to_weight, num_inputs
    )  # fmt: skip
    if is_first == 0:
        multiply(rows, num_inputs, num_outputs, to_y, num_outputs, own[WEIGHT], num_inputs, 0.0, to_x, num_inputs)


NARROW = 4
"""Most columns of a head for which loops are faster than matrix products."""


@AddressedFunction
def head(numbers, features, outputs, rows, width):  # type: ignore[no-untyped-def]
    """Write a head's columns of the outputs [rows, width]; without inputs they are its bias."""
    use_wide_vectors()
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    columns, bias = outputs + FLOAT * own[PLACE], floats(own[BIAS], num_outputs)
    if num_inputs > 0 and num_outputs <= NARROW:
        for row in range(rows):
            own_columns = floats(columns + FLOAT * row * width, num_outputs)
            seen = floats(features + FLOAT * row * num_inputs, num_inputs)
            for k in range(num_outputs):
                own_columns[k] = dot(seen, floats(own[WEIGHT] + FLOAT * k * num_inputs, num_inputs)) + bias[k]
        return
    if num_inputs > 0:
        multiply_by_transposed(
            rows, num_outputs, num_inputs, features, num_inputs, own[WEIGHT], num_inputs, 0.0, columns, width
        )  # fmt: skip
    for row in range(rows):
        own_columns = floats(columns + FLOAT * row * width, num_outputs)
        if num_inputs > 0:
            add(own_columns, bias)
        else:
            copy(own_columns, bias)


@AddressedFunction
def head_back(numbers, features, to_outputs, to_features, keep, rows, width, to_weights):  # type: ignore[no-untyped-def]
    """The backward pass of a head: adds to the gradients of its weights and writes that of the features.

    With `keep` 1, the gradient of the features is added to what `to_features` holds; with 0 it replaces that.
    """
    own = words(numbers, NUM_LAYER_COLUMNS)
    num_inputs, num_outputs = own[INPUTS], own[OUTPUTS]
    to_columns, to_weight = to_outputs + FLOAT * own[PLACE], to_weights + FLOAT * own[GRADIENT]
    to_bias = floats(to_weight + FLOAT * num_inputs * num_outputs, num_outputs)
    for row in range(rows):
        add(to_bias, floats(to_columns + FLOAT * row * width, num_outputs))
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
def layer_numbers(layers, k):  # type: ignore[no-untyped-def]
    """The address of row k of the table of layers."""
    return layers + 8 * NUM_LAYER_COLUMNS * k


@callable_from_compiled
def tower_numbers(work, tower):  # type: ignore[no-untyped-def]
    """A tower's row of the table of towers."""
    return words(work.towers + 8 * NUM_TOWER_COLUMNS * tower, NUM_TOWER_COLUMNS)


@callable_from_compiled
def encoder_floats(own, rows):  # type: ignore[no-untyped-def]
    """Floats that a tower's encoder writes for so many rows before the activations of the first layer."""
    if own[ENCODER] == 0:
        return 0
    return rows * own[ENCODER_FEATURES] + ALIGNMENT + _whole(rows) * own[ENCODER_WIDTH] + own[ENCODER_SCRATCH]


@callable_from_compiled
def _whole(rows):  # type: ignore[no-untyped-def]
    """Rows that an encoder has memory for: it takes BOARDS of them at a time."""
    return (rows + BOARDS - 1) // BOARDS * BOARDS


@callable_from_compiled
def _encoder_memory(own, rows, features):  # type: ignore[no-untyped-def]
    """Where an encoder keeps its activations: behind its features, at the beginning of a line of the cache."""
    line = FLOAT * ALIGNMENT
    return (features + FLOAT * rows * own[ENCODER_FEATURES] + line - 1) // line * line


@callable_from_compiled
def features_of(address, tower, x, rows, sequences, state, begins, keeps, kept):  # type: ignore[no-untyped-def]
    """Run a tower up to its heads on the inputs at `x`; returns the address of its features.

    All activations are written from the address `kept` on, and stay there for a backward pass if `keeps` is 1. `rows`
    counts all steps of all `sequences`; a recurrent core updates `state` [sequences, state size].
    """
    work = work_at(address)
    own = tower_numbers(work, tower)
    if own[ENCODER] != 0:
        memory = _encoder_memory(own, rows, kept)
        call(own[ENCODER_FORWARD], (own[ENCODER], x, work.num_inputs, rows, keeps, kept, memory))
        x = kept
        kept += FLOAT * encoder_floats(own, rows)
    for k in range(own[FIRST_LAYER], own[FIRST_HEAD]):
        call(work.layer, (layer_numbers(work.layers, k), x, kept, rows))
        x = kept
        kept += FLOAT * rows * words(layer_numbers(work.layers, k), NUM_LAYER_COLUMNS)[OUTPUTS]
    if own[CORE] == 0:
        return x
    call(work.core, (address, tower, x, rows, sequences, state, begins, kept))
    return kept + FLOAT * sequences * own[CORE_STATE]


# Recurrent cores are compiled separately, and only if a network has one. In memory from `kept` on: the states before,
# the core's outputs, the states after, and what its backward pass needs.


@AddressedFunction
def core(address, tower, x, rows, sequences, state, begins, kept):  # type: ignore[no-untyped-def]
    """Run a tower's recurrent core on the features at `x` and update `state`; everything is written from `kept` on."""
    work = work_at(address)
    own = tower_numbers(work, tower)
    states = sequences * own[CORE_STATE]
    outputs = kept + FLOAT * states
    after = outputs + FLOAT * rows * own[CORE_SIZE]
    _take_state(work, own, sequences, state, kept)
    call(
        own[CORE_FORWARD],
        (own[CORE], x, outputs, begins, kept, after, after + FLOAT * states, sequences, sequences, rows // sequences),
    )
    _give_state(work, own, sequences, after, state)


@AddressedFunction
def core_back(address, tower, x, to_outputs, rows, sequences, begins, kept, to_x, to_weights):  # type: ignore[no-untyped-def]
    """The backward pass of a recurrent core: writes the gradient `to_x` and adds to that of its weights."""
    work = work_at(address)
    own = tower_numbers(work, tower)
    states = sequences * own[CORE_STATE]
    after = kept + FLOAT * (states + rows * own[CORE_SIZE])
    fill(floats(after, states), np.float32(0))  # no gradient comes from after the sequences
    arguments = (
        own[CORE], x, to_outputs, begins, kept, after, after + FLOAT * states, sequences, sequences, rows // sequences,
        to_x, to_weights + FLOAT * own[CORE_GRADIENT],
    )  # fmt: skip
    call(own[CORE_BACKWARD], arguments)


@callable_from_compiled
def _take_state(work, own, sequences, state, result):  # type: ignore[no-untyped-def]
    """Copy one core's part of the recurrent states `state` to `result`."""
    size = own[CORE_STATE]
    for i in range(sequences):
        part = floats(state + FLOAT * (i * work.state_size + own[STATE_PLACE]), size)
        copy(floats(result + FLOAT * i * size, size), part)


@callable_from_compiled
def _give_state(work, own, sequences, part, state):  # type: ignore[no-untyped-def]
    """Copy `part`, one core's states, to its place in the recurrent states `state`."""
    size = own[CORE_STATE]
    for i in range(sequences):
        place = floats(state + FLOAT * (i * work.state_size + own[STATE_PLACE]), size)
        copy(place, floats(part + FLOAT * i * size, size))


@callable_from_compiled
def features_back(address, tower, x, rows, sequences, begins, kept, to_features, other, to_weights):  # type: ignore[no-untyped-def]
    """The backward pass of a tower from its features on: adds to the gradients of its weights.

    `to_features`, the gradient with respect to the features, and `other` are overwritten.
    """
    work = work_at(address)
    own = tower_numbers(work, tower)
    encoded = kept
    kept += FLOAT * encoder_floats(own, rows)
    if own[CORE] != 0:
        last = words(layer_numbers(work.layers, own[FIRST_HEAD] - 1), NUM_LAYER_COLUMNS)
        core_kept = kept + FLOAT * rows * own[NUM_ACTIVATIONS]
        given = core_kept - FLOAT * rows * last[OUTPUTS]
        call(
            work.core_back,
            (address, tower, given, to_features, rows, sequences, begins, core_kept, other, to_weights),
        )
        to_features, other = other, to_features
    first = words(layer_numbers(work.layers, own[FIRST_LAYER]), NUM_LAYER_COLUMNS)[PLACE]
    for k in range(own[FIRST_HEAD] - 1, own[FIRST_LAYER] - 1, -1):
        numbers = words(layer_numbers(work.layers, k), NUM_LAYER_COLUMNS)
        y = kept + FLOAT * rows * (numbers[PLACE] - first)
        is_first = k == own[FIRST_LAYER] and own[ENCODER] == 0
        below = x if is_first else y - FLOAT * rows * numbers[INPUTS]
        if k == own[FIRST_LAYER] and own[ENCODER] != 0:
            below = encoded
        arguments = layer_numbers(work.layers, k), below, y, to_features, other, 1 if is_first else 0, rows, to_weights
        call(work.layer_back, arguments)
        to_features, other = other, to_features
    if own[ENCODER] != 0:
        memory = _encoder_memory(own, rows, encoded)
        scratch = memory + FLOAT * _whole(rows) * own[ENCODER_WIDTH]
        call(
            own[ENCODER_BACKWARD],
            (own[ENCODER], x, work.num_inputs, rows, to_features, memory, scratch, to_weights),
        )


@callable_from_compiled
def give_outputs(work, tower, features, outputs, rows):  # type: ignore[no-untyped-def]
    """Write the columns of the outputs that a tower's heads compute from its features."""
    own = tower_numbers(work, tower)
    for k in range(own[FIRST_HEAD], own[END]):
        call(work.head, (layer_numbers(work.layers, k), features, outputs, rows, work.num_outputs))


# --- turns the logits of turned boards back, as `CanonicalNetwork` does: compiled functions for symmetric policies
#
# The last of a row's inputs is the number of the symmetry by which its board was turned.


@callable_from_compiled
def _sources(work, x, row):  # type: ignore[no-untyped-def]
    """For each action of the board as it was, the number of its logit for the turned board."""
    turn = np.int64(floats(x + FLOAT * (row + 1) * work.num_inputs - FLOAT, 1)[0])
    size = work.num_outputs - 1
    return words(work.turns + 8 * turn * size, size)


@AddressedFunction
def turn_outputs(address, x, rows, outputs):  # type: ignore[no-untyped-def]
    """Put the logits in `outputs` [rows, A + 1] in the order of the actions of the boards as they were."""
    work = work_at(address)
    turned = np.empty(work.num_outputs - 1, np.float32)
    for row in range(rows):
        logits, sources = floats(outputs + FLOAT * row * work.num_outputs, len(turned)), _sources(work, x, row)
        copy(turned, logits)
        for a in range(len(turned)):
            logits[a] = turned[sources[a]]


@AddressedFunction
def turn_back(address, x, rows, to_outputs):  # type: ignore[no-untyped-def]
    """The backward pass of `turn_outputs`."""
    work = work_at(address)
    given = np.empty(work.num_outputs - 1, np.float32)
    for row in range(rows):
        to_logits, sources = floats(to_outputs + FLOAT * row * work.num_outputs, len(given)), _sources(work, x, row)
        copy(given, to_logits)
        for a in range(len(given)):
            to_logits[sources[a]] = given[a]
