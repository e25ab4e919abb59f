"""The kernel that takes samples through forward pass, loss gradient and backward pass, and sums the gradients.

Sums are taken in a fixed order, without atomics, so that results are reproducible: each program writes its sums to a
row of its own, and `steps.reduce_kernel` adds the rows.
"""

from __future__ import annotations

from scramjet.accelerate.triton.mlp.layers import (
    forward,
    read_inputs,
    read_scale,
    read_weights,
    through_activation,
    weight_rows,
)
from scramjet.accelerate.triton.mlp.losses import policy_loss, value_loss
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import dot, operand
from scramjet.policies.config import MAX_LOG_STD, MIN_LOG_STD
from scramjet.policies.sampling import MASKED_LOGIT

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def _write_sums(  # type: ignore[no-untyped-def]
    at, w1, b1, w2, b2, w3, b3,
    num_inputs: tl.constexpr, inputs: tl.constexpr, units1: tl.constexpr, width1: tl.constexpr,
    units2: tl.constexpr, width2: tl.constexpr, num_logits: tl.constexpr, num_weighted: tl.constexpr,
    has_value: tl.constexpr, outputs: tl.constexpr,
):  # fmt: skip
    """Write a program's gradients to `at`, in the order of the weights.

    Given are those of w1 [width1, inputs], with b1 as a column where there is room; w2 [width2, width1]; w3 transposed
    [width2, outputs]; those of b1 and b2 in every column of [width, outputs]; and that of b3 for each sample of a
    block, [block, outputs], which is summed here.
    """
    unit1, unit2 = tl.arange(0, width1), tl.arange(0, width2)[:, None]
    column, output = tl.arange(0, inputs)[None, :], tl.arange(0, outputs)
    is_unit1, is_unit2, is_first = unit1 < units1, unit2 < units2, (output == 0)[None, :]
    b1_at = at + units1 * num_inputs
    place = tl.where(column < num_inputs, unit1[:, None] * num_inputs + column, units1 * num_inputs + unit1[:, None])
    tl.store(at + place, w1, mask=(column <= num_inputs) & is_unit1[:, None])
    if num_inputs == inputs:
        tl.store(b1_at + unit1[:, None] + output[None, :], b1, mask=is_unit1[:, None] & is_first)
    at = b1_at + units1
    tl.store(at + unit2 * units1 + unit1[None, :], w2, mask=is_unit2 & is_unit1[None, :])
    at += units2 * units1
    tl.store(at + unit2 + output[None, :], b2, mask=is_unit2 & is_first)
    at += units2
    row, has_weights = weight_rows(num_logits, num_weighted, has_value, outputs)
    tl.store(at + row[None, :] * units2 + unit2, w3, mask=has_weights[None, :] & is_unit2)
    at += (num_weighted + has_value) * units2
    tl.store(at + output, tl.sum(b3, axis=0), mask=output < num_logits + has_value)


@triton_jit()
def _write_policy_terms(at, surrogates, entropies, divergences, log_ratios, outsides, share):  # type: ignore[no-untyped-def]
    """Write the sums of a policy's loss terms [block], each times `share`; the second of all terms is the value's."""
    tl.store(at, tl.sum(surrogates, axis=0) * share)
    tl.store(at + 2, tl.sum(entropies, axis=0) * share)
    tl.store(at + 3, tl.sum(divergences, axis=0) * share)
    tl.store(at + 4, tl.sum(log_ratios, axis=0) * share)
    tl.store(at + 5, tl.sum(outsides, axis=0) * share)


@triton_jit()
def _through_layer(  # type: ignore[no-untyped-def]
    gradient, next_weight, y, x, weight_sum, precision: tl.constexpr, activation: tl.constexpr
):
    """From the gradient [block, outputs] of the next layer back through a hidden layer that made `y` of `x`.

    Returns the gradient before its activation [block, width], the same transposed as products read it, and
    `weight_sum` [width, inputs] with the gradient of its weights added.
    """
    gradient = through_activation(dot(gradient, next_weight, None, precision), y, activation)
    turned = tl.trans(operand(gradient, precision))
    return gradient, turned, dot(turned, x, weight_sum, precision)


@triton_jit()
def _network_gradients(  # type: ignore[no-untyped-def]
    inputs_at, mean_at, variance_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at,
    counts_at, indices_at, num_samples, share_at, statistics_at, clip_at, entropy_coef_at, value_clip, value_coef,
    offsets_at, weights_at, sums_at, terms_at,
    has_policy: tl.constexpr, bound: tl.constexpr, is_normal: tl.constexpr, components: tl.constexpr,
    num_inputs: tl.constexpr, inputs: tl.constexpr, units1: tl.constexpr, width1: tl.constexpr,
    units2: tl.constexpr, width2: tl.constexpr, num_logits: tl.constexpr, num_weighted: tl.constexpr,
    has_value: tl.constexpr, outputs: tl.constexpr,
    block: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
    low: tl.constexpr, high: tl.constexpr, masked_logit: tl.constexpr,
):  # fmt: skip
    """Compute one program's share of one network's gradients.

    Of P programs, program p takes the blocks of samples p, p + P, p + 2 P and so on. It writes the sums of its
    gradients to `sums_at` and those of its loss terms, in the order of `Diagnostics.NAMES`, to `terms_at`. Samples
    that do not count add nothing; each of the others weighs the number at `share_at`, by default 1 / num_samples.
    """
    w1, b1, w2, w2_turned, b2, w3, w3_turned, b3 = read_weights(
        weights_at, num_inputs, inputs, units1, width1, units2, width2, num_logits, num_weighted, has_value, outputs,
        precision,
    )  # fmt: skip
    shift, scale = read_scale(mean_at, variance_at, num_inputs, inputs)
    ones = tl.full([block, outputs], 1.0, tl.float32)  # sums over samples as a product: faster than a reduction
    w1_sum, w2_sum = tl.zeros([width1, inputs], tl.float32), tl.zeros([width2, width1], tl.float32)
    w3_sum, b3_sum = tl.zeros([width2, outputs], tl.float32), tl.zeros([block, outputs], tl.float32)
    b1_sum, b2_sum = tl.zeros([width1, outputs], tl.float32), tl.zeros([width2, outputs], tl.float32)
    surrogates, errors, entropies = (
        tl.zeros([block], tl.float32), tl.zeros([block], tl.float32), tl.zeros([block], tl.float32)
    )  # fmt: skip
    divergences, log_ratios, outsides = (
        tl.zeros([block], tl.float32), tl.zeros([block], tl.float32), tl.zeros([block], tl.float32)
    )  # fmt: skip
    share = 1.0 / num_samples
    if share_at is not None:
        share = tl.load(share_at)
    for start in range(tl.program_id(0) * block, num_samples, tl.num_programs(0) * block):
        place = start + tl.arange(0, block)
        is_row = place < num_samples
        row = tl.load(indices_at + place, mask=is_row, other=0).to(tl.int64)
        x = read_inputs(inputs_at, row, is_row, shift, scale, bound, num_inputs, inputs)
        first, second, outcome = forward(
            x, w1, b1, w2_turned, b2, w3_turned, b3, num_inputs, inputs, precision, activation
        )
        gradient = tl.zeros([block, outputs], tl.float32)
        if counts_at is not None:
            is_row = is_row & (tl.load(counts_at + row, mask=is_row, other=0) != 0)
        if has_policy:
            slope, surrogate, entropy, log_ratio, ratio, is_outside = policy_loss(
                outcome, row, is_row, mask_at, action_at, log_prob_at, advantage_at, statistics_at, clip_at,
                entropy_coef_at, offsets_at, is_normal, components, num_logits, outputs, low, high, masked_logit,
            )  # fmt: skip
            gradient += slope * share
            surrogates -= tl.where(is_row, surrogate, 0.0)
            entropies += tl.where(is_row, entropy, 0.0)
            divergences += tl.where(is_row, ratio - 1.0 - log_ratio, 0.0)
            log_ratios -= tl.where(is_row, log_ratio, 0.0)
            outsides += tl.where(is_row, is_outside, 0.0)
        if has_value == 1:
            slope, error = value_loss(outcome, row, is_row, value_at, returns_at, value_clip, num_logits, outputs)
            gradient += slope * (share * value_coef)
            errors += error
        b3_sum += gradient
        w3_sum = dot(tl.trans(operand(second, precision)), gradient, w3_sum, precision)
        gradient, turned, w2_sum = _through_layer(gradient, w3, second, first, w2_sum, precision, activation)
        b2_sum = dot(turned, ones, b2_sum, precision)
        gradient, turned, w1_sum = _through_layer(gradient, w2, first, x, w1_sum, precision, activation)
        if num_inputs == inputs:
            b1_sum = dot(turned, ones, b1_sum, precision)
    _write_sums(
        sums_at, w1_sum, b1_sum, w2_sum, b2_sum, w3_sum, b3_sum,
        num_inputs, inputs, units1, width1, units2, width2, num_logits, num_weighted, has_value, outputs,
    )  # fmt: skip
    if has_policy:
        _write_policy_terms(terms_at, surrogates, entropies, divergences, log_ratios, outsides, share)
    if has_value == 1:
        tl.store(terms_at + 1, tl.sum(errors, axis=0) * share)


@triton_jit(
    "indices_at", "num_samples", "share_at", "statistics_at", "clip_at", "entropy_coef_at", "row_size", "num_parameters"
)
def gradients_kernel(  # type: ignore[no-untyped-def]
    inputs_at, mean_at, variance_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at,
    counts_at, indices_at, num_samples, share_at, statistics_at, clip_at, entropy_coef_at, value_clip, value_coef,
    offsets_at, weights_at, partials_at, num_parameters, row_size,
    is_one_network: tl.constexpr, has_policy: tl.constexpr, critic_at: tl.constexpr, bound: tl.constexpr,
    is_normal: tl.constexpr, components: tl.constexpr, num_inputs: tl.constexpr, inputs: tl.constexpr,
    units1: tl.constexpr, width1: tl.constexpr, units2: tl.constexpr, width2: tl.constexpr,
    num_logits: tl.constexpr, num_weighted: tl.constexpr, outputs: tl.constexpr, value_outputs: tl.constexpr,
    block: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
    low: tl.constexpr = MIN_LOG_STD, high: tl.constexpr = MAX_LOG_STD, masked_logit: tl.constexpr = MASKED_LOGIT,
):  # fmt: skip
    """Compute partial gradients; the grid is (programs, 2), and network 0 is the actor, 1 the critic, whose weights and
    gradients begin at `critic_at`. With a shared trunk, or a critic alone, it is (programs, 1).

    Program (p, network) writes its gradients to row p of `partials_at`, and its loss terms after the last parameter.
    """
    program, network = tl.program_id(0), tl.program_id(1)
    sums_at = partials_at + program * row_size
    terms_at = sums_at + num_parameters
    if is_one_network:
        _network_gradients(
            inputs_at, mean_at, variance_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at,
            counts_at, indices_at, num_samples, share_at, statistics_at, clip_at, entropy_coef_at, value_clip,
            value_coef, offsets_at, weights_at, sums_at, terms_at, has_policy, bound, is_normal, components,
            num_inputs, inputs, units1, width1, units2, width2, num_logits, num_weighted, 1, outputs,
            block, precision, activation, low, high, masked_logit,
        )  # fmt: skip
    elif network == 0:
        _network_gradients(
            inputs_at, mean_at, variance_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at,
            counts_at, indices_at, num_samples, share_at, statistics_at, clip_at, entropy_coef_at, value_clip,
            value_coef, offsets_at, weights_at, sums_at, terms_at, True, bound, is_normal, components,
            num_inputs, inputs, units1, width1, units2, width2, num_logits, num_weighted, 0, outputs,
            block, precision, activation, low, high, masked_logit,
        )  # fmt: skip
    else:
        _network_gradients(
            inputs_at, mean_at, variance_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at,
            counts_at, indices_at, num_samples, share_at, statistics_at, clip_at, entropy_coef_at, value_clip,
            value_coef, offsets_at, weights_at + critic_at, sums_at + critic_at, terms_at, False, bound, is_normal,
            components, num_inputs, inputs, units1, width1, units2, width2, 0, 0, 1, value_outputs,
            block, precision, activation, low, high, masked_logit,
        )  # fmt: skip
