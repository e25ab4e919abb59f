"""The kernels of `TritonMLP` that only run the forward pass: drawing actions and computing values."""

from __future__ import annotations

from scramjet.accelerate.triton.mlp.distributions import draw_choices, draw_normal, legal_logits
from scramjet.accelerate.triton.mlp.layers import column_of, forward, read_inputs, read_rows, read_scale, read_weights
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.policies.config import MAX_LOG_STD, MIN_LOG_STD
from scramjet.policies.sampling import MASKED_LOGIT

if HAS_TRITON:
    import triton.language as tl


@triton_jit("num_rows", "noise_at", "action_at", "log_prob_at", "value_at", "env_action_at")
def act_kernel(  # type: ignore[no-untyped-def]
    inputs_at, mean_at, variance_at, mask_at, noise_at, offsets_at, weights_at,
    action_at, log_prob_at, value_at, env_action_at, bounds_at, num_rows,
    bound: tl.constexpr, is_normal: tl.constexpr, components: tl.constexpr, scales: tl.constexpr,
    num_inputs: tl.constexpr, inputs: tl.constexpr, units1: tl.constexpr, width1: tl.constexpr,
    units2: tl.constexpr, width2: tl.constexpr, num_logits: tl.constexpr, num_weighted: tl.constexpr,
    has_value: tl.constexpr, outputs: tl.constexpr,
    block: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
    low: tl.constexpr = MIN_LOG_STD, high: tl.constexpr = MAX_LOG_STD, masked_logit: tl.constexpr = MASKED_LOGIT,
):  # fmt: skip
    """Draw actions, see `TritonMLP.act`; one program for each block of rows."""
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_row = row < num_rows
    noise = read_rows(noise_at, row, is_row, components, outputs)  # here, so that nothing waits for it at the end
    w1, b1, _, w2_turned, b2, _, w3_turned, b3 = read_weights(
        weights_at, num_inputs, inputs, units1, width1, units2, width2, num_logits, num_weighted, has_value, outputs,
        precision,
    )  # fmt: skip
    shift, scale = read_scale(mean_at, variance_at, num_inputs, inputs)
    x = read_inputs(inputs_at, row, is_row, shift, scale, bound, num_inputs, inputs)
    _, _, logits = forward(x, w1, b1, w2_turned, b2, w3_turned, b3, num_inputs, inputs, precision, activation)
    if value_at is not None:
        tl.store(value_at + row, column_of(logits, num_logits, outputs), mask=is_row)
    if is_normal:
        draw_normal(
            logits, noise, action_at, log_prob_at, env_action_at, bounds_at, row, is_row, scales, components,
            outputs, low, high,
        )  # fmt: skip
    else:
        logits, _ = legal_logits(logits, mask_at, row, is_row, num_logits, outputs, masked_logit)
        draw_choices(logits, noise, action_at, log_prob_at, offsets_at, row, is_row, components, outputs)


@triton_jit("num_rows", "value_at")
def value_kernel(  # type: ignore[no-untyped-def]
    inputs_at, mean_at, variance_at, weights_at, value_at, num_rows, bound: tl.constexpr,
    num_inputs: tl.constexpr, inputs: tl.constexpr, units1: tl.constexpr, width1: tl.constexpr,
    units2: tl.constexpr, width2: tl.constexpr, num_logits: tl.constexpr, num_weighted: tl.constexpr,
    outputs: tl.constexpr, block: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
):  # fmt: skip
    """Compute values, see `TritonMLP.values`; one program for each block of rows."""
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_row = row < num_rows
    w1, b1, _, w2_turned, b2, _, w3_turned, b3 = read_weights(
        weights_at, num_inputs, inputs, units1, width1, units2, width2, num_logits, num_weighted, 1, outputs, precision
    )
    shift, scale = read_scale(mean_at, variance_at, num_inputs, inputs)
    x = read_inputs(inputs_at, row, is_row, shift, scale, bound, num_inputs, inputs)
    _, _, outcome = forward(x, w1, b1, w2_turned, b2, w3_turned, b3, num_inputs, inputs, precision, activation)
    tl.store(value_at + row, column_of(outcome, num_logits, outputs), mask=is_row)
