"""The Triton kernels of `tower.py`: a convolution, and the gradient of its source.

A convolution is a product of matrices: a row for each cell of the result, and along the axis that is summed up an entry
for each tap of the kernel and channel of the source. The first matrix is never written down: a program gathers its
block of rows, one block of (tap, channel) after the other; neighbouring taps find the same numbers in the cache.

Names that end in `_at` are pointers. Constexpr arguments, and whether a pointer is None, are known when a kernel is
compiled. Functions without `kernel` in their name are called by kernels. Sums are taken in a fixed order, without
atomics. Unless said otherwise, boards lie in memory cell by cell, the channels of a cell side by side.
"""

from __future__ import annotations

from scramjet.kernels.gpu.language import HAS_TRITON, dot, triton_jit

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def tap_and_channel(start, channels: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Taps and channels of a block of the summed axis, [1, block]; the tap is [1, 1] if all have the same."""
    if channels % block == 0:
        tap = tl.zeros([1, 1], tl.int32) + start // channels
        channel = tl.multiple_of(start % channels + tl.arange(0, block)[None, :], [1, block])  # so it is read at once
    else:
        tap = (start + tl.arange(0, block)[None, :]) // channels
        channel = (start + tl.arange(0, block)[None, :]) % channels
    return tap, channel


@triton_jit()
def gather(  # type: ignore[no-untyped-def]
    source_at, board, y, x, down, right, channel, is_there, leaves: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr, channels_first: tl.constexpr,
):  # fmt: skip
    """Numbers [rows, block] of the cells `down` and `right` [1, block] from the cells `y`, `x` [rows, 1] of boards.

    0 where `is_there` is not set; and outside of the board, where steps that `leaves` may lead.
    """
    if leaves:
        is_there = is_there & (y + down >= 0) & (y + down < height) & (x + right >= 0) & (x + right < width)
    if channels_first:
        row_at = source_at + (board * (channels * height * width) + (y * width + x))
        step = channel * (height * width) + (down * width + right)
    else:
        row_at = source_at + (board * (channels * height * width) + (y * width + x) * channels)
        step = (down * width + right) * channels + channel
    return tl.load(row_at + step, mask=is_there, other=0)


@triton_jit("num_boards")
def convolution_kernel(  # type: ignore[no-untyped-def]
    source_at, weight_at, bias_at, added_at, mask_at, out_at, num_boards,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr, source_is_channels_first: tl.constexpr,
    outputs: tl.constexpr, out_height: tl.constexpr, out_width: tl.constexpr, out_is_channels_first: tl.constexpr,
    size: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, by_rows: tl.constexpr, divisor: tl.constexpr,
    rectifies: tl.constexpr, turns: tl.constexpr, precision: tl.constexpr,
    block_rows: tl.constexpr, block_outputs: tl.constexpr, block_sum: tl.constexpr, unrolls: tl.constexpr,
):  # fmt: skip
    """Convolve boards [boards, height, width, channels] with `weight` [outputs, size, size, channels].

    The result [boards, out_height, out_width, outputs] is divided by `divisor`; then `bias` and `added`, of the
    result's shape, are added; and what is below 0 becomes 0 if it `rectifies`. `mask`, of the result's shape, sets to 0
    what is not above 0 there. The kernel is turned around if it `turns`. The grid is (blocks of rows, blocks of
    outputs, groups): groups are the weights and `num_boards` boards of each of several networks.

    Where no tap lies outside of the board, all of a row of the kernel lie side by side, cell after cell, and count as
    the channels of one tap (`by_rows`): fewer and longer reads.
    """
    taps: tl.constexpr = size if by_rows else size * size
    depth: tl.constexpr = size * size * channels // taps  # channels of a tap
    group = tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) * block_rows
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    sums = tl.zeros([block_rows, block_outputs], tl.float32)
    if unrolls:
        for start in tl.static_range(0, taps * depth, block_sum):
            sums = _add_product(
                sums, start, source_at, weight_at, first, group, output, num_boards, channels, height, width,
                source_is_channels_first, outputs, out_height, out_width, size, stride, padding, by_rows, taps, depth,
                turns, precision, block_rows, block_sum,
            )  # fmt: skip
    else:
        for start in range(0, taps * depth, block_sum):
            sums = _add_product(
                sums, start, source_at, weight_at, first, group, output, num_boards, channels, height, width,
                source_is_channels_first, outputs, out_height, out_width, size, stride, padding, by_rows, taps, depth,
                turns, precision, block_rows, block_sum,
            )  # fmt: skip
    if divisor != 1.0:
        sums = sums / divisor
    row = first + tl.arange(0, block_rows)[:, None]
    board = row // (out_height * out_width) + group * num_boards
    is_result = (row < num_boards * (out_height * out_width)) & (output < outputs)[None, :]
    _finish(
        sums, bias_at, added_at, mask_at, out_at, group, board, row % (out_height * out_width), output[None, :],
        is_result, outputs, out_height * out_width, out_is_channels_first, rectifies,
    )  # fmt: skip


@triton_jit()
def _add_product(  # type: ignore[no-untyped-def]
    sums, start, source_at, weight_at, first, group, output, num_boards,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr, source_is_channels_first: tl.constexpr,
    outputs: tl.constexpr, out_height: tl.constexpr, out_width: tl.constexpr,
    size: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, by_rows: tl.constexpr,
    taps: tl.constexpr, depth: tl.constexpr, turns: tl.constexpr, precision: tl.constexpr,
    block_rows: tl.constexpr, block_sum: tl.constexpr,
):  # fmt: skip
    """`sums` [block_rows, block of outputs] and the product of one block of the summed axis."""
    row = first + tl.arange(0, block_rows)[:, None]
    board = row // (out_height * out_width) + group * num_boards
    y, x = row // out_width % out_height * stride - padding, row % out_width * stride - padding
    tap, channel = tap_and_channel(start, depth, block_sum)
    down, right = (tap, 0) if by_rows else (tap // size, tap % size)
    is_there = (row < num_boards * (out_height * out_width)) & (tap < taps)
    numbers = gather(
        source_at, board, y, x, down, right, channel, is_there, padding > 0,
        height, width, channels, source_is_channels_first,
    )  # fmt: skip
    kernel_tap = taps - 1 - tap if turns else tap
    place = ((group * outputs + output[:, None]) * taps + kernel_tap) * depth + channel
    weights = tl.load(weight_at + place, mask=(output < outputs)[:, None] & (tap < taps), other=0.0)
    return dot(numbers, tl.trans(weights), sums, precision)


@triton_jit()
def _finish(  # type: ignore[no-untyped-def]
    sums, bias_at, added_at, mask_at, out_at, group, board, cell, output, is_result,
    outputs: tl.constexpr, cells: tl.constexpr, channels_first: tl.constexpr, rectifies: tl.constexpr,
):  # fmt: skip
    """Add bias and another board, rectify, mask, and write the results of a block."""
    place = (board * cells + cell) * outputs + output
    if bias_at is not None:
        sums += tl.load(bias_at + group * outputs + output, mask=output < outputs, other=0.0)
    if added_at is not None:
        sums += tl.load(added_at + place, mask=is_result, other=0.0).to(tl.float32)
    if rectifies:
        sums = tl.where(sums < 0.0, 0.0, sums)  # NaN stays NaN
    if mask_at is not None:
        sums = tl.where(tl.load(mask_at + place, mask=is_result, other=0.0) > 0.0, sums, 0.0)
    if channels_first:
        place = (board * outputs + output) * cells + cell
    tl.store(out_at + place, sums, mask=is_result)


@triton_jit("num_boards")
def source_gradient_kernel(  # type: ignore[no-untyped-def]
    gradient_at, weight_at, added_at, mask_at, out_at, num_boards,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    outputs: tl.constexpr, out_height: tl.constexpr, out_width: tl.constexpr,
    size: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    precision: tl.constexpr, block_rows: tl.constexpr, block_channels: tl.constexpr, block_sum: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a convolution's source [boards, height, width, channels] from that of its result,
    [boards, out_height, out_width, outputs], and `weight` [channels, size, size, outputs].

    `added`, of the source's shape, is added to it; then it is 0 where `mask`, the source itself, is not above 0. The
    grid is (blocks of rows, blocks of channels, stride * stride): of source cells whose y and x leave the same rest
    when divided by the stride, each meets the same taps.
    """
    taps: tl.constexpr = (size + stride - 1) // stride  # of one such kind of cells, in each direction
    rows: tl.constexpr = (height + stride - 1) // stride
    columns: tl.constexpr = (width + stride - 1) // stride
    rest_y, rest_x = tl.program_id(2) // stride, tl.program_id(2) % stride
    first_y, first_x = (rest_y + padding) % stride, (rest_x + padding) % stride  # taps of the kernel
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)[:, None]
    board = (row // (rows * columns)).to(tl.int64)
    down, right = row // columns % rows, row % columns
    y, x = (rest_y + padding - first_y) // stride + down, (rest_x + padding - first_x) // stride + right
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    is_row = row < num_boards * (rows * columns)
    sums = tl.zeros([block_rows, block_channels], tl.float32)
    for number in range(taps * taps):
        tap = tl.zeros([1, 1], tl.int32) + number
        tap_y, tap_x = first_y + tap // taps * stride, first_x + tap % taps * stride
        is_tap = (tap_y < size) & (tap_x < size)
        for start in tl.static_range(0, outputs, block_sum):
            output = start + tl.arange(0, block_sum)[None, :]
            numbers = gather(
                gradient_at, board, y, x, -(tap // taps), -(tap % taps), output, is_row & is_tap & (output < outputs),
                True, out_height, out_width, outputs, False,
            )  # fmt: skip
            place = (channel[:, None] * (size * size) + (tap_y * size + tap_x)) * outputs + output
            is_weight = (channel < channels)[:, None] & is_tap & (output < outputs)
            weights = tl.load(weight_at + place, mask=is_weight, other=0.0)
            sums = dot(numbers, tl.trans(weights), sums, precision)
    y, x = rest_y + down * stride, rest_x + right * stride
    is_result = is_row & (y < height) & (x < width) & (channel < channels)[None, :]
    _finish(
        sums, None, added_at, mask_at, out_at, 0, board, y * width + x, channel[None, :], is_result,
        channels, height * width, False, False,
    )  # fmt: skip


# --- the Triton kernels of the gradient of a convolution's weights: partial sums, and their reduction


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
