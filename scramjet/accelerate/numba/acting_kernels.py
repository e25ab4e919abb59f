"""Small networks on the CPU without gradients, compiled: drawing actions and computing values.

The forward pass of a network is in towers.py; rows are divided into parts, which threads take.
"""

from __future__ import annotations

from scramjet.accelerate.numba.towers import FLOAT, features_of, give_outputs, work_at
from scramjet.compile.addresses import AddressedFunction, call, flags, float_rows, floats, word_rows, words
from scramjet.compile.blas import set_blas_threads
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import copy
from scramjet.policies.config import MAX_LOG_STD, MIN_LOG_STD
from scramjet.policies.sampling import MASKED_LOGIT, sample_components, sample_normal

_sample_components, _sample_normal = sample_components.body, sample_normal.body


@AddressedFunction
def draw_choices(address, start, rows, outputs_at):  # type: ignore[no-untyped-def]
    """Draw discrete actions for `rows` rows from number `start` on, and write their log-probabilities.

    The network's outputs for these rows are at `outputs_at`, [rows, A + 1]; masked logits are overwritten there.
    """
    work = work_at(address)
    width, size = work.num_components, work.num_outputs - 1
    outputs, offsets = float_rows(outputs_at, rows, size + 1), words(work.offsets, width + 1)
    if work.mask != 0:
        for row in range(rows):
            mask = flags(work.mask + (start + row) * size, size)
            for a in range(size):
                if not mask[a]:
                    outputs[row, a] = MASKED_LOGIT
    noise = float_rows(work.noise + FLOAT * start * width, rows, width)
    action, log_prob = (
        word_rows(work.action + 8 * start * width, rows, width),
        floats(work.log_prob + FLOAT * start, rows),
    )
    _sample_components(0, rows, outputs, offsets, noise, action, log_prob)


@AddressedFunction
def draw_points(address, start, rows, outputs_at):  # type: ignore[no-untyped-def]
    """Draw actions from normal distributions for `rows` rows from number `start` on, and write their log-probabilities.

    The network's outputs for these rows are at `outputs_at`: means, logarithms of deviations, value.
    """
    work = work_at(address)
    width = work.num_components
    outputs, noise = (
        float_rows(outputs_at, rows, 2 * width + 1),
        float_rows(work.noise + FLOAT * start * width, rows, width),
    )
    action = float_rows(work.action + FLOAT * start * width, rows, width)
    log_prob = floats(work.log_prob + FLOAT * start, rows)
    _sample_normal(0, rows, outputs, noise, False, 0.0, MIN_LOG_STD, MAX_LOG_STD, action, log_prob)


@AddressedFunction
def act_in_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """Draw the actions of the rows of one part.

    If values are asked for, all towers run, values are written and recurrent states updated; else only the first
    tower runs.
    """
    work, threads = work_at(address), set_blas_threads(1)
    num_towers = work.num_towers if work.value != 0 else 1
    stop = work.num_taken * (part + 1) // num_parts
    outputs = work.scratch + FLOAT * part * work.scratch_size
    for start in range(work.num_taken * part // num_parts, stop, work.block):
        rows = min(work.block, stop - start)
        x, state = work.inputs + FLOAT * start * work.num_inputs, work.state + FLOAT * start * work.state_size
        kept = outputs + FLOAT * rows * work.num_outputs
        for tower in range(num_towers):
            features = features_of(address, tower, x, rows, rows, state, 0, 0, kept)
            give_outputs(work, tower, features, outputs, rows)
        if work.turns != 0:
            call(work.turn_outputs, (address, x, rows, outputs))
        if work.value != 0:
            _give_values(work, outputs, start, rows)
        call(work.draw, (address, start, rows, outputs))
    set_blas_threads(threads)


@AddressedFunction
def act_for_members(part, num_parts, table):  # type: ignore[no-untyped-def]
    """Draw the actions of several networks, each for rows of its own: those whose turn it is in this part.

    `table` has the number of networks, the address of `act_in_part`, then the address of each network's task.
    """
    count, act = words(table, 2)[0], words(table, 2)[1]
    tasks = words(table + 2 * 8, count)  # behind two numbers of 8 bytes
    for member in range(part, count, num_parts):
        call(act, (0, 1, tasks[member]))


@callable_from_compiled
def _give_values(work, outputs, start, rows):  # type: ignore[no-untyped-def]
    """Copy the last column of the outputs to the values of `rows` rows from number `start` on."""
    value, given = floats(work.value + FLOAT * start, rows), float_rows(outputs, rows, work.num_outputs)
    for row in range(rows):
        value[row] = given[row, work.num_outputs - 1]


@AddressedFunction
def value_in_part(part, num_parts, address):  # type: ignore[no-untyped-def]
    """Write the values of the rows of one part; their recurrent states are not changed."""
    work, threads = work_at(address), set_blas_threads(1)
    stop, tower = work.num_taken * (part + 1) // num_parts, work.num_towers - 1
    outputs = work.scratch + FLOAT * part * work.scratch_size
    for start in range(work.num_taken * part // num_parts, stop, work.block):
        rows, states = min(work.block, stop - start), work.state_size
        state = outputs + FLOAT * rows * work.num_outputs
        kept = state + FLOAT * rows * states
        if states > 0:
            copy(floats(state, rows * states), floats(work.state + FLOAT * start * states, rows * states))
        x = work.inputs + FLOAT * start * work.num_inputs
        features = features_of(address, tower, x, rows, rows, state, 0, 0, kept)
        give_outputs(work, tower, features, outputs, rows)
        _give_values(work, outputs, start, rows)
    set_blas_threads(threads)
