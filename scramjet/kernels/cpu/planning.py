"""Value propagation as compiled functions: the forward and backward passes of `ValuePropagation` (its docstring has the
equations), one sample after the other, whose cells fit into the cache next to the processor.

Inputs of a sample are its planes [planes, cells], the cell of the agent, counted in a grid with a border of one cell,
and the rest. A table of numbers describes the network.
"""

from __future__ import annotations

import numpy as np

from scramjet.compile.addresses import AddressedFunction, float_rows, floats, use_wide_vectors, words
from scramjet.compile.jit import callable_from_compiled, compiled
from scramjet.compile.vector_maths import add, copy, fill, inlined, log, sigmoid, tanh

SMALLEST = 1e-6
"""Keeps logarithms finite: the value of a cell from which nothing can be reached."""
SHARPNESS = 10.0
"""Multiplies the outputs of the convolutions. Planning pays only once obstacles block and goals stand out, and with
this factor an optimizer gets there sooner (supervised on mazes, in 400 gradient steps instead of more than 800)."""
BOUND = 8.0
"""The inputs of the sigmoids are kept within -8 to 8, so that a cell's reward or share stays above 0.0003 and can be
learned again: a goal whose reward has fallen to 1e-9 is below SMALLEST, and no gradient reaches it any more."""
LEAK = 0.2
"""The slope of the embedding below 0, so that no unit is ever dead."""
PAUSE = 0.01
"""Steps are counted in the logarithm of a share, which is this much more than 0 where all of a value passes."""

FLOAT = 4  # bytes
NUM_FEATURES = 20  # steps to the 9 cells around the agent, their shares, its own value, its distance

# Numbers of the table: addresses of the weights [channels, planes] and biases of the embedding and of the two maps
# [2, channels], and of what the maps begin at, [2, planes] and [2]; sizes; the most sweeps; where the gradients begin.
EMBED, EMBED_BIAS, MAPS, MAPS_BIAS, GUESS, GUESS_BIAS = range(6)
HEIGHT, WIDTH, PLANES, CHANNELS, REST, SWEEPS, GRADIENT = range(6, 13)
NUM_NUMBERS = 13
# What is kept of each sample, one number a cell each: inputs of the two sigmoids, rewards and shares, and values.
REWARD_INPUT, SHARE_INPUT, REWARD, SHARE, VALUE = range(5)
NUM_KEPT = 5


@compiled
def sweep(reward: np.ndarray, passes: np.ndarray, max_sweeps: int, value: np.ndarray) -> None:
    """Sweep until nothing changes. 16 grids are computed side by side, so that the compiler can vectorize."""
    rows, height, width = reward.shape
    stride = width + 2  # a border of cells without value saves checks at the edges
    cells = (height + 2) * stride
    v = np.empty((cells, 16), reward.dtype)
    p = np.zeros((cells, 16), reward.dtype)
    own = np.zeros((cells, 16), reward.dtype)
    for first in range(0, rows, 16):
        count = min(16, rows - first)
        v[:] = -1e30
        for r in range(height):
            for c in range(width):
                i = (r + 1) * stride + c + 1
                for lane in range(count):
                    v[i, lane] = reward[first + lane, r, c]
                    p[i, lane] = passes[first + lane, r, c]
                    own[i, lane] = (1 - p[i, lane]) * v[i, lane]
        for sweep in range(max_sweeps):
            moved = np.int32(0)
            down, right = sweep % 2 == 0, sweep % 4 == 0 or sweep % 4 == 3
            for a in range(height):
                r = a + 1 if down else height - a
                for b in range(width):
                    i = r * stride + (b + 1 if right else width - b)
                    for lane in range(16):
                        best = max(max(v[i - 1, lane], v[i + 1, lane]), max(v[i - stride, lane], v[i + stride, lane]))
                        offered = p[i, lane] * best + own[i, lane]
                        moved |= np.int32(offered > v[i, lane])
                        v[i, lane] = max(v[i, lane], offered)
            if moved == 0:
                break
        for r in range(height):
            for c in range(width):
                for lane in range(count):
                    value[first + lane, r, c] = v[(r + 1) * stride + c + 1, lane]


@compiled
def route_back(
    reward: np.ndarray, passes: np.ndarray, value: np.ndarray, grad: np.ndarray,
    to_reward: np.ndarray, to_passes: np.ndarray,
) -> None:  # fmt: skip
    """Send each cell's gradient to its own reward and share, and on to the neighbour that its value came from.

    A value never exceeds the one that it came from, so these neighbours make a forest: cells are done leaves first.
    """
    rows, height, width = reward.shape
    cells = height * width
    source = np.empty(cells, np.int32)
    waiting = np.empty(cells, np.int32)  # how many cells drew their value from this one and are not done
    ready = np.empty(cells, np.int32)
    pull = np.empty(cells, grad.dtype)
    for row in range(rows):
        v, r, p = value[row].ravel(), reward[row].ravel(), passes[row].ravel()
        waiting[:] = 0
        for i in range(cells):
            pull[i] = grad[row, i // width, i % width]
            source[i] = -1
            if v[i] > r[i]:
                y, x = i // width, i % width
                best = r[i]
                if y > 0 and v[i - width] > best:
                    best, source[i] = v[i - width], i - width
                if x < width - 1 and v[i + 1] > best:
                    best, source[i] = v[i + 1], i + 1
                if y < height - 1 and v[i + width] > best:
                    best, source[i] = v[i + width], i + width
                if x > 0 and v[i - 1] > best:
                    best, source[i] = v[i - 1], i - 1
                if source[i] >= 0:
                    waiting[source[i]] += 1
        count = 0
        for i in range(cells):
            if waiting[i] == 0:
                ready[count] = i
                count += 1
        done = 0
        while done < count:
            i = ready[done]
            done += 1
            j = source[i]
            y, x = i // width, i % width
            if j < 0:
                to_reward[row, y, x], to_passes[row, y, x] = pull[i], 0
                continue
            to_reward[row, y, x] = (1 - p[i]) * pull[i]
            to_passes[row, y, x] = (v[j] - r[i]) * pull[i]
            pull[j] += p[i] * pull[i]
            waiting[j] -= 1
            if waiting[j] == 0:
                ready[count] = j
                count += 1
        for i in range(cells):
            if waiting[i] > 0:  # equal values that came from each other by rounding
                to_reward[row, i // width, i % width], to_passes[row, i // width, i % width] = pull[i], 0


@inlined
def _embed(pre, planes, weights, bias, count):  # type: ignore[no-untyped-def]
    """Write one channel of the embedding, `pre` [cells], before its leaky ReLU."""
    use_wide_vectors()
    for j in range(count):
        pre[j] = bias
    for p in range(len(weights)):
        weight = weights[p]
        for j in range(count):
            pre[j] += weight * planes[p * count + j]


@inlined
def _add_to_maps(maps, pre, to_reward, to_share, count):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for j in range(count):
        seen = pre[j] if pre[j] > 0 else np.float32(LEAK) * pre[j]
        maps[j] += to_reward * seen
        maps[count + j] += to_share * seen


@inlined
def _squash(maps, kept, count):  # type: ignore[no-untyped-def]
    """The reward and the share of each cell from the inputs of their sigmoids."""
    use_wide_vectors()
    bound = np.float32(BOUND)
    for j in range(count):
        x = maps[j]
        x = -bound if x < -bound else x
        kept[j] = sigmoid(bound if x > bound else x)


@callable_from_compiled
def _rewards_and_shares(own, planes, kept, pre):  # type: ignore[no-untyped-def]
    """Write the first four rows of what is kept of a sample, `kept` [5 * cells]; `pre` [cells] is scratch memory."""
    use_wide_vectors()
    count, num_planes, channels = own[HEIGHT] * own[WIDTH], own[PLANES], own[CHANNELS]
    embed, embed_bias = floats(own[EMBED], channels * num_planes), floats(own[EMBED_BIAS], channels)
    weights, bias = floats(own[MAPS], 2 * channels), floats(own[MAPS_BIAS], 2)
    guess, guess_bias = floats(own[GUESS], 2 * num_planes), floats(own[GUESS_BIAS], 2)
    sharpness = np.float32(SHARPNESS)
    for k in range(2):
        begin = guess_bias[k] + sharpness * bias[k]
        _embed(kept[k * count : (k + 1) * count], planes, guess[k * num_planes : (k + 1) * num_planes], begin, count)
    for c in range(channels):
        _embed(pre, planes, embed[c * num_planes : (c + 1) * num_planes], embed_bias[c], count)
        _add_to_maps(kept, pre, sharpness * weights[c], sharpness * weights[channels + c], count)
    _squash(kept, kept[REWARD * count :], 2 * count)


@AddressedFunction
def plan(numbers, x, stride, rows, keeps, features, kept):  # type: ignore[no-untyped-def]
    """Write the features [rows, 20 + rest] of inputs x, rows of which are `stride` floats apart.

    What the backward pass needs is written from `kept` on, whether `keeps` is set or not.
    """
    use_wide_vectors()
    own = words(numbers, NUM_NUMBERS)
    height, width, num_planes = own[HEIGHT], own[WIDTH], own[PLANES]
    count, num_features = height * width, NUM_FEATURES + own[REST]
    pre = np.empty(count, np.float32)
    reward, share, value = (
        np.empty((rows, height, width), np.float32), np.empty((rows, height, width), np.float32),
        np.empty((rows, height, width), np.float32),
    )  # fmt: skip
    for row in range(rows):
        seen = floats(x + FLOAT * row * stride, stride)
        own_kept = floats(kept + FLOAT * NUM_KEPT * count * row, NUM_KEPT * count)
        _rewards_and_shares(own, seen, own_kept, pre)
        copy(reward[row].ravel(), own_kept[REWARD * count : SHARE * count])
        copy(share[row].ravel(), own_kept[SHARE * count : VALUE * count])
    sweep(reward, share, own[SWEEPS], value)
    for row in range(rows):
        seen = floats(x + FLOAT * row * stride, stride)
        own_kept = floats(kept + FLOAT * NUM_KEPT * count * row, NUM_KEPT * count)
        copy(own_kept[VALUE * count :], value[row].ravel())
        result = floats(features + FLOAT * row * num_features, num_features)
        _read_around(own, np.int64(seen[num_planes * count]), own_kept, result)
        copy(result[NUM_FEATURES:], seen[num_planes * count + 1 : num_planes * count + 1 + own[REST]])


@callable_from_compiled
def _around(own, corner, k):  # type: ignore[no-untyped-def]
    """The cell in place k of the 3x3 around the agent; -1 beyond the edge."""
    row, column = corner // (own[WIDTH] + 2) + k // 3 - 1, corner % (own[WIDTH] + 2) + k % 3 - 1
    if row < 0 or column < 0 or row >= own[HEIGHT] or column >= own[WIDTH]:
        return -1
    return row * own[WIDTH] + column


@callable_from_compiled
def _values_around(own, corner, kept, logs, shares):  # type: ignore[no-untyped-def]
    """Write the logarithms of the values around the agent and the shares there; returns the agent's own value."""
    count = own[HEIGHT] * own[WIDTH]
    for k in range(9):
        cell = _around(own, corner, k)
        logs[k] = log((kept[VALUE * count + cell] if cell >= 0 else np.float32(0)) + np.float32(SMALLEST))
        shares[k] = kept[SHARE * count + cell] if cell >= 0 else np.float32(0)
    return kept[VALUE * count + _around(own, corner, 4)]


@callable_from_compiled
def _read_around(own, corner, kept, result):  # type: ignore[no-untyped-def]
    """Write a sample's features."""
    logs, shares = np.empty(9, np.float32), np.empty(9, np.float32)
    result[18] = _values_around(own, corner, kept, logs, shares)
    pause = np.float32(PAUSE) - log(shares[4] + np.float32(SMALLEST))
    for k in range(9):
        result[k] = tanh((logs[k] - logs[4]) / pause)
        result[9 + k] = shares[k]
    result[19] = logs[4] / -pause / np.float32(own[HEIGHT] + own[WIDTH])


@callable_from_compiled
def _read_around_back(own, corner, kept, to_result, to_value, to_share):  # type: ignore[no-untyped-def]
    """Write the gradients of all values and shares [cells] that a sample's features were read from."""
    count = own[HEIGHT] * own[WIDTH]
    logs, shares, to_logs = np.empty(9, np.float32), np.empty(9, np.float32), np.zeros(9, np.float32)
    _values_around(own, corner, kept, logs, shares)
    fill(to_value, np.float32(0))
    fill(to_share, np.float32(0))
    pause = np.float32(PAUSE) - log(shares[4] + np.float32(SMALLEST))
    across = np.float32(own[HEIGHT] + own[WIDTH])
    to_logs[4] -= to_result[19] / (pause * across)
    to_pause = to_result[19] * logs[4] / (pause * pause * across)
    for k in range(9):
        ratio = (logs[k] - logs[4]) / pause
        step = tanh(ratio)
        pull = to_result[k] * (np.float32(1) - step * step) / pause
        to_logs[k] += pull
        to_logs[4] -= pull
        to_pause -= pull * ratio
    for k in range(9):
        cell = _around(own, corner, k)
        if cell >= 0:
            to_value[cell] = to_logs[k] / (kept[VALUE * count + cell] + np.float32(SMALLEST))
            to_share[cell] = to_result[9 + k]
    cell = _around(own, corner, 4)
    to_value[cell] += to_result[18]
    to_share[cell] -= to_pause / (shares[4] + np.float32(SMALLEST))


@AddressedFunction
def plan_back(numbers, x, stride, rows, to_features, kept, scratch, to_weights):  # type: ignore[no-untyped-def]
    """The backward pass from the gradient of the features on: adds to the gradients of all weights."""
    use_wide_vectors()
    own = words(numbers, NUM_NUMBERS)
    height, width, num_planes, channels = own[HEIGHT], own[WIDTH], own[PLANES], own[CHANNELS]
    count, num_features = height * width, NUM_FEATURES + own[REST]
    turned = np.empty((num_planes + 1, channels), np.float32)  # the embedding's weights, and its bias
    embed = float_rows(own[EMBED], channels, num_planes)
    for c in range(channels):
        for p in range(num_planes):
            turned[p, c] = embed[c, p]
        turned[num_planes, c] = floats(own[EMBED_BIAS], channels)[c]
    to_turned = np.zeros((num_planes + 1, channels), np.float32)
    to_maps = np.zeros(2 * channels + 2, np.float32)
    to_value, pull = np.empty((1, height, width), np.float32), np.empty(count, np.float32)
    pre = np.empty(channels, np.float32)
    to_reward, to_share = np.empty((1, height, width), np.float32), np.empty((1, height, width), np.float32)
    for row in range(rows):
        seen = floats(x + FLOAT * row * stride, stride)
        own_kept = floats(kept + FLOAT * NUM_KEPT * count * row, NUM_KEPT * count)
        to_result = floats(to_features + FLOAT * row * num_features, num_features)
        _read_around_back(own, np.int64(seen[num_planes * count]), own_kept, to_result, to_value.ravel(), pull)
        reward = floats(kept + FLOAT * count * (NUM_KEPT * row + REWARD), count).reshape((1, height, width))
        share = floats(kept + FLOAT * count * (NUM_KEPT * row + SHARE), count).reshape((1, height, width))
        value = floats(kept + FLOAT * count * (NUM_KEPT * row + VALUE), count).reshape((1, height, width))
        route_back(reward, share, value, to_value, to_reward, to_share)
        _maps_back(own, own_kept, seen, to_reward.ravel(), to_share.ravel(), pull, turned, to_turned, to_maps, pre)
    _give_gradients(own, to_weights, to_turned, to_maps)


@callable_from_compiled
def _maps_back(own, kept, seen, to_reward, to_share, pull, turned, to_turned, to_maps, pre):  # type: ignore[no-untyped-def]
    """The backward pass of a sample's rewards and shares, for the cells that any gradient reaches."""
    use_wide_vectors()
    count, channels = own[HEIGHT] * own[WIDTH], own[CHANNELS]
    weights = floats(own[MAPS], 2 * channels)
    for j in range(count):
        first = _through_sigmoid(kept[j], kept[REWARD * count + j], to_reward[j])
        second = _through_sigmoid(kept[count + j], kept[SHARE * count + j], to_share[j] + pull[j])
        if first == 0 and second == 0:
            continue
        to_maps[2 * channels] += first
        to_maps[2 * channels + 1] += second
        _embedding_back(own[PLANES], j, count, seen, first, second, weights, turned, to_turned, to_maps, pre)


@inlined
def _through_sigmoid(x, y, pull):  # type: ignore[no-untyped-def]
    """The gradient of what multiplies SHARPNESS before a sigmoid with the result y; see `layers.keep_within`."""
    bound = np.float32(BOUND)
    pull = pull * y * (np.float32(1) - y)
    leaves = (x > bound and pull < 0) or (x < -bound and pull > 0)
    return np.float32(0) if leaves else np.float32(SHARPNESS) * pull


@callable_from_compiled
def _embedding_back(num_planes, j, count, seen, first, second, weights, turned, to_turned, to_maps, pre):  # type: ignore[no-untyped-def]
    """Add one cell's part to the gradients of the embedding and the maps; `pre` [channels] is scratch memory."""
    use_wide_vectors()
    channels = len(pre)
    copy(pre, turned[num_planes])
    for p in range(num_planes):
        if seen[p * count + j] != 0:  # most planes are empty in most cells
            _add_scaled(pre, turned[p], seen[p * count + j])
    _maps_of_cell_back(pre, first, second, weights, to_maps, channels)
    add(to_turned[num_planes], pre)
    for p in range(num_planes):
        if seen[p * count + j] != 0:
            _add_scaled(to_turned[p], pre, seen[p * count + j])


@inlined
def _add_scaled(row, other, factor):  # type: ignore[no-untyped-def]
    use_wide_vectors()
    for c in range(len(row)):
        row[c] += factor * other[c]


@inlined
def _maps_of_cell_back(pre, first, second, weights, to_maps, channels):  # type: ignore[no-untyped-def]
    """Replace a cell's embedding before its leaky ReLU by the gradient with respect to it."""
    use_wide_vectors()
    for c in range(channels):
        slope = np.float32(1) if pre[c] > 0 else np.float32(LEAK)
        to_maps[c] += first * slope * pre[c]
        to_maps[channels + c] += second * slope * pre[c]
        pre[c] = slope * (first * weights[c] + second * weights[channels + c])


@callable_from_compiled
def _give_gradients(own, to_weights, to_turned, to_maps):  # type: ignore[no-untyped-def]
    """Add the sums over all samples to the gradients, in the order of the parameters."""
    num_planes, channels = own[PLANES], own[CHANNELS]
    given = floats(to_weights + FLOAT * own[GRADIENT], channels * (num_planes + 3) + 2)
    for c in range(channels):
        for p in range(num_planes):
            given[c * num_planes + p] += to_turned[p, c]
        given[channels * num_planes + c] += to_turned[num_planes, c]
    for j in range(2 * channels + 2):
        given[channels * (num_planes + 1) + j] += to_maps[j]
