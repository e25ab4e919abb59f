"""PPO's loss in Triton: the gradients with respect to a network's outputs, and the terms that are reported.

This is `ppo_loss` with its derivative; tests compare them.
"""

from __future__ import annotations

from scramjet.accelerate.triton.loss_kernels import squared_error
from scramjet.accelerate.triton.mlp.distributions import choices, kept_within, legal_logits, normal
from scramjet.accelerate.triton.mlp.layers import column_of
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import clamped

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def policy_loss(  # type: ignore[no-untyped-def]
    logits, row, is_row, mask_at, action_at, log_prob_at, advantage_at, statistics_at, clip_at, entropy_coef_at,
    offsets_at, is_normal: tl.constexpr, components: tl.constexpr, num_logits: tl.constexpr, outputs: tl.constexpr,
    low: tl.constexpr, high: tl.constexpr, masked_logit: tl.constexpr,
):  # fmt: skip
    """The gradient of the policy loss and entropy bonus with respect to the logits [block, outputs]; then for each
    sample [block] the surrogate, entropy, log-ratio, ratio, and whether the ratio is outside the clip range.

    The surrogate min(r A, clip(r) A) (Schulman et al. 2017, eq. 7) has the derivative r A with respect to log r, or 0
    where it is clipped.
    """
    if is_normal:
        log_prob, entropy, direction, bonus = normal(logits, action_at, row, is_row, components, outputs, low, high)
        counts = (tl.arange(0, outputs) < num_logits)[None, :] & is_row[:, None]
    else:
        logits, counts = legal_logits(logits, mask_at, row, is_row, num_logits, outputs, masked_logit)
        log_prob, entropy, direction, bonus = choices(
            logits, action_at, offsets_at, row, is_row, num_logits, components, outputs
        )
    advantage = tl.load(advantage_at + row, mask=is_row, other=0.0)
    if statistics_at is not None:
        advantage = (advantage - tl.load(statistics_at)) * tl.load(statistics_at + 1)
    clip = tl.load(clip_at)
    log_ratio = log_prob - tl.load(log_prob_at + row, mask=is_row, other=0.0)
    ratio = tl.exp(log_ratio)
    unclipped = ratio * advantage
    clipped = clamped(ratio, 1.0 - clip, 1.0 + clip) * advantage
    is_inside = (ratio >= 1.0 - clip) & (ratio <= 1.0 + clip)
    slope = tl.where(is_inside | (unclipped < clipped), unclipped, 0.0)
    gradient = tl.load(entropy_coef_at) * bonus - slope[:, None] * direction
    gradient = tl.where(counts, gradient, 0.0)
    if is_normal:
        gradient = kept_within(gradient, logits, components, outputs, low, high)
    is_outside = tl.where(tl.abs(ratio - 1.0) > clip, 1.0, 0.0)
    return gradient, tl.where(unclipped < clipped, unclipped, clipped), entropy, log_ratio, ratio, is_outside


@triton_jit()
def value_loss(  # type: ignore[no-untyped-def]
    outcome, row, is_row, value_at, returns_at, value_clip, place: tl.constexpr, outputs: tl.constexpr
):
    """The gradient of the value loss with respect to the outputs [block, outputs], of which column `place` is the
    value, and each sample's loss [block]."""
    value = column_of(outcome, place, outputs)
    returns = tl.load(returns_at + row, mask=is_row, other=0.0)
    old_value = value
    if value_clip is not None:
        old_value = tl.load(value_at + row, mask=is_row, other=0.0)
    error, slope = squared_error(value, old_value, returns, value_clip)
    is_value = (tl.arange(0, outputs) == place)[None, :] & is_row[:, None]
    return tl.where(is_value, slope[:, None], 0.0), tl.where(is_row, error, 0.0)
