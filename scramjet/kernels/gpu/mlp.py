"""The kernels of `TritonMLP`: a small network forward, PPO's loss and backward without a write of activations, and
acting. First what all of them share: activations, reading of inputs and weights, the forward pass.

Names that end in `_at` are pointers. Constexpr arguments, and whether a pointer is None, are known when a kernel is
compiled. Functions here are called by kernels. Widths are those of memory; blocks on chip are padded with zeros to
powers of two, and a padded unit or output has weights of 0, so that it adds nothing.

The weights of a network stand one after the other (see `FlatWeights`): w1 [units1, D], b1, w2 [units2, units1], b2,
w3 [outputs with weights, units2], b3 [outputs]. Outputs are `num_logits` numbers for the distribution, of which the
first `num_weighted` have weights and the others only a bias, then the value if `has_value` is 1.
"""

from __future__ import annotations

from scramjet.kernels import MASKED_LOGIT, MAX_LOG_STD, MIN_LOG_STD
from scramjet.kernels.gpu.language import HAS_TRITON, clamped, dot, leads_out, operand, tanh, triton_jit
from scramjet.kernels.gpu.losses import squared_error
from scramjet.kernels.gpu.normalizing import scale_of

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def activate(x, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    """tanh, ReLU or "fast_tanh": one instruction that is exact to 11 bits, as products in tf32 are."""
    if activation == "tanh":
        y = tanh(x)
    elif activation == "fast_tanh":
        y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.where(x < 0.0, 0.0, x)  # NaN stays NaN
    return y


@triton_jit()
def through_activation(gradient, y, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient with respect to an activation's input, from its result `y` and the gradient with respect to that."""
    if activation == "relu":
        gradient = tl.where(y > 0.0, gradient, 0.0)
    else:
        gradient = gradient * (1.0 - y * y)
    return gradient


@triton_jit()
def read_rows(at, row, is_row, width: tl.constexpr, padded: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read rows of a matrix of `width` columns, padded with zeros: [rows, padded]."""
    column = tl.arange(0, padded)
    return tl.load(
        at + row[:, None] * width + column[None, :], mask=is_row[:, None] & (column < width)[None, :], other=0.0
    )


@triton_jit()
def column_of(x, number: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """One column of `x` [block, width]: [block]."""
    return tl.sum(tl.where((tl.arange(0, width) == number)[None, :], x, 0.0), axis=1)


@triton_jit()
def read_scale(mean_at, variance_at, num_inputs: tl.constexpr, inputs: tl.constexpr):  # type: ignore[no-untyped-def]
    """What `ObservationNormalizer` subtracts and multiplies by, [1, inputs] each; zeros if `mean_at` is None."""
    column = tl.arange(0, inputs)[None, :]
    shift, scale = tl.zeros([1, inputs], tl.float32), tl.zeros([1, inputs], tl.float32)
    if mean_at is not None:
        shift, scale = scale_of(mean_at, variance_at, column, column < num_inputs)
    return shift, scale


@triton_jit()
def read_inputs(  # type: ignore[no-untyped-def]
    inputs_at, row, is_row, shift, scale,
    bound: tl.constexpr, num_inputs: tl.constexpr, inputs: tl.constexpr,
):  # fmt: skip
    """Read inputs [block, inputs], normalized and clipped to `bound` if that is not None, each followed by a 1.

    The first layer's bias is treated as one more column of its weights, which is multiplied by that 1. So one product
    gives the gradients of both, and the bias takes no registers. Where inputs need no padding there is no 1.
    """
    x = read_rows(inputs_at, row, is_row, num_inputs, inputs)
    if bound is not None:
        x = (x - shift) * scale
        x = clamped(x, -bound, bound)
    if num_inputs < inputs:
        x = tl.where((tl.arange(0, inputs) == num_inputs)[None, :], 1.0, x)
    return x


@triton_jit()
def read_weights(  # type: ignore[no-untyped-def]
    at, num_inputs: tl.constexpr, inputs: tl.constexpr, units1: tl.constexpr, width1: tl.constexpr,
    units2: tl.constexpr, width2: tl.constexpr, num_logits: tl.constexpr, num_weighted: tl.constexpr,
    has_value: tl.constexpr, outputs: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Read all weights of a network: w1 transposed [inputs, width1], with b1 as a row where there is room; b1 [1,
    width1]; w2 [width2, width1], the same transposed, b2 [1, width2]; w3 [outputs, width2], the same transposed, b3 [1,
    outputs].

    The forward pass multiplies by transposed weights and the backward pass by plain ones. Both are read, because what
    is transposed within a loop over blocks stays in registers and is written to shared memory for each block.
    """
    unit1, unit2 = tl.arange(0, width1), tl.arange(0, width2)
    column, output = tl.arange(0, inputs)[:, None], tl.arange(0, outputs)
    is_unit1, is_unit2 = unit1 < units1, unit2 < units2
    w1_mask = (column < num_inputs) & is_unit1[None, :]
    w1 = tl.load(at + unit1[None, :] * num_inputs + column, mask=w1_mask, other=0.0)
    at += units1 * num_inputs
    b1 = tl.load(at + unit1[None, :], mask=is_unit1[None, :], other=0.0)
    if num_inputs < inputs:
        w1 = tl.where(column == num_inputs, b1, w1)
    at += units1
    w2 = tl.load(at + unit2[:, None] * units1 + unit1[None, :], mask=is_unit2[:, None] & is_unit1[None, :], other=0.0)
    w2_turned = tl.load(
        at + unit2[None, :] * units1 + unit1[:, None], mask=is_unit2[None, :] & is_unit1[:, None], other=0.0
    )
    at += units2 * units1
    b2 = tl.load(at + unit2[None, :], mask=is_unit2[None, :], other=0.0)
    at += units2
    row, has_weights = weight_rows(num_logits, num_weighted, has_value, outputs)
    w3 = tl.load(at + row[:, None] * units2 + unit2[None, :], mask=has_weights[:, None] & is_unit2[None, :], other=0.0)
    w3_turned = tl.load(
        at + row[None, :] * units2 + unit2[:, None], mask=has_weights[None, :] & is_unit2[:, None], other=0.0
    )
    at += (num_weighted + has_value) * units2
    b3 = tl.load(at + output[None, :], mask=(output < num_logits + has_value)[None, :], other=0.0)
    w1, w2, w2_turned = operand(w1, precision), operand(w2, precision), operand(w2_turned, precision)
    return w1, b1, w2, w2_turned, b2, operand(w3, precision), operand(w3_turned, precision), b3


@triton_jit()
def weight_rows(  # type: ignore[no-untyped-def]
    num_logits: tl.constexpr, num_weighted: tl.constexpr, has_value: tl.constexpr, outputs: tl.constexpr
):
    """Which row of w3 each output has, and whether it has one, [outputs] each."""
    output = tl.arange(0, outputs)
    is_value = (output >= num_logits) & (output < num_logits + has_value)
    return tl.where(is_value, num_weighted, output), (output < num_weighted) | is_value


@triton_jit()
def forward(  # type: ignore[no-untyped-def]
    x, w1, b1, w2_turned, b2, w3_turned, b3,
    num_inputs: tl.constexpr, inputs: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
):  # fmt: skip
    """The activations of both hidden layers [block, width] and the outputs [block, outputs] of x [block, inputs]."""
    first = dot(x, w1, None, precision)
    if num_inputs == inputs:
        first += b1
    first = activate(first, activation)
    second = activate(dot(first, w2_turned, None, precision) + b2, activation)
    return first, second, dot(second, w3_turned, None, precision) + b3


# --- distributions over actions in Triton: drawing, log-probability, entropy and their gradients
#
# Choices are `Categorical` (one component) and `MultiCategorical`; normal numbers are `DiagonalGaussian`, not squashed.
# All functions take the outputs of a policy as a block [block, outputs], of which the first `num_logits` columns count.


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


# --- PPO's loss in Triton: the gradients with respect to a network's outputs, and the terms that are reported


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


# --- the kernel that takes samples through forward pass, loss gradient and backward pass, and sums the gradients
#
# Sums are taken in a fixed order, without atomics, so that results are reproducible: each program writes its sums to a
# row of its own, and `steps.reduce_kernel` adds the rows.


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


# --- the kernels of `TritonMLP` that only run the forward pass: drawing actions and computing values


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
