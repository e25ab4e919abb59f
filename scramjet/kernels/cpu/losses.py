"""PPO's loss and its gradient with respect to a network's outputs, compiled; steps.py calls it.

The loss is computed for LANES samples at a time: their numbers are copied into `columns` [quantities, LANES], so that
each row holds one quantity for all these samples, and vectorized loops run along the rows. A loop over single samples
would wait for memory, and for an exponential, at each sample.
"""

from __future__ import annotations

import numpy as np

from scramjet.compile.addresses import AddressedFunction, doubles, flags, float_rows, floats, words
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import exp, inlined, inlined_sum, log
from scramjet.kernels import MASKED_LOGIT, MAX_LOG_STD, MIN_LOG_STD
from scramjet.kernels.cpu.dense import work_at
from scramjet.kernels.cpu.steps import NUM_TERMS, samples_of

POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, KL_K1, CLIPPED = range(NUM_TERMS)  # in the order of TERMS there
# Rows of `columns`: the loss terms; the sample's data and intermediate results; its actions (numbers of choices are
# exact in float32); for discrete actions their probabilities; then the network's outputs.
ADVANTAGE, RETURNS, OLD_VALUE, LOG_RATIO, SLOPE, HIGHEST, TOTAL = range(NUM_TERMS, NUM_TERMS + 7)
ACTIONS = NUM_TERMS + 7
LANES = 64
"""Samples computed at a time. A constant, so that the compiler can see that rows of `columns` do not overlap."""

_FLOAT = 4  # bytes
_HALF_LOG_TWO_PI = np.float32(0.9189385332046727)


@callable_from_compiled
def _fetch(work, samples, outputs, columns, first_output):  # type: ignore[no-untyped-def]
    """Copy the data of `samples` and their outputs [rows, A + 1] into `columns`, except for the actions."""
    log_prob, advantage = samples_of(work, work.log_prob), samples_of(work, work.advantage)
    returns, old_value = samples_of(work, work.returns), samples_of(work, work.value)
    mean, scale = np.float32(work.advantage_mean), np.float32(work.advantage_scale)
    width, clips = work.num_outputs, work.value_clip < np.inf
    for i in range(len(samples)):
        sample = samples[i]
        columns[LOG_RATIO, i] = -log_prob[sample]
        columns[ADVANTAGE, i] = (advantage[sample] - mean) * scale
        columns[RETURNS, i] = returns[sample]
        columns[OLD_VALUE, i] = old_value[sample] if clips else outputs[i, width - 1]
        columns[ENTROPY, i] = 0
        for a in range(width):
            columns[first_output + a, i] = outputs[i, a]


@inlined
def _policy_loss(columns, clip, scale, num):  # type: ignore[no-untyped-def]
    """Compute the policy's terms, and into SLOPE the derivative of the loss with respect to the log-probability.

    The surrogate min(r A, clip(r) A) (Schulman et al. 2017, eq. 7) has the derivative r A with respect to log r, or 0
    where it is clipped.
    """
    one = np.float32(1)
    low, high = one - clip, one + clip
    for i in range(num):
        log_ratio, advantage = columns[LOG_RATIO, i], columns[ADVANTAGE, i]
        ratio = exp(log_ratio)
        within = low if ratio < low else ratio
        within = high if within > high else within
        unclipped, clipped = ratio * advantage, within * advantage
        columns[POLICY_LOSS, i] = -clipped if clipped < unclipped else -unclipped
        columns[KL, i] = ratio - one - log_ratio  # Schulman 2020, as in ppo.py
        columns[KL_K1, i] = -log_ratio
        columns[CLIPPED, i] = one if abs(ratio - one) > clip else np.float32(0)
        columns[SLOPE, i] = np.float32(0) if within != ratio and unclipped >= clipped else -unclipped * scale


@inlined
def _value_loss(columns, value, bound, weight, num):  # type: ignore[no-untyped-def]
    """Compute the value's loss term, and replace row `value` of `columns` by the gradient of the loss.

    The larger of the errors of the value and of the clipped value counts; if they are equal, the gradient is the mean
    of both slopes, as in torch. Without clipping, `_fetch` sets the old value to the new one, so both are equal.
    """
    half = np.float32(0.5)
    for i in range(num):
        old_value, returns = columns[OLD_VALUE, i], columns[RETURNS, i]
        moved, slope = columns[value, i] - old_value, columns[value, i] - returns
        within = -bound if moved < -bound else moved
        within = bound if within > bound else within
        clipped_slope = old_value + within - returns
        error, clipped_error = slope * slope, clipped_slope * clipped_slope
        clipped_slope = clipped_slope if within == moved else np.float32(0)
        columns[VALUE_LOSS, i] = half * (clipped_error if error < clipped_error else error)
        slope = half * (slope + clipped_slope) if error == clipped_error else slope
        columns[value, i] = weight * (clipped_slope if error < clipped_error else slope)


@inlined_sum
def _add_terms(terms, columns, num):  # type: ignore[no-untyped-def]
    """Add the loss terms of `num` samples to `terms`."""
    for term in range(NUM_TERMS):
        total = 0.0
        for i in range(num):
            total += np.float64(columns[term, i])
        terms[term] += total


@inlined
def _log_probabilities(columns, action, first, end, shift, num):  # type: ignore[no-untyped-def]
    """Replace the logits of one choice, rows `first` to `end` of `columns`, by log-probabilities.

    Writes the probabilities to the rows `shift` before them, and adds to ENTROPY and, for the chosen action, to
    LOG_RATIO.
    """
    for i in range(num):
        columns[HIGHEST, i] = columns[first, i]
        columns[TOTAL, i] = 0
    for a in range(first + 1, end):
        for i in range(num):
            columns[HIGHEST, i] = columns[a, i] if columns[a, i] > columns[HIGHEST, i] else columns[HIGHEST, i]
    for a in range(first, end):
        for i in range(num):
            lower = columns[a, i] - columns[HIGHEST, i]
            share = exp(lower)
            columns[a, i], columns[a - shift, i] = lower, share
            columns[TOTAL, i] += share
    for i in range(num):
        total = columns[TOTAL, i]
        columns[HIGHEST, i], columns[TOTAL, i] = log(total), np.float32(1) / total
    for a in range(first, end):
        for i in range(num):
            lower, share = columns[a, i] - columns[HIGHEST, i], columns[a - shift, i] * columns[TOTAL, i]
            columns[a, i], columns[a - shift, i] = lower, share
            columns[ENTROPY, i] -= share * lower
            columns[LOG_RATIO, i] += lower if columns[action, i] == np.float32(a - first) else np.float32(0)


@inlined
def _choice_back(columns, action, first, end, shift, to_entropy, num):  # type: ignore[no-untyped-def]
    """Replace the log-probabilities of one choice by the gradients with respect to its logits."""
    for i in range(num):
        columns[TOTAL, i] = 0
    for a in range(first, end):
        for i in range(num):
            columns[TOTAL, i] -= columns[a - shift, i] * columns[a, i]
    for a in range(first, end):
        for i in range(num):
            chosen = np.float32(1) if columns[action, i] == np.float32(a - first) else np.float32(0)
            share = columns[a - shift, i]
            pull = to_entropy * share * (columns[a, i] + columns[TOTAL, i])
            columns[a, i] = columns[SLOPE, i] * (chosen - share) - pull


@AddressedFunction
def loss_of_choices(address, samples_at, rows, outputs_at, to_outputs_at, scale_at, terms_at):  # type: ignore[no-untyped-def]
    """Compute PPO's loss for discrete actions: writes its gradient with respect to the outputs and adds to the terms.

    `samples_at` holds the numbers of the samples [rows], `outputs_at` the network's outputs [rows, A + 1]; the gradient
    is written to `to_outputs_at`, of the same shape. `scale_at` holds the factor of each sample's gradient.
    """
    work, scale, terms = work_at(address), floats(scale_at, 1)[0], doubles(terms_at, NUM_TERMS)
    size, width = work.num_outputs - 1, work.num_components
    offsets, to_entropy = words(work.offsets, width + 1), np.float32(-scale * work.entropy_coef)
    logits = ACTIONS + width + size  # the first row of the logits, after the probabilities
    columns = np.empty((logits + size + 1, LANES), np.float32)
    for start in range(0, rows, LANES):
        num = LANES if start + LANES <= rows else rows - start
        begin = _FLOAT * start * (size + 1)
        samples = words(samples_at + 8 * start, num)
        to_outputs = float_rows(to_outputs_at + begin, num, size + 1)
        _fetch(work, samples, float_rows(outputs_at + begin, num, size + 1), columns, logits)
        for i in range(num):
            action = words(work.action + 8 * samples[i] * width, width)
            for component in range(width):
                columns[ACTIONS + component, i] = action[component]
            mask = flags(work.mask + samples[i] * size, size if work.mask != 0 else 0)
            for a in range(len(mask)):
                if not mask[a]:
                    columns[logits + a, i] = MASKED_LOGIT
        for component in range(width):
            first, end = logits + offsets[component], logits + offsets[component + 1]
            _log_probabilities(columns, ACTIONS + component, first, end, size, num)
        _policy_loss(columns, np.float32(work.clip), scale, num)
        for component in range(width):
            first, end = logits + offsets[component], logits + offsets[component + 1]
            _choice_back(columns, ACTIONS + component, first, end, size, to_entropy, num)
        _value_loss(columns, logits + size, np.float32(work.value_clip), np.float32(scale * work.value_coef), num)
        _add_terms(terms, columns, num)
        for i in range(num):
            for a in range(size + 1):
                to_outputs[i, a] = columns[logits + a, i]
            mask = flags(work.mask + samples[i] * size, size if work.mask != 0 else 0)
            for a in range(len(mask)):
                if not mask[a]:
                    to_outputs[i, a] = 0


@inlined
def _add_density(columns, action, mean, deviation, num):  # type: ignore[no-untyped-def]
    """Add the log-density of one component of the actions to LOG_RATIO and its entropy to ENTROPY.

    `action`, `mean` and `deviation` are the rows of `columns` of this component.
    """
    low, high, half = np.float32(MIN_LOG_STD), np.float32(MAX_LOG_STD), np.float32(0.5)
    for i in range(num):
        log_std = min(max(columns[deviation, i], low), high)
        distance = (columns[action, i] - columns[mean, i]) * exp(-log_std)
        columns[LOG_RATIO, i] -= half * distance * distance + log_std + _HALF_LOG_TWO_PI
        columns[ENTROPY, i] += log_std + _HALF_LOG_TWO_PI + half


@inlined
def _density_back(columns, action, mean, deviation, to_entropy, num):  # type: ignore[no-untyped-def]
    """Replace the mean and the log-deviation of one component by the gradients with respect to them."""
    low, high, one = np.float32(MIN_LOG_STD), np.float32(MAX_LOG_STD), np.float32(1)
    for i in range(num):
        given, slope = columns[deviation, i], columns[SLOPE, i]
        inverse = exp(-min(max(given, low), high))
        distance = (columns[action, i] - columns[mean, i]) * inverse
        pull = slope * (distance * distance - one) + to_entropy
        leaves = (given > high and pull < 0) or (given < low and pull > 0)  # see layers.keep_within
        columns[mean, i] = slope * distance * inverse
        columns[deviation, i] = np.float32(0) if leaves else pull


@AddressedFunction
def loss_of_points(address, samples_at, rows, outputs_at, to_outputs_at, scale_at, terms_at):  # type: ignore[no-untyped-def]
    """Compute PPO's loss for actions from independent normal distributions; otherwise as `loss_of_choices`.

    Outputs are means, then logarithms of deviations, then the value.
    """
    work, scale, terms = work_at(address), floats(scale_at, 1)[0], doubles(terms_at, NUM_TERMS)
    size, width = work.num_outputs - 1, work.num_components
    to_entropy, means = np.float32(-scale * work.entropy_coef), ACTIONS + width
    columns = np.empty((means + size + 1, LANES), np.float32)
    for start in range(0, rows, LANES):
        num = LANES if start + LANES <= rows else rows - start
        begin = _FLOAT * start * (size + 1)
        samples = words(samples_at + 8 * start, num)
        to_outputs = float_rows(to_outputs_at + begin, num, size + 1)
        _fetch(work, samples, float_rows(outputs_at + begin, num, size + 1), columns, means)
        for i in range(num):
            action = floats(work.action + _FLOAT * samples[i] * width, width)
            for d in range(width):
                columns[ACTIONS + d, i] = action[d]
        for d in range(width):
            _add_density(columns, ACTIONS + d, means + d, means + width + d, num)
        _policy_loss(columns, np.float32(work.clip), scale, num)
        for d in range(width):
            _density_back(columns, ACTIONS + d, means + d, means + width + d, to_entropy, num)
        _value_loss(columns, means + size, np.float32(work.value_clip), np.float32(scale * work.value_coef), num)
        _add_terms(terms, columns, num)
        for i in range(num):
            for a in range(size + 1):
                to_outputs[i, a] = columns[means + a, i]
