"""The Triton kernels of `TritonMLP`: forward pass, loss gradient and backward pass of a small actor and critic.

Names that end in `_at` are pointers. Constexpr arguments, and whether a pointer is None, are known when a kernel is
compiled. Functions without `kernel` in their name are called by kernels. Sums are taken in a fixed order, without
atomics, so that results are reproducible. Letters of shapes: D inputs, H hidden units, A actions.
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.policies.sampling import MASKED_LOGIT

if HAS_TRITON:
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

OUTPUTS = 16
"""Columns of the last layer: actions, or the value, then padding. Matrix products cannot be narrower."""
TERMS = 8
"""Columns of a program's sums of loss terms: `Diagnostics.NAMES` without the norm, then padding."""


@triton_jit()
def _operand(x, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """`x` converted to the type that matrix products read."""
    if precision == "bfloat16":
        x = x.to(tl.bfloat16)
    return x


@triton_jit()
def _dot(a, b, total, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """`a` @ `b` in float32, plus `total` if that is not None."""
    a, b = _operand(a, precision), _operand(b, precision)
    if precision == "float32":
        product = tl.dot(a, b, acc=total, input_precision="ieee")
    else:
        product = tl.dot(a, b, acc=total, input_precision="tf32")
    return product


@triton_jit()
def _activate(x, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    if activation == "tanh":
        y = 2.0 * tl.sigmoid(2.0 * x) - 1.0
    else:
        y = tl.where(x < 0.0, 0.0, x)  # NaN stays NaN
    return y


@triton_jit()
def _through_activation(gradient, y, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient with respect to an activation's input, from its result `y` and the gradient with respect to that."""
    if activation == "tanh":
        gradient = gradient * (1.0 - y * y)
    else:
        gradient = tl.where(y > 0.0, gradient, 0.0)
    return gradient


@triton_jit()
def _read_rows(at, row, is_row, width: tl.constexpr, padded: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read rows of a matrix of `width` columns, padded with zeros: [rows, padded]."""
    column = tl.arange(0, padded)
    return tl.load(
        at + row[:, None] * width + column[None, :], mask=is_row[:, None] & (column < width)[None, :], other=0.0
    )


@triton_jit()
def _read_inputs(obs_at, row, is_row, num_inputs: tl.constexpr, inputs: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read observations [block, inputs], each followed by a 1.

    The first layer's bias is treated as one more column of its weights, which is multiplied by that 1. So one product
    gives the gradients of both, and the bias takes no registers.
    """
    is_one = (tl.arange(0, inputs) == num_inputs)[None, :]
    return tl.where(is_one, 1.0, _read_rows(obs_at, row, is_row, num_inputs, inputs))


@triton_jit()
def _read_weights(  # type: ignore[no-untyped-def]
    w1_at, b1_at, w2_at, b2_at, w3_at, b3_at,
    num_inputs: tl.constexpr, inputs: tl.constexpr, hidden: tl.constexpr, num_outputs: tl.constexpr,
    outputs: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Read all weights of a network: w1 with b1, transposed [inputs, H], w2 [H, H], b2, w3 [outputs, H], b3.

    The weights of outputs that are padding are 0.
    """
    unit, column, output = tl.arange(0, hidden)[None, :], tl.arange(0, inputs)[:, None], tl.arange(0, outputs)
    w1 = tl.load(w1_at + unit * num_inputs + column, mask=column < num_inputs, other=0.0)
    w1 = tl.where(column == num_inputs, tl.load(b1_at + unit), w1)
    w2 = tl.load(w2_at + tl.arange(0, hidden)[:, None] * hidden + unit)
    w3 = tl.load(w3_at + output[:, None] * hidden + unit, mask=(output < num_outputs)[:, None], other=0.0)
    b2, b3 = tl.load(b2_at + unit), tl.load(b3_at + output[None, :], mask=output[None, :] < num_outputs, other=0.0)
    return _operand(w1, precision), _operand(w2, precision), b2, _operand(w3, precision), b3


@triton_jit()
def _forward(x, w1, w2, b2, w3, b3, precision: tl.constexpr, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    """The activations of both hidden layers [block, H] and the outputs [block, outputs] for x [block, inputs]."""
    first = _activate(_dot(x, w1, None, precision), activation)
    second = _activate(_dot(first, tl.trans(w2), None, precision) + b2, activation)
    return first, second, _dot(second, tl.trans(w3), None, precision) + b3


@triton_jit()
def _legal_logits(  # type: ignore[no-untyped-def]
    logits, mask_at, row, is_row, num_actions: tl.constexpr, outputs: tl.constexpr, masked_logit: tl.constexpr
):
    """The logits with illegal actions masked and padding at -inf, and which of them are legal actions (bool)."""
    is_action = (tl.arange(0, outputs) < num_actions)[None, :] & is_row[:, None]
    is_legal = is_action
    if mask_at is not None:
        is_legal = is_action & (_read_rows(mask_at, row, is_row, num_actions, outputs) != 0)
        logits = tl.where(is_legal, logits, masked_logit)
    is_padding = (tl.arange(0, outputs) >= num_actions)[None, :]
    return tl.where(is_padding, float("-inf"), logits), is_legal


@triton_jit("num_rows", "uniform_at", "action_at", "log_prob_at")
def act_kernel(  # type: ignore[no-untyped-def]
    obs_at, mask_at, uniform_at, action_at, log_prob_at, num_rows, w1_at, b1_at, w2_at, b2_at, w3_at, b3_at,
    num_actions: tl.constexpr, num_inputs: tl.constexpr, inputs: tl.constexpr, hidden: tl.constexpr,
    block: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
    outputs: tl.constexpr = OUTPUTS, masked_logit: tl.constexpr = MASKED_LOGIT,
):  # fmt: skip
    """Draw actions, see `TritonMLP.act`; one program for each block of rows."""
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_row = row < num_rows
    w1, w2, b2, w3, b3 = _read_weights(
        w1_at, b1_at, w2_at, b2_at, w3_at, b3_at, num_inputs, inputs, hidden, num_actions, outputs, precision
    )
    x = _read_inputs(obs_at, row, is_row, num_inputs, inputs)
    _, _, logits = _forward(x, w1, w2, b2, w3, b3, precision, activation)
    logits, _ = _legal_logits(logits, mask_at, row, is_row, num_actions, outputs, masked_logit)
    highest = tl.max(logits, axis=1)
    weight = tl.exp(logits - highest[:, None])
    total = tl.sum(weight, axis=1)
    threshold = tl.load(uniform_at + row, mask=is_row, other=0.0) * total
    column = tl.arange(0, outputs)[None, :]
    # Cumulative sums are added as a tree and may round up at an impossible action, which must not be drawn.
    is_reached = (weight > 0.0) & (tl.cumsum(weight, axis=1) > threshold[:, None])
    first = tl.min(tl.where(is_reached, column, outputs), axis=1)
    last = tl.max(tl.where(weight > 0.0, column, 0), axis=1)  # used if rounding keeps the sum below the threshold
    chosen = tl.where(first < outputs, first, last)
    logit = tl.sum(tl.where(column == chosen[:, None], logits, 0.0), axis=1)
    tl.store(action_at + row, chosen.to(tl.int64), mask=is_row)
    tl.store(log_prob_at + row, logit - highest - tl.log(total), mask=is_row)


@triton_jit("num_rows", "value_at")
def value_kernel(  # type: ignore[no-untyped-def]
    obs_at, value_at, num_rows, w1_at, b1_at, w2_at, b2_at, w3_at, b3_at,
    num_inputs: tl.constexpr, inputs: tl.constexpr, hidden: tl.constexpr, block: tl.constexpr,
    precision: tl.constexpr, activation: tl.constexpr, outputs: tl.constexpr = OUTPUTS,
):  # fmt: skip
    """Compute values, see `TritonMLP.values`; one program for each block of rows."""
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_row = row < num_rows
    w1, w2, b2, w3, b3 = _read_weights(
        w1_at, b1_at, w2_at, b2_at, w3_at, b3_at, num_inputs, inputs, hidden, 1, outputs, precision
    )
    x = _read_inputs(obs_at, row, is_row, num_inputs, inputs)
    _, _, value = _forward(x, w1, w2, b2, w3, b3, precision, activation)
    tl.store(value_at + row, _first_column(value, outputs), mask=is_row)


@triton_jit()
def _first_column(x, width: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.sum(tl.where((tl.arange(0, width) == 0)[None, :], x, 0.0), axis=1)


@triton_jit()
def _actor_loss(  # type: ignore[no-untyped-def]
    logits, row, is_row, scale, mask_at, action_at, log_prob_at, advantage_at, statistics_at, clip_at, entropy_coef_at,
    num_actions: tl.constexpr, outputs: tl.constexpr, terms: tl.constexpr, masked_logit: tl.constexpr,
):  # fmt: skip
    """The gradient of the policy loss and entropy bonus with respect to the logits [block, outputs], and the loss terms
    [block, terms].

    The surrogate min(r A, clip(r) A) (Schulman et al. 2017, eq. 7) has the derivative r A with respect to log r, or 0
    where it is clipped.
    """
    logits, is_legal = _legal_logits(logits, mask_at, row, is_row, num_actions, outputs, masked_logit)
    shifted = logits - tl.max(logits, axis=1)[:, None]
    weight = tl.exp(shifted)
    total = tl.sum(weight, axis=1)
    column = tl.arange(0, outputs)[None, :]
    probability = weight / total[:, None]
    log_probs = tl.where(column < num_actions, shifted - tl.log(total)[:, None], 0.0)
    entropy = -tl.sum(probability * log_probs, axis=1)

    is_action = column == tl.load(action_at + row, mask=is_row, other=0)[:, None]
    old_log_prob = tl.load(log_prob_at + row, mask=is_row, other=0.0)
    advantage = tl.load(advantage_at + row, mask=is_row, other=0.0)
    if statistics_at is not None:
        advantage = (advantage - tl.load(statistics_at)) * tl.load(statistics_at + 1)
    clip = tl.load(clip_at)
    log_ratio = tl.sum(tl.where(is_action, log_probs, 0.0), axis=1) - old_log_prob
    ratio = tl.exp(log_ratio)
    unclipped = ratio * advantage
    clipped = tl.minimum(tl.maximum(ratio, 1.0 - clip), 1.0 + clip) * advantage
    is_inside = (ratio >= 1.0 - clip) & (ratio <= 1.0 + clip)
    slope = tl.where(is_inside | (unclipped < clipped), unclipped, 0.0)

    bonus = tl.load(entropy_coef_at) * probability * (log_probs + entropy[:, None])
    gradient = bonus - slope[:, None] * (tl.where(is_action, 1.0, 0.0) - probability)
    term = tl.arange(0, terms)[None, :]
    sums = tl.where(term == 0, -tl.minimum(unclipped, clipped)[:, None], 0.0)
    sums = tl.where(term == 2, entropy[:, None], sums)
    sums = tl.where(term == 3, (ratio - 1.0 - log_ratio)[:, None], sums)
    sums = tl.where(term == 4, -log_ratio[:, None], sums)
    sums = tl.where(term == 5, tl.where(tl.abs(ratio - 1.0) > clip, 1.0, 0.0)[:, None], sums)
    return tl.where(is_legal, gradient * scale, 0.0), tl.where(is_row[:, None], sums, 0.0)


@triton_jit()
def _critic_loss(  # type: ignore[no-untyped-def]
    outcome, row, is_row, scale, value_at, returns_at, value_clip, outputs: tl.constexpr, terms: tl.constexpr
):
    """The gradient of the value loss with respect to the outputs [block, outputs], and the loss terms [block, terms].

    The larger of the squared errors of the value and of the clipped value counts; if they are equal, the gradient is
    the mean of both slopes, as in torch.
    """
    value = _first_column(outcome, outputs)
    returns = tl.load(returns_at + row, mask=is_row, other=0.0)
    slope = value - returns
    error = slope * slope
    if value_clip is not None:
        old_value = tl.load(value_at + row, mask=is_row, other=0.0)
        moved = value - old_value
        clipped_slope = old_value + tl.minimum(tl.maximum(moved, -value_clip), value_clip) - returns
        clipped_error = clipped_slope * clipped_slope
        clipped_slope = tl.where(tl.abs(moved) <= value_clip, clipped_slope, 0.0)
        either = tl.where(error < clipped_error, clipped_slope, 0.5 * (slope + clipped_slope))
        slope = tl.where(error > clipped_error, slope, either)
        error = tl.maximum(error, clipped_error)
    is_value = (tl.arange(0, outputs) == 0)[None, :] & is_row[:, None]
    is_term = (tl.arange(0, terms) == 1)[None, :] & is_row[:, None]
    return tl.where(is_value, slope[:, None] * scale, 0.0), tl.where(is_term, 0.5 * error[:, None], 0.0)


@triton_jit()
def _write_sums(  # type: ignore[no-untyped-def]
    at, w1, w2, b2, w3, b3, num_inputs: tl.constexpr, inputs: tl.constexpr, hidden: tl.constexpr,
    num_outputs: tl.constexpr, outputs: tl.constexpr,
):  # fmt: skip
    """Write a program's gradients to `at` in the order of `MLPWeights`.

    Given are those of w1 with b1 [H, inputs], w2 [H, H], and w3 transposed [H, outputs]; that of b2 in every column of
    [H, outputs]; and that of b3 for each sample of a block, [block, outputs], which is summed here.
    """
    unit = tl.arange(0, hidden)[:, None]
    column, output = tl.arange(0, inputs)[None, :], tl.arange(0, outputs)
    place = tl.where(column < num_inputs, unit * num_inputs + column, hidden * num_inputs + unit)
    tl.store(at + place, w1, mask=column <= num_inputs)
    at += hidden * (num_inputs + 1)
    tl.store(at + unit * hidden + tl.arange(0, hidden)[None, :], w2)
    at += hidden * hidden
    tl.store(at + unit + output[None, :], b2, mask=output[None, :] == 0)
    at += hidden
    tl.store(at + output[None, :] * hidden + unit, w3, mask=output[None, :] < num_outputs)
    at += num_outputs * hidden
    tl.store(at + output, tl.sum(b3, axis=0), mask=output < num_outputs)


@triton_jit()
def _network_gradients(  # type: ignore[no-untyped-def]
    obs_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at, indices_at, num_samples,
    statistics_at, clip_at, entropy_coef_at, value_clip, value_coef,
    w1_at, b1_at, w2_at, b2_at, w3_at, b3_at, sums_at, terms_at,
    is_actor: tl.constexpr, num_outputs: tl.constexpr, num_inputs: tl.constexpr, inputs: tl.constexpr,
    hidden: tl.constexpr, block: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
    outputs: tl.constexpr, terms: tl.constexpr, masked_logit: tl.constexpr,
):  # fmt: skip
    """Compute one program's share of one network's gradients.

    Of P programs, program p takes the blocks of samples p, p + P, p + 2 P and so on. It writes the sums of its
    gradients to `sums_at` and those of its loss terms to `terms_at`.
    """
    w1, w2, b2, w3, b3 = _read_weights(
        w1_at, b1_at, w2_at, b2_at, w3_at, b3_at, num_inputs, inputs, hidden, num_outputs, outputs, precision
    )
    ones = tl.full([block, outputs], 1.0, tl.float32)  # sums over samples as a product: faster than a reduction
    w1_sum, w2_sum = tl.zeros([hidden, inputs], tl.float32), tl.zeros([hidden, hidden], tl.float32)
    w3_sum, b3_sum = tl.zeros([hidden, outputs], tl.float32), tl.zeros([block, outputs], tl.float32)
    b2_sum = tl.zeros([hidden, outputs], tl.float32)
    terms_sum = tl.zeros([block, terms], tl.float32)
    scale = 1.0 / num_samples
    for start in range(tl.program_id(0) * block, num_samples, tl.num_programs(0) * block):
        place = start + tl.arange(0, block)
        is_row = place < num_samples
        row = tl.load(indices_at + place, mask=is_row, other=0).to(tl.int64)
        x = _read_inputs(obs_at, row, is_row, num_inputs, inputs)
        first, second, outcome = _forward(x, w1, w2, b2, w3, b3, precision, activation)
        if is_actor:
            gradient, term = _actor_loss(
                outcome, row, is_row, scale, mask_at, action_at, log_prob_at, advantage_at, statistics_at, clip_at,
                entropy_coef_at, num_outputs, outputs, terms, masked_logit,
            )  # fmt: skip
        else:
            gradient, term = _critic_loss(
                outcome, row, is_row, scale * value_coef, value_at, returns_at, value_clip, outputs, terms
            )
        terms_sum += term
        b3_sum += gradient
        w3_sum = _dot(tl.trans(_operand(second, precision)), gradient, w3_sum, precision)
        gradient = _through_activation(_dot(gradient, w3, None, precision), second, activation)
        turned = tl.trans(_operand(gradient, precision))
        w2_sum = _dot(turned, first, w2_sum, precision)
        b2_sum = _dot(turned, ones, b2_sum, precision)
        gradient = _through_activation(_dot(gradient, w2, None, precision), first, activation)
        w1_sum = _dot(tl.trans(_operand(gradient, precision)), x, w1_sum, precision)
    _write_sums(sums_at, w1_sum, w2_sum, b2_sum, w3_sum, b3_sum, num_inputs, inputs, hidden, num_outputs, outputs)
    tl.store(terms_at + tl.arange(0, terms), tl.sum(terms_sum, axis=0))


@triton_jit("indices_at", "num_samples", "statistics_at", "clip_at", "entropy_coef_at", "row_size")
def gradients_kernel(  # type: ignore[no-untyped-def]
    obs_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at, indices_at, num_samples,
    statistics_at, clip_at, entropy_coef_at, value_clip, value_coef,
    actor_w1_at, actor_b1_at, actor_w2_at, actor_b2_at, actor_w3_at, actor_b3_at,
    critic_w1_at, critic_b1_at, critic_w2_at, critic_b2_at, critic_w3_at, critic_b3_at,
    partials_at, terms_at, row_size, num_actions: tl.constexpr, num_inputs: tl.constexpr, inputs: tl.constexpr,
    hidden: tl.constexpr, block: tl.constexpr, precision: tl.constexpr, activation: tl.constexpr,
    outputs: tl.constexpr = OUTPUTS, terms: tl.constexpr = TERMS, masked_logit: tl.constexpr = MASKED_LOGIT,
):  # fmt: skip
    """Compute partial gradients; the grid is (programs, 2), and network 0 is the actor, 1 the critic.

    Program (p, network) writes its gradients to row p of `partials_at` and its loss terms to row (p, network) of
    `terms_at`.
    """
    program, network = tl.program_id(0), tl.program_id(1)
    sums_at = partials_at + program * row_size
    terms_at += (2 * program + network) * terms
    if network == 0:
        _network_gradients(
            obs_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at, indices_at, num_samples,
            statistics_at, clip_at, entropy_coef_at, value_clip, value_coef,
            actor_w1_at, actor_b1_at, actor_w2_at, actor_b2_at, actor_w3_at, actor_b3_at, sums_at, terms_at,
            True, num_actions, num_inputs, inputs, hidden, block, precision, activation, outputs, terms, masked_logit,
        )  # fmt: skip
    else:
        critic_at = sums_at + hidden * (num_inputs + 1 + hidden + 1) + num_actions * (hidden + 1)
        _network_gradients(
            obs_at, mask_at, action_at, log_prob_at, value_at, advantage_at, returns_at, indices_at, num_samples,
            statistics_at, clip_at, entropy_coef_at, value_clip, value_coef,
            critic_w1_at, critic_b1_at, critic_w2_at, critic_b2_at, critic_w3_at, critic_b3_at, critic_at, terms_at,
            False, 1, num_inputs, inputs, hidden, block, precision, activation, outputs, terms, masked_logit,
        )  # fmt: skip


@triton_jit("num_partials", "num_parameters", "row_size")
def reduce_kernel(  # type: ignore[no-untyped-def]
    partials_at, grads_at, squares_at, num_partials, num_parameters, row_size, rows: tl.constexpr, columns: tl.constexpr
):
    """Add up the partial gradients of all programs, and the squares of the sums for the norm.

    Each program of this kernel does so for `columns` parameters, in a fixed order.
    """
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    is_column = column < num_parameters
    sums = tl.zeros([rows, columns], tl.float32)
    for start in range(0, num_partials, rows):
        row = start + tl.arange(0, rows)
        is_here = (row < num_partials)[:, None] & is_column[None, :]
        sums += tl.load(partials_at + row[:, None] * row_size + column[None, :], mask=is_here, other=0.0)
    gradient = tl.sum(sums, axis=0)
    tl.store(grads_at + column, gradient, mask=is_column)
    tl.store(squares_at + tl.program_id(0), tl.sum(gradient * gradient, axis=0))


@triton_jit("num_squares", "num_rows", "num_samples", "diagnostics_at")
def finish_kernel(  # type: ignore[no-untyped-def]
    squares_at, num_squares, terms_at, num_rows, diagnostics_at, num_samples,
    block: tl.constexpr, terms: tl.constexpr = TERMS,
):  # fmt: skip
    """Write the means of the loss terms and the norm of the gradient, in the order of `Diagnostics.NAMES`."""
    squares = tl.zeros([block], tl.float32)
    for start in range(0, num_squares, block):
        place = start + tl.arange(0, block)
        squares += tl.load(squares_at + place, mask=place < num_squares, other=0.0)
    term = tl.arange(0, terms)
    sums = tl.zeros([block, terms], tl.float32)
    for start in range(0, num_rows, block):
        row = start + tl.arange(0, block)
        sums += tl.load(terms_at + row[:, None] * terms + term[None, :], mask=(row < num_rows)[:, None], other=0.0)
    means = tl.sum(sums, axis=0) / num_samples
    norm = tl.sqrt(tl.sum(squares, axis=0))
    tl.store(diagnostics_at + term, tl.where(term == 6, norm, means), mask=term < 7)


@triton_jit("order_at", "size", "chunk_size")
def chunk_kernel(  # type: ignore[no-untyped-def]
    advantage_at, order_at, chunks_at, size, chunk_size, max_chunks: tl.constexpr, block: tl.constexpr
):
    """Write the mean of one chunk of a minibatch's advantages, and their sum of squares around it, to `chunks_at`.

    The grid is (chunks, minibatches).
    """
    chunk, minibatch = tl.program_id(0), tl.program_id(1)
    order_at += minibatch.to(tl.int64) * size
    begin = chunk * chunk_size
    end = tl.minimum(begin + chunk_size, size)
    sums = tl.zeros([block], tl.float32)
    for start in range(begin, end, block):
        place = start + tl.arange(0, block)
        row = tl.load(order_at + place, mask=place < end, other=0)
        sums += tl.load(advantage_at + row, mask=place < end, other=0.0)
    mean = tl.sum(sums, axis=0) / tl.maximum(end - begin, 1)
    squares = tl.zeros([block], tl.float32)
    for start in range(begin, end, block):
        place = start + tl.arange(0, block)
        row = tl.load(order_at + place, mask=place < end, other=0)
        centred = tl.load(advantage_at + row, mask=place < end, other=0.0) - mean
        squares += tl.where(place < end, centred * centred, 0.0)
    at = chunks_at + (minibatch * max_chunks + chunk) * 2
    tl.store(at, mean)
    tl.store(at + 1, tl.sum(squares, axis=0))


@triton_jit("out_at", "size", "chunk_size")
def statistics_kernel(chunks_at, out_at, size, chunk_size, max_chunks: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write a minibatch's mean and inverse deviation from the statistics of its chunks (Chan et al. 1983, eq. 2.1)."""
    minibatch, chunk = tl.program_id(0), tl.arange(0, max_chunks)
    count = tl.minimum(tl.maximum(size - chunk * chunk_size, 0), chunk_size)
    at = chunks_at + (minibatch * max_chunks + chunk) * 2
    means = tl.load(at, mask=count > 0, other=0.0)
    squares = tl.load(at + 1, mask=count > 0, other=0.0)
    mean = tl.sum(means * count, axis=0) / size
    squares += count * (means - mean) * (means - mean)
    deviation = tl.sqrt(tl.sum(squares, axis=0) / tl.maximum(size - 1, 1))
    tl.store(out_at + 2 * minibatch, mean)
    tl.store(out_at + 2 * minibatch + 1, 1.0 / (deviation + 1e-8))
