"""Distributions over actions in Triton: drawing, log-probability, entropy and their gradients.

Choices are `Categorical` (one component) and `MultiCategorical`; normal numbers are `DiagonalGaussian`, not squashed.
All functions take the outputs of a policy as a block [block, outputs], of which the first `num_logits` columns count.
"""

from __future__ import annotations

from scramjet.accelerate.triton.mlp.layers import column_of, read_rows
from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import clamped, leads_out

if HAS_TRITON:
    import triton.language as tl

HALF_LOG_TWO_PI = 0.9189385332046727


@triton_jit()
def legal_logits(  # type: ignore[no-untyped-def]
    logits, mask_at, row, is_row, num_logits: tl.constexpr, outputs: tl.constexpr, masked_logit: tl.constexpr
):
    """The logits with illegal choices masked and padding at -inf, and which of them are legal choices (bool)."""
    is_choice = (tl.arange(0, outputs) < num_logits)[None, :]
    is_legal = is_choice & is_row[:, None]
    if mask_at is not None:
        is_legal = is_legal & (read_rows(mask_at, row, is_row, num_logits, outputs) != 0)
        logits = tl.where(is_legal, logits, masked_logit)
    return tl.where(is_choice, logits, float("-inf")), is_legal


@triton_jit()
def draw_choice(logits, uniform, first, outputs: tl.constexpr):  # type: ignore[no-untyped-def]
    """Draw a column of the logits [block, outputs] by inverting their distribution at `uniform` [block], and its
    log-probability. Columns of -inf are never drawn; `first` is drawn where logits are NaN."""
    column = tl.arange(0, outputs)[None, :]
    highest = tl.max(logits, axis=1)
    weight = tl.exp(logits - highest[:, None])
    total = tl.sum(weight, axis=1)
    # Cumulative sums are added as a tree and may round up at an impossible choice, which must not be drawn.
    is_reached = (weight > 0.0) & (tl.cumsum(weight, axis=1) > (uniform * total)[:, None])
    reached = tl.min(tl.where(is_reached, column, outputs), axis=1)
    last = tl.max(tl.where(weight > 0.0, column, first), axis=1)  # used if rounding keeps the sum below the threshold
    chosen = tl.where(reached < outputs, reached, last)
    logit = tl.sum(tl.where(column == chosen[:, None], logits, 0.0), axis=1)
    return chosen, logit - highest - tl.log(total)


@triton_jit()
def draw_choices(  # type: ignore[no-untyped-def]
    logits, noise, action_at, log_prob_at, offsets_at, row, is_row, components: tl.constexpr, outputs: tl.constexpr
):
    """Draw and write the choice of each component, int64 [rows, components], and their log-probability [rows].

    Column c of `noise` [block, outputs] is the uniform number of component c, which has the columns of the logits from
    offsets[c] to offsets[c + 1]. The logits are legal ones, -inf where padded.
    """
    column = tl.arange(0, outputs)[None, :]
    log_prob = tl.zeros_like(row).to(tl.float32)
    for c in tl.static_range(components):
        first, own = 0, logits
        if components > 1:
            first = tl.load(offsets_at + c)
            own = tl.where((column >= first) & (column < tl.load(offsets_at + c + 1)), logits, float("-inf"))
        chosen, log_prob_of_chosen = draw_choice(own, column_of(noise, c, outputs), first, outputs)
        tl.store(action_at + row * components + c, (chosen - first).to(tl.int64), mask=is_row)
        log_prob += log_prob_of_chosen
    tl.store(log_prob_at + row, log_prob, mask=is_row)


@triton_jit()
def draw_normal(  # type: ignore[no-untyped-def]
    logits, noise, action_at, log_prob_at, env_action_at, bounds_at, row, is_row, scales: tl.constexpr,
    components: tl.constexpr, outputs: tl.constexpr, low: tl.constexpr, high: tl.constexpr,
    half_log_two_pi: tl.constexpr = HALF_LOG_TWO_PI,
):  # fmt: skip
    """Draw and write mean + deviation * noise, float32 [rows, components], and its log-probability [rows].

    The first columns of `noise` [block, outputs] are those of the components. Where `env_action_at` is given, also
    write what the env receives: `DiagonalGaussian.env_action` says what that is, and this is the same with the `bounds`
    of the plan.
    """
    log_prob = tl.zeros_like(row).to(tl.float32)
    for c in tl.static_range(components):
        mean = column_of(logits, c, outputs)
        log_std = clamped(column_of(logits, components + c, outputs), low, high)
        action = mean + tl.exp(log_std) * column_of(noise, c, outputs)
        distance = (action - mean) * tl.exp(-log_std)
        tl.store(action_at + row * components + c, action, mask=is_row)
        if env_action_at is not None:
            given = action
            if scales:
                given = tl.load(bounds_at + c) + tl.load(bounds_at + components + c) * action
            lowest, highest = tl.load(bounds_at + 2 * components + c), tl.load(bounds_at + 3 * components + c)
            tl.store(env_action_at + row * components + c, clamped(given, lowest, highest), mask=is_row)
        log_prob -= 0.5 * distance * distance + log_std + half_log_two_pi
    tl.store(log_prob_at + row, log_prob, mask=is_row)


@triton_jit()
def choices(  # type: ignore[no-untyped-def]
    logits, action_at, offsets_at, row, is_row, num_logits: tl.constexpr, components: tl.constexpr,
    outputs: tl.constexpr,
):  # fmt: skip
    """Of the stored choices: log-probability and entropy [block], and the derivatives of the log-probability and of the
    negative entropy with respect to the logits [block, outputs]. The logits are legal ones, -inf where padded."""
    column = tl.arange(0, outputs)[None, :]
    probability, log_probs = tl.zeros_like(logits), tl.zeros_like(logits)
    slope, is_action, entropy = tl.zeros_like(logits), tl.zeros_like(logits), tl.zeros_like(row).to(tl.float32)
    for c in tl.static_range(components):
        first, is_here, own = 0, column < num_logits, logits
        if components > 1:
            first = tl.load(offsets_at + c)
            is_here = (column >= first) & (column < tl.load(offsets_at + c + 1))
            own = tl.where(is_here, logits, float("-inf"))
        shifted = own - tl.max(own, axis=1)[:, None]
        weight = tl.exp(shifted)
        total = tl.sum(weight, axis=1)
        own_log_probs = tl.where(is_here, shifted - tl.log(total)[:, None], 0.0)
        own_probability = weight / total[:, None]
        own_entropy = -tl.sum(own_probability * own_log_probs, axis=1)
        chosen = tl.load(action_at + row * components + c, mask=is_row, other=0) + first
        probability += own_probability
        log_probs += own_log_probs
        entropy += own_entropy
        slope += own_probability * (own_log_probs + own_entropy[:, None])
        is_action += tl.where(column == chosen[:, None], 1.0, 0.0)
    return tl.sum(is_action * log_probs, axis=1), entropy, is_action - probability, slope


@triton_jit()
def normal(  # type: ignore[no-untyped-def]
    logits, action_at, row, is_row, components: tl.constexpr, outputs: tl.constexpr,
    low: tl.constexpr, high: tl.constexpr, half_log_two_pi: tl.constexpr = HALF_LOG_TWO_PI,
):  # fmt: skip
    """Of the stored numbers: log-probability and entropy [block], and the derivatives of the log-probability and of the
    negative entropy with respect to the logits [block, outputs]."""
    column = tl.arange(0, outputs)[None, :]
    log_prob, entropy = tl.zeros_like(row).to(tl.float32), tl.zeros_like(row).to(tl.float32)
    direction = tl.zeros_like(logits)
    for c in tl.static_range(components):
        mean = column_of(logits, c, outputs)
        log_std = clamped(column_of(logits, components + c, outputs), low, high)
        inverse = tl.exp(-log_std)
        action = tl.load(action_at + row * components + c, mask=is_row, other=0.0)
        distance = (action - mean) * inverse
        log_prob -= 0.5 * distance * distance + log_std + half_log_two_pi
        entropy += 0.5 + half_log_two_pi + log_std
        direction = tl.where(column == c, (distance * inverse)[:, None], direction)
        direction = tl.where(column == components + c, (distance * distance - 1.0)[:, None], direction)
    is_log_std = (column >= components) & (column < 2 * components)
    return log_prob, entropy, direction, tl.where(is_log_std, -1.0, tl.zeros_like(logits))


@triton_jit()
def kept_within(  # type: ignore[no-untyped-def]
    gradient, logits, components: tl.constexpr, outputs: tl.constexpr, low: tl.constexpr, high: tl.constexpr
):
    """The gradient without what would move the logarithm of a deviation farther outside its range (`keep_within`)."""
    column = tl.arange(0, outputs)[None, :]
    return tl.where((column >= components) & leads_out(logits, gradient, low, high), 0.0, gradient)
