"""Compiled acting: actions sampled in one pass over a row's logits instead of a dozen torch operators, and small
networks that draw actions and compute values."""

from __future__ import annotations

import math

import numpy as np

from scramjet.compile.addresses import AddressedFunction, call, flags, float_rows, floats, word_rows, words
from scramjet.compile.blas import set_blas_threads
from scramjet.compile.jit import RowKernel, callable_from_compiled
from scramjet.compile.vector_maths import copy
from scramjet.kernels import MASKED_LOGIT, MAX_LOG_STD, MIN_LOG_STD
from scramjet.kernels.cpu.dense import FLOAT, features_of, give_outputs, work_at


@RowKernel
def sample_rows(
    start: int, stop: int, logits: np.ndarray, uniform: np.ndarray, action: np.ndarray, log_prob: np.ndarray
) -> None:
    """Draw each row's action by inverting its categorical distribution at `uniform` [B]; write its log-probability."""
    for row in range(start, stop):
        highest = logits[row, 0]
        for a in range(1, logits.shape[1]):
            highest = max(highest, logits[row, a])
        total = 0.0
        for a in range(logits.shape[1]):
            total += math.exp(logits[row, a] - highest)
        threshold = uniform[row] * total
        chosen = -1
        reached = 0.0
        for a in range(logits.shape[1]):
            weight = math.exp(logits[row, a] - highest)
            reached += weight
            if weight > 0.0:
                chosen = a  # the last possible action counts if rounding keeps the sum below the threshold
                if reached > threshold:
                    break
        if chosen < 0:
            chosen = 0  # logits are NaN; the checks of the rollout report it
        action[row] = chosen
        log_prob[row] = logits[row, chosen] - highest - math.log(total)


@RowKernel
def sample_components(
    start: int, stop: int,
    logits: np.ndarray, offsets: np.ndarray, uniform: np.ndarray, action: np.ndarray, log_prob: np.ndarray,
) -> None:  # fmt: skip
    """Draw several choices for each row, component d from logits offsets[d]:offsets[d + 1] at `uniform[:, d]`; write
    the sum of their log-probabilities."""
    for row in range(start, stop):
        summed = 0.0
        for component in range(len(offsets) - 1):
            first, end = offsets[component], offsets[component + 1]
            highest = logits[row, first]
            for a in range(first + 1, end):
                highest = max(highest, logits[row, a])
            total = 0.0
            for a in range(first, end):
                total += math.exp(logits[row, a] - highest)
            threshold = uniform[row, component] * total
            chosen = first
            reached = 0.0
            for a in range(first, end):
                weight = math.exp(logits[row, a] - highest)
                reached += weight
                if weight > 0.0:
                    chosen = a  # the last possible one counts if rounding keeps the sum below the threshold
                    if reached > threshold:
                        break
            action[row, component] = chosen - first
            summed += logits[row, chosen] - highest - math.log(total)
        log_prob[row] = summed


@RowKernel
def sample_normal(
    start: int, stop: int,
    logits: np.ndarray, noise: np.ndarray, squashes: bool, log_stretch: float, low: float, high: float,
    action: np.ndarray, log_prob: np.ndarray,
) -> None:  # fmt: skip
    """Draw `action` [B, D] as mean + deviation * `noise`; write its log-probability, that of its tanh if `squashes`."""
    size = noise.shape[1]
    for row in range(start, stop):
        summed = 0.0
        for d in range(size):
            mean = logits[row, d]
            log_std = min(max(logits[row, size + d], low), high)
            action[row, d] = mean + math.exp(log_std) * noise[row, d]
            u = action[row, d]  # as stored, in float32, because the loss reads it so
            distance = (u - mean) * math.exp(-log_std)
            summed -= 0.5 * distance * distance + log_std + 0.9189385332046727  # log(2 pi) / 2
            if squashes:
                summed -= 2.0 * (0.6931471805599453 - abs(u) - math.log1p(math.exp(-2.0 * abs(u))))  # log 2
        log_prob[row] = summed - log_stretch


# --- small networks on the CPU without gradients, compiled: drawing actions and computing values
#
# The forward pass of a network is in dense.py; rows are divided into parts, which threads take.


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
