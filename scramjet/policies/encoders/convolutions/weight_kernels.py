"""The Triton kernels of the gradient of a convolution's weights: partial sums, and their reduction.

`kernels.py` says how boards lie in memory and what names mean.
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit
from scramjet.compile.triton_functions import dot
from scramjet.policies.encoders.convolutions.kernels import gather, tap_and_channel

if HAS_TRITON:
    import triton.language as tl


@triton_jit("num_boards", "chunk")
def weight_gradient_kernel(  # type: ignore[no-untyped-def]
    source_at, gradient_at, result_at, masked_at, partials_at, num_boards, chunk,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr, source_is_channels_first: tl.constexpr,
    outputs: tl.constexpr, out_height: tl.constexpr, out_width: tl.constexpr, out_is_channels_first: tl.constexpr,
    size: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, by_rows: tl.constexpr, divisor: tl.constexpr,
    precision: tl.constexpr, block_rows: tl.constexpr, block_outputs: tl.constexpr, block_sum: tl.constexpr,
    blocks: tl.constexpr, shifts: tl.constexpr,
):  # fmt: skip
    """Write the part of the weights' and bias's gradients that `chunk` rows make, to a row of `partials`.

    Such a row is [size, size, channels, outputs], then [outputs] of the bias. The gradient of the result is 0 where
    `result` is not above 0, if that is given; and is written so to `masked`, channels last, if that is given. The grid
    is (chunks, groups of `blocks` blocks of the summed axis, blocks of outputs).

    A weight's gradient adds up products of numbers that are a step of the kernel apart. Without strides, the sources
    are moved down and the gradients sideways, `shifts` = size of each: all pairs of them are the taps. A row is then a
    cell that has the y of the result and the x of the source. With strides, `shifts` is 1: sources are moved to all
    taps, and a row is a cell of the result.
    """
    columns: tl.constexpr = width if shifts > 1 else out_width
    cells: tl.constexpr = out_height * columns
    taps: tl.constexpr = size if by_rows or shifts > 1 else size * size
    depth: tl.constexpr = size * channels if by_rows and shifts == 1 else channels  # of a tap
    first = 0  # where there is one group, so that steps are known when the kernel is compiled
    if blocks * block_sum < taps * depth:
        first = tl.program_id(1) * (blocks * block_sum)
    output = tl.program_id(2) * block_outputs + tl.arange(0, block_outputs)
    end = tl.minimum((tl.program_id(0) + 1) * chunk, num_boards * cells)
    bias = tl.zeros([block_rows, block_outputs], tl.float32)
    sums = ()
    for _ in tl.static_range(blocks * shifts):
        sums += (tl.zeros([block_sum, block_outputs], tl.float32),)  # type: ignore[assignment]
    for begin in range(tl.program_id(0) * chunk, end, block_rows):
        gradients = ()
        for shift in tl.static_range(shifts):
            gradient = _result_gradient(
                gradient_at, result_at, masked_at, begin, end, output, shift - padding if shifts > 1 else 0, first == 0,
                columns, outputs, out_height, out_width, out_is_channels_first, block_rows,
            )  # fmt: skip
            if shifts == 1 or shift == padding:
                bias += gradient.to(tl.float32)
            gradients += (gradient,)  # type: ignore[assignment]
        row = begin + tl.arange(0, block_rows)[:, None]
        new_sums = ()
        for block in tl.static_range(blocks):
            y, x = row // columns % out_height * stride - padding, row % columns
            if shifts == 1:
                x = x * stride - padding
            tap, channel = tap_and_channel(first + block * block_sum, depth, block_sum)
            down, right = (tap, 0) if taps == size else (tap // size, tap % size)
            numbers = gather(
                source_at, (row // cells).to(tl.int64), y, x, down, right, channel, (row < end) & (tap < taps),
                padding > 0, height, width, channels, source_is_channels_first,
            )  # fmt: skip
            for shift in tl.static_range(shifts):
                product = dot(tl.trans(numbers), gradients[shift], sums[block * shifts + shift], precision)
                new_sums += (product,)  # type: ignore[assignment]
        sums = new_sums
    partials_at += tl.program_id(0).to(tl.int64) * ((size * size * channels + 1) * outputs)
    for block in tl.static_range(blocks):
        entry = first + block * block_sum + tl.arange(0, block_sum)[:, None]
        is_there = (entry < taps * depth) & (output < outputs)[None, :]
        for shift in tl.static_range(shifts):
            place = (entry // depth * shifts + shift) * depth + entry % depth
            at = partials_at + place * outputs + output[None, :]
            tl.store(at, sums[block * shifts + shift] / divisor, mask=is_there)
    if first == 0:
        bias_at = partials_at + size * size * channels * outputs
        tl.store(bias_at + output, tl.sum(bias, axis=0), mask=output < outputs)


@triton_jit()
def _result_gradient(  # type: ignore[no-untyped-def]
    gradient_at, result_at, masked_at, begin, end, output, shift: tl.constexpr, writes,
    columns: tl.constexpr, outputs: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    channels_first: tl.constexpr, block_rows: tl.constexpr,
):  # fmt: skip
    """The gradient [rows, block of outputs] before the ReLU, of the cells `shift` columns left of rows; 0 beside the
    board. That without a shift is written if it `writes`; see the kernel above."""
    row = begin + tl.arange(0, block_rows)
    board, y, x = (row // (height * columns)).to(tl.int64), row // columns % height, row % columns - shift
    is_row = (row < end) & (x >= 0) & (x < width)
    if channels_first:  # neighbouring threads read neighbouring cells
        place = board[None, :] * (outputs * height * width) + (y * width + x)[None, :]
        place += output[:, None] * (height * width)
        is_there = is_row[None, :] & (output < outputs)[:, None]
    else:
        place = ((board * height + y) * width + x)[:, None] * outputs + output[None, :]
        is_there = is_row[:, None] & (output < outputs)[None, :]
    gradient = tl.load(gradient_at + place, mask=is_there, other=0.0)
    if result_at is not None:
        gradient = tl.where(tl.load(result_at + place, mask=is_there, other=0.0) > 0.0, gradient, 0.0)
    if channels_first:
        gradient = tl.trans(gradient)
    if masked_at is not None and shift == 0:  # noqa: SIM102 - the other is known only when the kernel runs
        if writes:
            last = ((board * height + y) * width + x)[:, None] * outputs + output[None, :]
            tl.store(masked_at + last, gradient, mask=is_row[:, None] & (output < outputs)[None, :])
    return gradient


@triton_jit("num_partials", "channels", "taps")
def reduce_kernel(  # type: ignore[no-untyped-def]
    partials_at, weight_at, bias_at, num_partials, channels, taps, outputs,
    is_channels_first: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Add up the rows of `partials` into the gradients of bias [outputs] and weights, which lie in memory as [outputs,
    channels, taps] if that `is_channels_first`, else as [outputs, taps, channels]."""
    entries = taps * channels
    place = tl.program_id(0) * columns + tl.arange(0, columns)
    is_place = place < (entries + 1) * outputs
    sums = tl.zeros([rows, columns], tl.float32)
    for start in range(0, num_partials, rows):
        row = start + tl.arange(0, rows)
        at = partials_at + row[:, None].to(tl.int64) * ((entries + 1) * outputs) + place[None, :]
        sums += tl.load(at, mask=(row < num_partials)[:, None] & is_place[None, :], other=0.0)
    gradient = tl.sum(sums, axis=0)
    entry, output = place // outputs, place % outputs
    weight = output * entries + entry
    if is_channels_first:
        weight = (output * channels + entry % channels) * taps + entry // channels
    tl.store(weight_at + weight, gradient, mask=entry < entries)
    tl.store(bias_at + output, gradient, mask=is_place & (entry == entries))
