"""The gradients of PPO's loss over a minibatch for small networks on the CPU, compiled.

Run operator by operator, a small network spends its time on calling operators, waiting for threads between them and
moving activations through memory. Here each thread takes its part of a minibatch through forward pass, loss and
backward pass, block by block, so that activations stay in the cache of its core. The forward and backward passes of a
network are in towers.py, the loss in loss_kernels.py; step_kernels.py makes gradient steps of it.

A unit is what minibatches are made of: a sample, or with memory a sequence of T steps.
"""

from __future__ import annotations

import numpy as np

from scramjet.accelerate.numba.towers import (
    CORE,
    CORE_SIZE,
    CORE_STATE,
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
from scramjet.compile.addresses import AddressedFunction, call, doubles, fetch_and_increment, flags, floats, words
from scramjet.compile.blas import set_blas_threads
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import copy, fill

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
