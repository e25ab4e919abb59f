"""Triton kernels and functions for the samples that count: how many they are, and what normalizes their advantages.

Names are as in `loss_kernels.py`.
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl


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
