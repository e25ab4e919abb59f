"""The gradients of PPO's loss over a minibatch for small networks on the CPU, compiled.

Run operator by operator, a small network spends its time on calling operators, waiting for threads between them and
moving activations through memory. Here each thread takes its part of a minibatch through forward pass, loss and
backward pass, block by block, so that activations stay in the cache of its core. The forward and backward passes of a
network are in dense.py, the loss in losses.py.

A unit is what minibatches are made of: a sample, or with memory a sequence of T steps.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import numpy as np
from numba import prange, types

from scramjet.compile.addresses import AddressedFunction, call, doubles, fetch_and_increment, flags, floats, words
from scramjet.compile.blas import set_blas_threads
from scramjet.compile.jit import PARALLEL_REGION, AdaptiveThreading, callable_from_compiled, compiled, launch_threads
from scramjet.compile.vector_maths import add, copy, fill, inlined, inlined_sum, sum_of_squares
from scramjet.kernels.cpu.dense import (
    CORE,
    CORE_SIZE,
    CORE_STATE,
    ENCODER,
    ENCODER_PACK,
    END,
    FIRST_HEAD,
    FLOAT,
    INPUTS,
    NUM_ACTIVATIONS,
    NUM_LAYER_COLUMNS,
    WIDTH,
    encoder_floats,
    features_back,
    features_of,
    give_outputs,
    layer_numbers,
    tower_numbers,
    work_at,
)  # fmt: skip

TERMS = ("policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction")
NUM_TERMS = len(TERMS)


@callable_from_compiled
def samples_of(work, address):  # type: ignore[no-untyped-def]
    """The array at `address` that holds one float for each sample, [num_units * steps]."""
    return floats(address, work.num_units * work.steps)


@callable_from_compiled
def _fetch(work, first, num_units, samples, x, begins, state):  # type: ignore[no-untyped-def]
    """Gather `num_units` units of the minibatch from number `first` on.

    Writes the numbers of their samples to `samples`, their inputs to `x`, and with memory the flags of episodes' first
    steps to `begins` and the recurrent states to `state`.
    """
    units = words(work.units + 8 * first, num_units)
    steps, width, states = work.steps, work.num_inputs, work.state_size
    for t in range(steps):
        for i in range(num_units):
            row, sample = t * num_units + i, t * work.num_units + units[i]
            samples[row] = sample
            seen = floats(work.inputs + FLOAT * sample * width, width)
            copy(floats(x + FLOAT * row * width, width), seen)
            if work.begins != 0:
                flags(begins + row, 1)[0] = flags(work.begins + sample, 1)[0]
    if states > 0:
        for i in range(num_units):
            given = floats(work.state + FLOAT * units[i] * states, states)
            copy(floats(state + FLOAT * i * states, states), given)


@AddressedFunction
def gradients_of_parts(worker, num_parts, address):  # type: ignore[no-untyped-def]
    """Compute the gradients of parts of the minibatch until none is left; run by each worker.

    Each worker takes the next part that nobody has begun, so that all workers end at about the same time. The result
    does not depend on which worker computes which part.
    """
    work, threads = work_at(address), set_blas_threads(1)
    part = fetch_and_increment(work.next_part)
    while part < num_parts:
        _gradients_of_part(address, part, num_parts, work.scratch + FLOAT * worker * work.scratch_size)
        part = fetch_and_increment(work.next_part)
    set_blas_threads(threads)


@callable_from_compiled
def _gradients_of_part(address, part, num_parts, x):  # type: ignore[no-untyped-def]
    """Run forward pass, loss and backward pass for the units of one part.

    Writes the gradients to partials[part] and the loss terms to terms[part]. `x` is the address of the worker's scratch
    memory.
    """
    work = work_at(address)
    steps, width, num_towers = work.steps, work.num_outputs, work.num_towers
    partial, terms = work.partials + FLOAT * part * work.num_weights, work.terms + 8 * NUM_TERMS * part
    fill(floats(partial, work.num_weights), np.float32(0))
    fill(doubles(terms, NUM_TERMS), 0.0)
    scale = np.empty(1, np.float32)
    scale[0] = 1.0 / work.num_averaged
    samples_of_block = np.empty(work.block * steps, np.int64)
    stop = work.num_taken * (part + 1) // num_parts
    for first in range(work.num_taken * part // num_parts, stop, work.block):
        num_units = min(work.block, stop - first)
        rows = num_units * steps
        samples = samples_of_block[:rows]
        outputs = x + FLOAT * rows * work.num_inputs
        to_outputs = outputs + FLOAT * rows * width
        to_features = to_outputs + FLOAT * rows * width
        other = to_features + FLOAT * rows * work.widest
        state = other + FLOAT * rows * work.widest
        begins = state + FLOAT * num_units * work.state_size
        kept = begins + FLOAT * rows
        _fetch(work, first, num_units, samples, x, begins, state)
        if work.begins == 0:
            begins = 0
        at = kept
        for tower in range(num_towers):
            features = features_of(address, tower, x, rows, num_units, state, begins, 1, at)
            give_outputs(work, tower, features, outputs, rows)
            own = tower_numbers(work, tower)
            at += FLOAT * (rows * own[WIDTH] + encoder_floats(own, rows))
        if work.turns != 0:
            call(work.turn_outputs, (address, x, rows, outputs))
        call(
            work.loss, (address, samples.ctypes.data, rows, outputs, to_outputs, scale.ctypes.data, terms)
        )  # fmt: skip
        if work.turns != 0:
            call(work.turn_back, (address, x, rows, to_outputs))
        at = kept
        for tower in range(num_towers):
            own = tower_numbers(work, tower)
            layers_at = at + FLOAT * encoder_floats(own, rows)
            size = words(layer_numbers(work.layers, own[FIRST_HEAD]), NUM_LAYER_COLUMNS)[INPUTS]
            features = layers_at + FLOAT * rows * (own[NUM_ACTIVATIONS] - size)
            if own[CORE] != 0:
                size = own[CORE_SIZE]
                features = layers_at + FLOAT * (rows * own[NUM_ACTIVATIONS] + num_units * own[CORE_STATE])
            for k in range(own[FIRST_HEAD], own[END]):  # the first has inputs
                numbers, keep = layer_numbers(work.layers, k), 0 if k == own[FIRST_HEAD] else 1
                call(work.head_back, (numbers, features, to_outputs, to_features, keep, rows, width, partial))
            features_back(address, tower, x, rows, num_units, begins, at, to_features, other, partial)
            at = layers_at + FLOAT * rows * own[WIDTH]


# --- gradient steps of small networks on the CPU, compiled: the gradients of a minibatch on all threads, then Adam
#
# Other functions of the step are called by their addresses, and numbers are in the `WORK` record (dense.py).


# Columns of the table of parameters that Adam reads: the addresses of the parameter, of its first and second moments
# and of its step count; where its gradient begins among all gradients; and its number of elements.
VALUES, MEANS, SQUARES, STEPS, AT, COUNT = range(6)
NUM_PARAMETER_COLUMNS = 6


@AddressedFunction
def begin_step(address, k):  # type: ignore[no-untyped-def]
    """Prepare the step on minibatch k: its units, the statistics of its advantages, and copies of weights.

    Its units are `order[bounds[k] : bounds[k + 1]]`. Losses are means over `totals[k]` samples, with several ranks
    those of all of them. Row k of `statistics` normalizes advantages; without `statistics` it is computed here.
    """
    work = work_at(address)
    bounds = words(work.bounds + 8 * k, 2)
    work.units, work.num_taken = work.order + 8 * bounds[0], bounds[1] - bounds[0]
    work.num_averaged = doubles(work.totals + 8 * k, 1)[0]
    words(work.next_part, 1)[0] = 0
    work.advantage_mean, work.advantage_scale = 0.0, 1.0
    if work.statistics != 0:
        given = floats(work.statistics + 2 * FLOAT * k, 2)
        work.advantage_mean, work.advantage_scale = given[0], given[1]
    elif work.normalizes != 0:
        _normalize_advantages(work)
    for tower in range(work.num_towers):
        own = tower_numbers(work, tower)
        if own[CORE] != 0:
            call(work.turn_weights, (own[CORE],))
        if own[ENCODER_PACK] != 0:
            call(own[ENCODER_PACK], (own[ENCODER],))


@callable_from_compiled
def _normalize_advantages(work):  # type: ignore[no-untyped-def]
    """Set the mean and 1 / (deviation + 1e-8) of the minibatch's advantages, as in `ppo.normalize`."""
    units, count, total, squares = words(work.units, work.num_taken), work.num_taken * work.steps, 0.0, 0.0
    for t in range(work.steps):
        advantage = floats(work.advantage + FLOAT * t * work.num_units, work.num_units)
        total += _sum_of_chosen(advantage, units)
    mean = total / count
    for t in range(work.steps):
        advantage = floats(work.advantage + FLOAT * t * work.num_units, work.num_units)
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


@AddressedFunction
def end_step(address, k, num_parts):  # type: ignore[no-untyped-def]
    """Finish the step on minibatch k: add up the gradients of all parts, clip them and, if asked for, step Adam.

    The sum is written to the gradients of the first part and scaled to a norm of at most `max_norm`. Row k of the
    diagnostics becomes the mean loss terms and the norm before clipping. Adam runs if `num_parameters` is above 0.
    """
    work = work_at(address)
    _add_up_parts(work, k, num_parts)
    _clip_and_step(work, k)


@AddressedFunction
def end_own_part(address, k, num_parts):  # type: ignore[no-untyped-def]
    """Add up what this rank has computed of the step on minibatch k, for ranks to add up theirs.

    The gradients are at `partials`, and behind them the loss terms as float32.
    """
    work = work_at(address)
    _add_up_parts(work, k, num_parts)
    row, terms = _diagnostics(work, k), floats(work.partials + FLOAT * work.num_weights, NUM_TERMS)
    for i in range(NUM_TERMS):
        terms[i] = row[i]


@AddressedFunction
def end_shared_step(address, k):  # type: ignore[no-untyped-def]
    """Finish the step on minibatch k from the sums over all ranks of what `end_own_part` left."""
    work = work_at(address)
    row, terms = _diagnostics(work, k), floats(work.partials + FLOAT * work.num_weights, NUM_TERMS)
    for i in range(NUM_TERMS):
        row[i] = terms[i]
    _clip_and_step(work, k)


@callable_from_compiled
def _diagnostics(work, k):  # type: ignore[no-untyped-def]
    return doubles(work.diagnostics + 8 * (NUM_TERMS + 1) * k, NUM_TERMS + 1)


@callable_from_compiled
def _add_up_parts(work, k, num_parts):  # type: ignore[no-untyped-def]
    """Write the sum of all parts' gradients to those of the first, and that of their loss terms to the diagnostics."""
    size = work.num_weights
    total = floats(work.partials, size)
    for part in range(1, num_parts):
        add(total, floats(work.partials + FLOAT * part * size, size))
    row = _diagnostics(work, k)
    for i in range(NUM_TERMS):
        row[i] = 0.0
        for part in range(num_parts):
            row[i] += doubles(work.terms + 8 * NUM_TERMS * part, NUM_TERMS)[i] / work.num_averaged


@callable_from_compiled
def _clip_and_step(work, k):  # type: ignore[no-untyped-def]
    size = work.num_weights
    total = floats(work.partials, size)
    norm = math.sqrt(sum_of_squares(total))
    factor = np.float32(work.max_norm / (norm + 1e-6))
    if not factor >= 1:  # true for NaN as well, which then spreads to the weights and is noticed
        for i in range(size):
            total[i] *= factor
    _diagnostics(work, k)[NUM_TERMS] = norm
    if work.num_parameters > 0:
        _adam(work)


@callable_from_compiled
def _adam(work):  # type: ignore[no-untyped-def]
    """Take one step of Adam (Kingma and Ba 2015), with the arithmetic of torch."""
    work.num_steps += 1.0
    rate = np.float32(work.learning_rate / (1.0 - work.beta1**work.num_steps))
    root = np.float32(1.0 / math.sqrt(1.0 - work.beta2**work.num_steps))
    for k in range(work.num_parameters):
        own = words(work.parameters + 8 * NUM_PARAMETER_COLUMNS * k, NUM_PARAMETER_COLUMNS)
        count = own[COUNT]
        gradient = floats(work.partials + FLOAT * own[AT], count)
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
    address: int, num_workers: int, num_parts: int, begin: int, gradients: int, end: int, first: int, stop: int
) -> None:
    """Take a gradient step on minibatches `first` to `stop`: gradients on `num_workers` threads, the rest on this one.

    `begin`, `gradients` and `end` are the addresses of `begin_step`, `gradients_of_parts` and `end_step`; with several
    ranks the last is `end_own_part`.
    """
    for k in range(first, stop):
        call(begin, (address, k))
        for worker in prange(num_workers):
            call(gradients, (worker, num_parts, address))
        call(end, (address, k, num_parts))


_steps_alone, _steps_threaded = compiled(_steps), compiled(_steps, parallel=True)


def compile_steps(num_workers: int) -> None:
    """Compile what `take_steps` calls, except the functions whose addresses are in the `WORK` record."""
    steps = cast(Any, _steps_alone if num_workers == 1 else _steps_threaded)
    if not steps.signatures:
        steps.compile((types.int64,) * 8)
    for function in (begin_step, end_step, gradients_of_parts):
        function.address  # noqa: B018 - reading the address compiles the function


def take_steps(
    address: int,
    num_workers: int,
    num_parts: int,
    minibatches: range,
    pays: AdaptiveThreading,
    end: AddressedFunction = end_step,
) -> None:
    """Take a gradient step on these minibatches of the `WORK` record at `address`, each finished by `end`.

    `pays` runs them on one thread while threads are slow to start; with one worker there are no threads.
    """
    functions = begin_step.address, gradients_of_parts.address, end.address
    arguments = address, num_workers, num_parts, *functions, minibatches.start, minibatches.stop
    if num_workers == 1:
        _steps_alone(*arguments)
        return
    launch_threads()
    pays(partial(_take_steps_threaded, *arguments), partial(_steps_alone, *arguments))


def _take_steps_threaded(*arguments: int) -> None:
    with PARALLEL_REGION:
        _steps_threaded(*arguments)
