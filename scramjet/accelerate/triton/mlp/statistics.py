"""The kernels that find the mean and deviation of each minibatch's advantages."""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl


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
