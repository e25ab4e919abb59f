"""3x3 convolutions over small boards as compiled functions: the forward and backward passes of a `GridCNN`.

BOARDS samples lie side by side, [channels, cells, BOARDS], so that each lane of a vector is a sample, no columns are
copied and taps beyond the edge are left out. All activations of such a group of samples stay in the cache of one core.

A table of numbers describes the network, first its sizes, then a row for each convolution. A group's activations are
one behind the other in memory: the planes, then the results of each convolution. Channels are padded to a multiple of
OUTPUTS; the padding stays 0.
"""

from __future__ import annotations

import numpy as np

from scramjet.compile.addresses import (
    BOARDS,
    LANES,
    OUTPUTS,
    PAIRED,
    PARTNERS,
    AddressedFunction,
    floats,
    products_over_lanes,
    transpose,
    use_wide_vectors,
    weighted_sums,
    words,
)  # fmt: skip
from scramjet.compile.jit import callable_from_compiled
from scramjet.compile.vector_maths import add, copy, fill, inlined, inlined_sum

FLOAT = 4  # bytes
CELL = FLOAT * BOARDS  # bytes of one cell of all boards of a group

# The sizes: convolutions; rows and columns of a board; cells from one channel to the next; planes; whether features are
# means and maxima; features of the planes, and others that are copied to them; floats that a group's activations take;
# those of the widest of them; and the addresses of the weight of the linear layer that follows [outputs, features] and
# of its transpose, and its outputs.
NUM_LAYERS, HEIGHT, WIDTH, CHANNEL, PLANES, POOLS, FEATURES, REST, GROUP, WIDEST, FOLLOWING, TURNED, UNITS = range(13)
NUM_SIZES = 13
# Columns of a convolution: addresses of the weight [outputs, inputs, 3, 3] and the bias; channels; where its source,
# its result and the board that is added to it (-1: none) begin among a group's activations; the addresses of the packed
# weights of both directions and of the packed bias; where its gradient begins among all gradients.
WEIGHT, BIAS, INPUTS, CHANNELS, SOURCE, RESULT, ADDED, FORTH, BACK, PADDED_BIAS, GRADIENT = range(11)
NUM_COLUMNS = 11
TAPS = 9


@callable_from_compiled
def _convolution(numbers, k):  # type: ignore[no-untyped-def]
    """Row k of the table of convolutions."""
    return words(numbers + 8 * (NUM_SIZES + NUM_COLUMNS * k), NUM_COLUMNS)


@callable_from_compiled
def padded(channels):  # type: ignore[no-untyped-def]
    """Channels rounded up to whole blocks."""
    return (channels + OUTPUTS - 1) // OUTPUTS * OUTPUTS


@AddressedFunction
def pack_convolutions(numbers):  # type: ignore[no-untyped-def]
    """Copy the weights of all convolutions into blocks of OUTPUTS channels, [blocks, 9, inputs, OUTPUTS].

    Those of the backward pass have inputs and outputs exchanged and taps turned around. The weight of the linear layer
    that follows is transposed.
    """
    sizes = words(numbers, NUM_SIZES)
    _turn(sizes[FOLLOWING], sizes[UNITS], sizes[FEATURES] + sizes[REST], sizes[TURNED])
    for k in range(sizes[NUM_LAYERS]):
        own = _convolution(numbers, k)
        inputs, outputs = own[INPUTS], own[CHANNELS]
        weight = floats(own[WEIGHT], TAPS * inputs * outputs)
        forth, back = (
            floats(own[FORTH], TAPS * inputs * padded(outputs)),
            floats(own[BACK], TAPS * outputs * padded(inputs)),
        )
        for o in range(outputs):
            for i in range(inputs):
                for tap in range(TAPS):
                    value = weight[(o * inputs + i) * TAPS + tap]
                    block, place = o // OUTPUTS, o % OUTPUTS
                    forth[((block * TAPS + tap) * inputs + i) * OUTPUTS + place] = value
                    block, place = i // OUTPUTS, i % OUTPUTS
                    back[((block * TAPS + TAPS - 1 - tap) * outputs + o) * OUTPUTS + place] = value
        copy(floats(own[PADDED_BIAS], outputs), floats(own[BIAS], outputs))


@callable_from_compiled
def _turn(matrix, rows, columns, turned):  # type: ignore[no-untyped-def]
    """Write the transpose of a matrix."""
    for first in range(0, rows, LANES):
        whole = columns // LANES * LANES if first + LANES <= rows else 0
        for j in range(0, whole, LANES):
            source, result = matrix + FLOAT * (first * columns + j), turned + FLOAT * (j * rows + first)
            transpose(source, FLOAT * columns, result, FLOAT * rows)
        for row in range(first, min(first + LANES, rows)):
            for j in range(whole, columns):
                floats(turned, rows * columns)[j * rows + row] = floats(matrix, rows * columns)[row * columns + j]


@callable_from_compiled
def _convolve(sizes, source, inputs, outputs, packed, bias, result):  # type: ignore[no-untyped-def]
    """Write the boards `result` [outputs, cells, BOARDS] of the boards `source` [inputs, cells, BOARDS]."""
    height, width, channel = sizes[HEIGHT], sizes[WIDTH], CELL * sizes[CHANNEL]
    tap = FLOAT * OUTPUTS * inputs
    for block in range(padded(outputs) // OUTPUTS):
        for row in range(height):
            top, bottom = max(row - 1, 0), min(row + 2, height)
            for column in range(width):
                left, right = max(column - 1, 0), min(column + 2, width)
                seen = source + CELL * (top * width + left)
                weights = packed + tap * (TAPS * block + 3 * (top - row + 1) + left - column + 1)
                weighted_sums(
                    bottom - top, right - left, inputs, seen, CELL * width, CELL, channel,
                    weights, 3 * tap, tap, FLOAT * OUTPUTS, bias + FLOAT * OUTPUTS * block,
                    result + OUTPUTS * channel * block + CELL * (row * width + column), channel,
                )  # fmt: skip


@callable_from_compiled
def _convolve_back(sizes, own, source, to_result, to_weights):  # type: ignore[no-untyped-def]
    """Add to the gradients of a convolution's weight and bias; the padding of both boards is 0."""
    height, width, channel = sizes[HEIGHT], sizes[WIDTH], CELL * sizes[CHANNEL]
    inputs, outputs = own[INPUTS], own[CHANNELS]
    to_weight = floats(to_weights + FLOAT * own[GRADIENT], TAPS * inputs * outputs)
    to_bias = floats(to_weights + FLOAT * (own[GRADIENT] + TAPS * inputs * outputs), outputs)
    for o in range(outputs):
        to_bias[o] += _sum(floats(to_result + o * channel, BOARDS * height * width))
    sums = np.empty(TAPS * PAIRED * PARTNERS, np.float32)
    for i in range(0, inputs, PAIRED):
        for o in range(0, outputs, PARTNERS):
            for vector in range(0, CELL, FLOAT * LANES):  # one half of the boards of all these channels fits into L1
                _products_of_taps(
                    sizes, source + i * channel + vector, to_result + o * channel + vector, vector, sums.ctypes.data
                )  # fmt: skip
            for a in range(min(PAIRED, inputs - i)):
                for b in range(min(PARTNERS, outputs - o)):
                    own_taps = to_weight[((o + b) * inputs + i + a) * TAPS : ((o + b) * inputs + i + a + 1) * TAPS]
                    for tap in range(TAPS):
                        own_taps[tap] += sums[(tap * PAIRED + a) * PARTNERS + b]


@callable_from_compiled
def _products_of_taps(sizes, source, to_result, keeps, sums):  # type: ignore[no-untyped-def]
    """Write, or add with `keeps`, the gradients `sums` [9, PAIRED, PARTNERS] of some channels' weights."""
    height, width, channel = sizes[HEIGHT], sizes[WIDTH], CELL * sizes[CHANNEL]
    for tap in range(TAPS):
        down, across = tap // 3 - 1, tap % 3 - 1
        top, bottom = max(-down, 0), min(height - down, height)
        left, right = max(-across, 0), min(width - across, width)
        result = sums + FLOAT * tap * PAIRED * PARTNERS
        if keeps == 0:
            fill(floats(result, PAIRED * PARTNERS), np.float32(0))
        if bottom > top and right > left:
            products_over_lanes(
                bottom - top, right - left,
                source + CELL * ((top + down) * width + left + across), channel, CELL * width, CELL,
                to_result + CELL * (top * width + left), channel, CELL * width, CELL, result,
            )  # fmt: skip


@inlined_sum
def _sum(row):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    total = np.float32(0)
    for j in range(len(row)):
        total += row[j]
    return total


@inlined
def _cut(row):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for j in range(len(row)):
        row[j] = np.float32(0) if row[j] < 0 else row[j]  # NaN stays NaN


@inlined
def _cut_back(to_row, row):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for j in range(len(row)):
        to_row[j] = to_row[j] if row[j] > 0 else np.float32(0)


@callable_from_compiled
def _lay_side_by_side(rows, stride, num_rows, count, board):  # type: ignore[no-untyped-def]
    """Write `board` [count, BOARDS], the first `count` floats of each of the rows; 0 where there is no row."""
    for first in range(0, BOARDS, LANES):
        whole = count // LANES * LANES if first + LANES <= num_rows else 0
        for j in range(0, whole, LANES):
            transpose(
                rows + FLOAT * (first * stride + j), FLOAT * stride, board + CELL * j + FLOAT * first, CELL
            )  # fmt: skip
        for row in range(first, first + LANES):
            given = floats(rows + FLOAT * row * stride, count if row < num_rows else 0)
            cells = floats(board + FLOAT * row, BOARDS * (count - 1) + 1)
            for j in range(whole, count):
                cells[BOARDS * j] = given[j] if row < num_rows else np.float32(0)


@callable_from_compiled
def _lay_in_rows(board, count, rows, stride, num_rows):  # type: ignore[no-untyped-def]
    """The reverse of `_lay_side_by_side`."""
    for first in range(0, num_rows, LANES):
        whole = count // LANES * LANES if first + LANES <= num_rows else 0
        for j in range(0, whole, LANES):
            transpose(
                board + CELL * j + FLOAT * first, CELL, rows + FLOAT * (first * stride + j), FLOAT * stride
            )  # fmt: skip
        for row in range(first, min(first + LANES, num_rows)):
            given = floats(rows + FLOAT * row * stride, count)
            cells = floats(board + FLOAT * row, BOARDS * (count - 1) + 1)
            for j in range(whole, count):
                given[j] = cells[BOARDS * j]


@AddressedFunction
def convolutions(numbers, x, stride, rows, keeps, features, kept):  # type: ignore[no-untyped-def]
    """Write the features [rows, features + rest] of inputs x, rows of which are `stride` floats apart.

    Activations are written from `kept` on; with `keeps` 0 each group of samples overwrites those of the one before.
    """
    use_wide_vectors()
    sizes = words(numbers, NUM_SIZES)
    count, width = sizes[HEIGHT] * sizes[WIDTH], sizes[FEATURES] + sizes[REST]
    for first in range(0, rows, BOARDS):
        num = min(BOARDS, rows - first)
        given, result = x + FLOAT * first * stride, features + FLOAT * first * width
        for plane in range(sizes[PLANES]):
            _lay_side_by_side(given + FLOAT * plane * count, stride, num, count, kept + CELL * sizes[CHANNEL] * plane)
        padding = padded(sizes[PLANES]) - sizes[PLANES]
        fill(floats(kept + CELL * sizes[CHANNEL] * sizes[PLANES], BOARDS * sizes[CHANNEL] * padding), np.float32(0))
        for k in range(sizes[NUM_LAYERS]):
            own = _convolution(numbers, k)
            board = kept + FLOAT * own[RESULT]
            _convolve(
                sizes, kept + FLOAT * own[SOURCE], own[INPUTS], own[CHANNELS], own[FORTH], own[PADDED_BIAS], board
            )  # fmt: skip
            cells = floats(board, BOARDS * sizes[CHANNEL] * padded(own[CHANNELS]))
            if own[ADDED] >= 0:
                add(cells, floats(kept + FLOAT * own[ADDED], len(cells)))
            _cut(cells)
        _read_out(sizes, _convolution(numbers, sizes[NUM_LAYERS] - 1), kept, result, num)
        for row in range(num):
            rest = floats(given + FLOAT * (row * stride + sizes[PLANES] * count), sizes[REST])
            copy(floats(result + FLOAT * (row * width + sizes[FEATURES]), sizes[REST]), rest)
        if keeps != 0:
            kept += FLOAT * sizes[GROUP]


@callable_from_compiled
def _read_out(sizes, last, kept, result, num):  # type: ignore[no-untyped-def]
    """Write the features of one group: every cell of the last boards, or the mean and maximum of each channel."""
    count, width, channels = sizes[HEIGHT] * sizes[WIDTH], sizes[FEATURES] + sizes[REST], last[CHANNELS]
    for c in range(channels):
        board = kept + FLOAT * last[RESULT] + CELL * sizes[CHANNEL] * c
        if sizes[POOLS] == 0:
            _lay_in_rows(board, count, result + FLOAT * count * c, width, num)
            continue
        for row in range(num):
            cells, own = (
                floats(board + FLOAT * row, BOARDS * (count - 1) + 1),
                floats(result + FLOAT * row * width, width),
            )
            total, highest = np.float32(0), cells[0]
            for j in range(count):
                total += cells[BOARDS * j]
                highest = cells[BOARDS * j] if cells[BOARDS * j] > highest else highest
            own[c], own[channels + c] = total / np.float32(count), highest


@callable_from_compiled
def _read_out_back(sizes, last, kept, to_result, num, to_boards):  # type: ignore[no-untyped-def]
    """Write the gradient of the last boards from that of the features; equal maxima share theirs, as in torch."""
    count, width, channels = sizes[HEIGHT] * sizes[WIDTH], sizes[FEATURES] + sizes[REST], last[CHANNELS]
    for c in range(channels):
        to_board = to_boards + CELL * sizes[CHANNEL] * c
        if sizes[POOLS] == 0:
            _lay_side_by_side(to_result + FLOAT * count * c, width, num, count, to_board)
            continue
        fill(floats(to_board, BOARDS * count), np.float32(0))
        for row in range(num):
            to_cells = floats(to_board + FLOAT * row, BOARDS * (count - 1) + 1)
            board = kept + FLOAT * last[RESULT] + CELL * sizes[CHANNEL] * c
            cells, own = (
                floats(board + FLOAT * row, BOARDS * (count - 1) + 1),
                floats(to_result + FLOAT * row * width, width),
            )
            highest, equal = cells[0], 0
            for j in range(count):
                highest = cells[BOARDS * j] if cells[BOARDS * j] > highest else highest
            for j in range(count):
                equal += 1 if cells[BOARDS * j] == highest else 0
            to_mean, to_highest = own[c] / np.float32(count), own[channels + c] / np.float32(max(equal, 1))
            for j in range(count):
                to_cells[BOARDS * j] = to_mean + (to_highest if cells[BOARDS * j] == highest else np.float32(0))
    padding = padded(channels) - channels
    fill(floats(to_boards + CELL * sizes[CHANNEL] * channels, BOARDS * sizes[CHANNEL] * padding), np.float32(0))


@AddressedFunction
def convolutions_back(numbers, x, stride, rows, to_features, kept, scratch, to_weights):  # type: ignore[no-untyped-def]
    """The backward pass from the gradient of the features on: adds to the gradients of all weights.

    `kept` are the activations that the forward pass left; `scratch` has room for three boards of the widest layer.
    """
    use_wide_vectors()
    sizes = words(numbers, NUM_SIZES)
    size, width = FLOAT * sizes[WIDEST], sizes[FEATURES] + sizes[REST]
    zeros = np.zeros(OUTPUTS * (sizes[WIDEST] // (BOARDS * sizes[CHANNEL]) // OUTPUTS + 1), np.float32)
    for first in range(0, rows, BOARDS):
        to_board, other, to_added = scratch, scratch + size, scratch + 2 * size
        last = _convolution(numbers, sizes[NUM_LAYERS] - 1)
        num = min(BOARDS, rows - first)
        _read_out_back(sizes, last, kept, to_features + FLOAT * first * width, num, to_board)
        for k in range(sizes[NUM_LAYERS] - 1, -1, -1):
            own = _convolution(numbers, k)
            count = BOARDS * sizes[CHANNEL] * padded(own[CHANNELS])
            _cut_back(floats(to_board, count), floats(kept + FLOAT * own[RESULT], count))
            if own[ADDED] >= 0:
                copy(floats(to_added, count), floats(to_board, count))
            _convolve_back(sizes, own, kept + FLOAT * own[SOURCE], to_board, to_weights)
            if k > 0:
                _convolve(
                    sizes, to_board, own[CHANNELS], own[INPUTS], own[BACK], zeros.ctypes.data, other
                )  # fmt: skip
                if own[ADDED] < 0 and _convolution(numbers, min(k + 1, sizes[NUM_LAYERS] - 1))[ADDED] == own[SOURCE]:
                    add(floats(other, count), floats(to_added, count))  # the first convolution of a residual block
                to_board, other = other, to_board
        kept += FLOAT * sizes[GROUP]
