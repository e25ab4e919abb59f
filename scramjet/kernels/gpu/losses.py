"""PPO's loss of one minibatch and its gradients in Triton, for any network's outputs; and the mean and deviation that
advantages are normalized by.

Names that end in `_at` are pointers. Whether a pointer is None is known when a kernel is compiled. Functions without
`kernel` in their name are called by kernels. A program takes a block of samples at a time and adds up its loss terms;
sums are taken in a fixed order, without atomics. Clamps are written with `tl.where`, through which NaN stays NaN.
"""

from __future__ import annotations

from scramjet.kernels import MASKED_LOGIT, MAX_LOG_STD, MIN_LOG_STD
from scramjet.kernels.gpu.language import HAS_TRITON, clamped, leads_out, triton_jit

if HAS_TRITON:
    import triton.language as tl

TERMS = 8
"""Columns of a program's sums: policy loss, value loss, entropy, KL (k3), KL (k1), clip fraction, then padding. What is
returned has the total before them."""


@triton_jit()
def _column(terms, number: tl.constexpr, term, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """`terms` [rows, width] with `term` [rows] in one column."""
    return tl.where((tl.arange(0, width) == number)[None, :], term[:, None], terms)


@triton_jit()
def _surrogate(log_ratio, advantage, clip):  # type: ignore[no-untyped-def]
    """The policy loss of each sample (Schulman et al. 2017, eq. 7) and its derivative with respect to the
    log-probability: - r A, or 0 where it is clipped."""
    ratio = tl.exp(log_ratio)
    bounded = clamped(ratio, 1.0 - clip, 1.0 + clip)
    unclipped, clipped = ratio * advantage, bounded * advantage
    is_moved = (bounded == ratio) | (unclipped < clipped) | (ratio != ratio)
    loss = -tl.where(unclipped < clipped, unclipped, clipped)
    return loss, tl.where(is_moved, -unclipped, 0.0)


@triton_jit()
def squared_error(value, old_value, returns, value_clip):  # type: ignore[no-untyped-def]
    """Half the squared error of each value and its derivative; clipped, the larger of the two errors counts.

    If both are equal, the derivative is the mean of both slopes, as in torch.
    """
    slope = value - returns
    error = slope * slope
    if value_clip is not None:
        moved = value - old_value
        clipped_slope = old_value + clamped(moved, -value_clip, value_clip) - returns
        clipped_error = clipped_slope * clipped_slope
        clipped_slope = tl.where(tl.abs(moved) <= value_clip, clipped_slope, 0.0)
        either = tl.where(error < clipped_error, clipped_slope, 0.5 * (slope + clipped_slope))
        slope = tl.where(error > clipped_error, slope, either)
        error = tl.where(error < clipped_error, clipped_error, error)
    return 0.5 * error, slope


@triton_jit()
def _places(  # type: ignore[no-untyped-def]
    offsets_at, row, component, num_inputs: tl.constexpr, width: tl.constexpr
):
    """Where a component's logits stand, [rows, width], and which of these columns are choices of it, [1, width]."""
    first, size = 0, num_inputs
    if offsets_at is not None:
        first = tl.load(offsets_at + component)
        size = tl.load(offsets_at + component + 1) - first
    column = tl.arange(0, width)[None, :]
    return row[:, None] * num_inputs + first + column, column < size


@triton_jit()
def _choices(  # type: ignore[no-untyped-def]
    logits_at, mask_at, action_at, place, is_choice, row, is_counted, component,
    num_components: tl.constexpr, width: tl.constexpr, masked_logit: tl.constexpr,
):  # fmt: skip
    """One component's probabilities and their logarithms [rows, width], its entropy [rows], which choice was taken and
    which are legal, [rows, width] each."""
    is_legal = is_choice & is_counted[:, None]
    logits = tl.load(logits_at + place, mask=is_legal, other=0.0)
    if mask_at is not None:
        is_legal = is_legal & (tl.load(mask_at + place, mask=is_legal, other=0) != 0)
        logits = tl.where(is_legal, logits, masked_logit)
    logits = tl.where(is_choice, logits, float("-inf"))
    shifted = logits - tl.max(logits, axis=1)[:, None]
    weight = tl.exp(shifted)
    total = tl.sum(weight, axis=1)
    probability = weight / total[:, None]
    log_probs = tl.where(is_choice, shifted - tl.log(total)[:, None], 0.0)
    action = tl.load(action_at + row * num_components + component, mask=is_counted, other=0)
    is_taken = tl.arange(0, width)[None, :] == action[:, None]
    return probability, log_probs, -tl.sum(probability * log_probs, axis=1), is_taken, is_legal


@triton_jit()
def _log_slope_and_tanh(u):  # type: ignore[no-untyped-def]
    """log(1 - tanh(u)^2), in a form that neither overflows nor cancels, and tanh(u)."""
    far = tl.exp(-2.0 * tl.abs(u))
    tanh = (1.0 - far) / (1.0 + far)
    return 2.0 * (0.6931471805599453 - tl.abs(u) - tl.log(1.0 + far)), tl.where(u < 0.0, -tanh, tanh)


@triton_jit()
def _entropies(mu, std, log_std, nodes_at, weights_at, num_nodes: tl.constexpr):  # type: ignore[no-untyped-def]
    """The entropy of each normal number and its derivatives with respect to mean and logarithm of the deviation.

    With `num_nodes` the entropy is that of its tanh, by quadrature.
    """
    entropy = 1.4189385332046727 + log_std  # 1 / 2 + log(2 pi) / 2
    to_mu, to_log_std = tl.zeros_like(mu), tl.zeros_like(mu) + 1.0
    if num_nodes > 0:
        for k in range(num_nodes):
            node, weight = tl.load(nodes_at + k).to(tl.float32), tl.load(weights_at + k).to(tl.float32)
            log_slope, tanh = _log_slope_and_tanh(mu + std * node)
            entropy += weight * log_slope
            to_mu -= 2.0 * weight * tanh
            to_log_std -= 2.0 * weight * tanh * std * node
    return entropy, to_mu, to_log_std


@triton_jit()
def _losses(  # type: ignore[no-untyped-def]
    log_prob, entropy, row, is_row, is_counted, value_at, log_prob_at, old_value_at, advantage_at, returns_at,
    to_value_at, mean, scale, share, clip, value_clip, value_coef, terms: tl.constexpr, normalizes: tl.constexpr,
):  # fmt: skip
    """The derivative of the loss with respect to each log-probability [rows, 1], and the terms [rows, terms]; writes
    the gradients with respect to values."""
    advantage = tl.load(advantage_at + row, mask=is_counted, other=0.0)
    if normalizes:
        advantage = (advantage - mean) * scale
    log_ratio = log_prob - tl.load(log_prob_at + row, mask=is_counted, other=0.0)
    policy_loss, slope = _surrogate(log_ratio, advantage, clip)
    value_loss, value_slope = squared_error(
        tl.load(value_at + row, mask=is_counted, other=0.0),
        tl.load(old_value_at + row, mask=is_counted, other=0.0),
        tl.load(returns_at + row, mask=is_counted, other=0.0),
        value_clip,
    )
    tl.store(to_value_at + row, tl.where(is_counted, value_coef * share * value_slope, 0.0), mask=is_row)
    away = tl.exp(log_ratio) - 1.0
    found = _column(value_loss[:, None], 0, policy_loss, terms)  # the value loss everywhere but in the first column
    found = _column(found, 2, entropy, terms)
    found = _column(found, 3, away - log_ratio, terms)
    found = _column(found, 4, -log_ratio, terms)
    found = _column(found, 5, tl.where(tl.abs(away) > clip, 1.0, 0.0), terms)
    return (share * slope)[:, None], tl.where(is_counted[:, None], found, 0.0)


@triton_jit("num_samples", "num_chunks", "statistics_at", "clip_at", "entropy_coef_at")
def choice_loss_kernel(  # type: ignore[no-untyped-def]
    logits_at, value_at, action_at, log_prob_at, old_value_at, advantage_at, returns_at, counts_at,
    statistics_at, chunks_at, num_chunks, clip_at, entropy_coef_at, value_clip, value_coef,
    to_logits_at, to_value_at, terms_at, num_samples, mask_at, offsets_at,
    num_inputs: tl.constexpr, num_components: tl.constexpr, normalizes: tl.constexpr,
    width: tl.constexpr, rows: tl.constexpr, max_chunks: tl.constexpr,
    terms: tl.constexpr = TERMS, masked_logit: tl.constexpr = MASKED_LOGIT,
):  # fmt: skip
    """Write the gradients with respect to logits and values, and a program's sums of the loss terms, for choices.

    Of P programs, program p takes the blocks of samples p, p + P, p + 2 P and so on.
    """
    share, mean, scale = normalizing(statistics_at, chunks_at, num_chunks, num_samples, max_chunks)
    clip, bonus = tl.load(clip_at), tl.load(entropy_coef_at) * share
    sums = tl.zeros([rows, terms], tl.float32)
    for start in range(tl.program_id(0) * rows, num_samples, tl.num_programs(0) * rows):
        row = (start + tl.arange(0, rows)).to(tl.int64)
        is_row = row < num_samples
        is_counted = are_counted(counts_at, row, is_row)
        log_prob, entropy = tl.zeros([rows], tl.float32), tl.zeros([rows], tl.float32)
        for component in range(num_components):
            place, is_choice = _places(offsets_at, row, component, num_inputs, width)
            _p, log_probs, of_component, is_taken, _l = _choices(
                logits_at, mask_at, action_at, place, is_choice, row, is_counted, component, num_components, width,
                masked_logit,
            )  # fmt: skip
            log_prob += tl.sum(tl.where(is_taken, log_probs, 0.0), axis=1)
            entropy += of_component
        slope, found = _losses(
            log_prob, entropy, row, is_row, is_counted, value_at, log_prob_at, old_value_at, advantage_at, returns_at,
            to_value_at, mean, scale, share, clip, value_clip, value_coef, terms, normalizes,
        )  # fmt: skip
        sums += found
        for component in range(num_components):  # probabilities again: they do not fit on the chip for all components
            place, is_choice = _places(offsets_at, row, component, num_inputs, width)
            probability, log_probs, of_component, is_taken, is_legal = _choices(
                logits_at, mask_at, action_at, place, is_choice, row, is_counted, component, num_components, width,
                masked_logit,
            )  # fmt: skip
            gradient = slope * (tl.where(is_taken, 1.0, 0.0) - probability)
            gradient += bonus * probability * (log_probs + of_component[:, None])
            tl.store(to_logits_at + place, tl.where(is_legal, gradient, 0.0), mask=is_choice & is_row[:, None])
    tl.store(terms_at + tl.program_id(0) * terms + tl.arange(0, terms), tl.sum(sums, axis=0) * share)


@triton_jit("num_samples", "num_chunks", "statistics_at", "clip_at", "entropy_coef_at")
def normal_loss_kernel(  # type: ignore[no-untyped-def]
    logits_at, value_at, action_at, log_prob_at, old_value_at, advantage_at, returns_at, counts_at,
    statistics_at, chunks_at, num_chunks, clip_at, entropy_coef_at, value_clip, value_coef,
    to_logits_at, to_value_at, terms_at, num_samples, nodes_at, weights_at, log_stretch,
    size: tl.constexpr, num_nodes: tl.constexpr, normalizes: tl.constexpr,
    width: tl.constexpr, rows: tl.constexpr, max_chunks: tl.constexpr,
    terms: tl.constexpr = TERMS, low: tl.constexpr = MIN_LOG_STD, high: tl.constexpr = MAX_LOG_STD,
):  # fmt: skip
    """`choice_loss_kernel` for actions that are `size` normal numbers."""
    share, mean, scale = normalizing(statistics_at, chunks_at, num_chunks, num_samples, max_chunks)
    clip, bonus = tl.load(clip_at), tl.load(entropy_coef_at) * share
    sums = tl.zeros([rows, terms], tl.float32)
    column = tl.arange(0, width)[None, :]
    for start in range(tl.program_id(0) * rows, num_samples, tl.num_programs(0) * rows):
        row = (start + tl.arange(0, rows)).to(tl.int64)
        is_row = row < num_samples
        is_counted = are_counted(counts_at, row, is_row)
        is_number = (column < size) & is_counted[:, None]
        place = row[:, None] * (2 * size) + column
        raw = tl.load(logits_at + place + size, mask=is_number, other=0.0)
        log_std = clamped(raw, low, high)
        mu = tl.load(logits_at + place, mask=is_number, other=0.0)
        action = tl.load(action_at + row[:, None] * size + column, mask=is_number, other=0.0)
        std = tl.exp(log_std)
        distance = (action - mu) / std
        entropy, entropy_to_mu, entropy_to_log_std = _entropies(mu, std, log_std, nodes_at, weights_at, num_nodes)
        log_prob = -0.5 * distance * distance - log_std - 0.9189385332046727  # log(2 pi) / 2
        if num_nodes > 0:
            log_slope, _tanh = _log_slope_and_tanh(action)
            log_prob -= log_slope
        slope, found = _losses(
            tl.sum(tl.where(is_number, log_prob, 0.0), axis=1) - log_stretch,
            tl.sum(tl.where(is_number, entropy, 0.0), axis=1) + log_stretch,
            row, is_row, is_counted, value_at, log_prob_at, old_value_at, advantage_at, returns_at,
            to_value_at, mean, scale, share, clip, value_clip, value_coef, terms, normalizes,
        )  # fmt: skip
        sums += found
        to_mu = tl.where(is_number, slope * (distance / std) - bonus * entropy_to_mu, 0.0)
        to_log_std = tl.where(is_number, slope * (distance * distance - 1.0) - bonus * entropy_to_log_std, 0.0)
        # A logarithm outside its range gets no gradient that would lead farther out, as by `keep_within`.
        to_log_std = tl.where(leads_out(raw, to_log_std, low, high), 0.0, to_log_std)
        is_stored = (column < size) & is_row[:, None]
        tl.store(to_logits_at + place, to_mu, mask=is_stored)
        tl.store(to_logits_at + place + size, to_log_std, mask=is_stored)
    tl.store(terms_at + tl.program_id(0) * terms + tl.arange(0, terms), tl.sum(sums, axis=0) * share)


@triton_jit("num_programs", "entropy_coef_at")
def total_kernel(  # type: ignore[no-untyped-def]
    terms_at, out_at, num_programs, entropy_coef_at, value_coef, block: tl.constexpr, terms: tl.constexpr = TERMS
):
    """Add up the terms of all programs, and write the total loss (Schulman et al. 2017, eq. 9) and the six terms."""
    term = tl.arange(0, terms)[None, :]
    sums = tl.zeros([block, terms], tl.float32)
    for start in range(0, num_programs, block):
        program = start + tl.arange(0, block)[:, None]
        sums += tl.load(terms_at + program * terms + term, mask=program < num_programs, other=0.0)
    found = tl.sum(sums, axis=0)
    place = tl.arange(0, terms)
    weight = tl.where(place == 0, 1.0, tl.where(place == 1, value_coef, 0.0))
    weight = tl.where(place == 2, -tl.load(entropy_coef_at), weight)
    tl.store(out_at, tl.sum(weight * found, axis=0))
    tl.store(out_at + 1 + place, found, mask=place < 6)


# --- triton kernels and functions for the samples that count: how many they are, and what normalizes their advantages


@triton_jit("size", "chunk_size")
def moments_kernel(  # type: ignore[no-untyped-def]
    advantage_at, counts_at, chunks_at, size, chunk_size, max_chunks: tl.constexpr, block: tl.constexpr
):
    """Write the number, mean and squared deviations of the advantages that count in one chunk, [3, max_chunks].

    The second pass corrects the rounding error of the mean, which would else be brought to deviation 1 where all
    advantages are alike (Chan et al. 1983, eq. 1.7).
    """
    chunk = tl.program_id(0)
    begin = chunk * chunk_size
    end = tl.minimum(begin + chunk_size, size)
    sums, number = tl.zeros([block], tl.float32), tl.zeros([block], tl.float32)
    for start in range(begin, end, block):
        place = start + tl.arange(0, block)
        is_counted = are_counted(counts_at, place, place < end)
        sums += tl.load(advantage_at + place, mask=is_counted, other=0.0)
        number += tl.where(is_counted, 1.0, 0.0)
    count = tl.sum(number, axis=0)
    mean = tl.sum(sums, axis=0) / tl.maximum(count, 1.0)
    squares, errors = tl.zeros([block], tl.float32), tl.zeros([block], tl.float32)
    for start in range(begin, end, block):
        place = start + tl.arange(0, block)
        is_counted = are_counted(counts_at, place, place < end)
        centred = tl.where(is_counted, tl.load(advantage_at + place, mask=is_counted, other=0.0) - mean, 0.0)
        squares += centred * centred
        errors += centred
    error = tl.sum(errors, axis=0)
    correction = error / tl.maximum(count, 1.0)
    tl.store(chunks_at + chunk, count)
    tl.store(chunks_at + max_chunks + chunk, mean + correction)
    tl.store(chunks_at + 2 * max_chunks + chunk, tl.maximum(tl.sum(squares, axis=0) - error * correction, 0.0))


@triton_jit()
def are_counted(counts_at, row, is_row):  # type: ignore[no-untyped-def]
    """Which of the rows are samples that count."""
    if counts_at is not None:
        is_row = is_row & (tl.load(counts_at + row, mask=is_row, other=0) != 0)
    return is_row


@triton_jit()
def _joined_moments(chunks_at, num_chunks, max_chunks: tl.constexpr):  # type: ignore[no-untyped-def]
    """The number of samples that count, and the mean and 1 / (deviation + 1e-8) of their advantages, from the moments
    of chunks (Chan et al. 1983, eq. 2.1)."""
    chunk = tl.arange(0, max_chunks)
    count = tl.load(chunks_at + chunk, mask=chunk < num_chunks, other=0.0)
    means = tl.load(chunks_at + max_chunks + chunk, mask=chunk < num_chunks, other=0.0)
    squares = tl.load(chunks_at + 2 * max_chunks + chunk, mask=chunk < num_chunks, other=0.0)
    number = tl.sum(count, axis=0)
    mean = tl.sum(means * count, axis=0) / tl.maximum(number, 1.0)
    mean += tl.sum((means - mean) * count, axis=0) / tl.maximum(number, 1.0)
    squares += count * (means - mean) * (means - mean)
    deviation = tl.sqrt(tl.sum(squares, axis=0) / tl.maximum(number - 1.0, 1.0))
    return number, mean, 1.0 / (deviation + 1e-8)


@triton_jit()
def normalizing(  # type: ignore[no-untyped-def]
    statistics_at, chunks_at, num_chunks, num_samples, max_chunks: tl.constexpr
):
    """1 / the number of samples that count, and the mean and 1 / deviation that normalize advantages."""
    number, mean, scale = num_samples * 1.0, 0.0, 1.0
    if chunks_at is not None:
        number, mean, scale = _joined_moments(chunks_at, num_chunks, max_chunks)
    if statistics_at is not None:
        mean, scale = tl.load(statistics_at), tl.load(statistics_at + 1)
    return 1.0 / tl.maximum(number, 1.0), mean, scale


# --- the kernels that find the mean and deviation of each minibatch's advantages


@triton_jit("order_at", "size", "chunk_size")
def chunk_kernel(  # type: ignore[no-untyped-def]
    advantage_at, order_at, chunks_at, size, chunk_size, max_chunks: tl.constexpr, block: tl.constexpr
):
    """Write the mean of one chunk of a minibatch's advantages, and their sum of squares around it, to `chunks_at`.

    The grid is (chunks, minibatches). The second pass corrects the mean's rounding error, which would else be brought
    to deviation 1 where all advantages are alike (Chan et al. 1983, eq. 1.7).
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
    squares, errors = tl.zeros([block], tl.float32), tl.zeros([block], tl.float32)
    for start in range(begin, end, block):
        place = start + tl.arange(0, block)
        row = tl.load(order_at + place, mask=place < end, other=0)
        centred = tl.where(place < end, tl.load(advantage_at + row, mask=place < end, other=0.0) - mean, 0.0)
        squares += centred * centred
        errors += centred
    error = tl.sum(errors, axis=0)
    correction = error / tl.maximum(end - begin, 1)
    at = chunks_at + (minibatch * max_chunks + chunk) * 2
    tl.store(at, mean + correction)
    tl.store(at + 1, tl.maximum(tl.sum(squares, axis=0) - error * correction, 0.0))


@triton_jit("out_at", "size", "chunk_size")
def statistics_kernel(chunks_at, out_at, size, chunk_size, max_chunks: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write a minibatch's mean and inverse deviation from the statistics of its chunks (Chan et al. 1983, eq. 2.1)."""
    minibatch, chunk = tl.program_id(0), tl.arange(0, max_chunks)
    count = tl.minimum(tl.maximum(size - chunk * chunk_size, 0), chunk_size)
    at = chunks_at + (minibatch * max_chunks + chunk) * 2
    means = tl.load(at, mask=count > 0, other=0.0)
    squares = tl.load(at + 1, mask=count > 0, other=0.0)
    mean = tl.sum(means * count, axis=0) / size
    mean += tl.sum((means - mean) * count, axis=0) / size
    squares += count * (means - mean) * (means - mean)
    deviation = tl.sqrt(tl.sum(squares, axis=0) / tl.maximum(size - 1, 1))
    tl.store(out_at + 2 * minibatch, mean)
    tl.store(out_at + 2 * minibatch + 1, 1.0 / (deviation + 1e-8))
