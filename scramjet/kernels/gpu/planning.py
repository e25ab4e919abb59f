"""The kernels of `value_propagation` for the GPU, forward and backward; imported when tensors are there.

Small grids take a thread for each row, see below. Larger ones, and sweeps that end before values have settled, take one
block of threads for each grid, which lies in shared memory with a border around it that saves the looking at edges.
Nothing waits for the GPU, and every sum has one order: the same inputs give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, cast

import numpy as np
import torch
from numba import cuda as numba_cuda
from numba import float32, int32
from torch import Tensor

from scramjet.compile.cuda import cuda_arrays
from scramjet.compile.fingerprint import function_fingerprint
from scramjet.compile.numba_internals import keep_cuda_on_disk
from scramjet.errors import ConfigError

cuda: Any = numba_cuda  # to a type checker its functions are not those that kernels call

ROW_THREADS = 64
"""Threads in a block of the kernels for small grids; warps do not wait for each other."""
MAX_THREADS = 256
"""Threads in a block; where a grid has more cells, each thread takes several."""
SHARED_BYTES = 48 * 1024
"""Bytes of shared memory that every GPU gives a block."""
BYTES_PER_CELL = 12
"""Bytes of shared memory for each cell: three numbers of four bytes, in both kernels."""
NOTHING = -1e30
"""The value of the border, so low that no cell takes its value from there."""
NEVER = 1 << 30
"""Stands for the turn of a cell that is not done yet."""


def sweep(reward: Tensor, passes: Tensor, max_sweeps: int, value: Tensor) -> None:
    """Write the values after at most `max_sweeps` of the CPU's sweeps; all [B, H, W]."""
    _, height, width = reward.shape
    if fits_rows(height, width) and max_sweeps >= height * width:  # enough for values to settle, in whatever order
        kernel, max_rounds = sweep_kernel(height, width), max_sweeps * height
        _launch_rows(kernel, (height, width), reward, passes, max_rounds, value)
    else:
        _launch_grids(_sweep_grid, (height, width), min(height, width), reward, passes, max_sweeps, value)


def route_back(
    reward: Tensor, passes: Tensor, value: Tensor, grad: Tensor, to_reward: Tensor, to_passes: Tensor
) -> None:
    """Write the gradients of rewards and shares, as the CPU does up to the order of sums; all [B, H, W]."""
    _, height, width = reward.shape
    arguments = (reward, passes, value, grad, to_reward, to_passes)
    if fits_rows(height, width):
        _launch_rows(route_back_kernel(height, width), (height, width), *arguments)
    else:
        _launch_grids(_route_grid_back, (height, width), _bordered(height, width), *arguments)


def _bordered(height: int, width: int) -> int:
    return (height + 2) * (width + 2)


def _launch_rows(kernel: Kernel, size: tuple[int, int], *arguments: Any) -> None:
    """Run a kernel of small grids: a thread for each row, and no grid in two warps."""
    warps = -(-len(arguments[0]) // (WARP // size[0]))
    _launch(kernel, -(-warps * WARP // ROW_THREADS), ROW_THREADS, 0, arguments)


def _launch_grids(kernel: Kernel, size: tuple[int, int], num_threads: int, *arguments: Any) -> None:
    """Run a kernel with a block for each grid of `size`, of about so many threads."""
    shared_bytes = _bordered(*size) * BYTES_PER_CELL
    if shared_bytes > SHARED_BYTES:
        raise ConfigError(
            f"policy.encoder='value_propagation' plans on the GPU on grids of up to {SHARED_BYTES // BYTES_PER_CELL} "
            f"cells with their border, and this one is {size[0]} x {size[1]}; use --device cpu, or another "
            f"--policy.encoder"
        )
    block = min(MAX_THREADS, -(-num_threads // WARP) * WARP)
    _launch(kernel, len(arguments[0]), block, shared_bytes, arguments)


def _launch(kernel: Kernel, num_blocks: int, block: int, shared_bytes: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel on torch's current stream."""
    assert arguments[0].dtype == torch.float32
    if num_blocks > 0:
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        _compiled(kernel)[num_blocks, block, stream, shared_bytes](*cuda_arrays(arguments))


@cache
def _compiled(kernel: Kernel) -> Any:
    dispatcher = cuda.jit(kernel)
    keep_cuda_on_disk(dispatcher, function_fingerprint(cast(FunctionType, kernel)), kernel.__name__)
    return dispatcher


def _sweep_grid(reward: np.ndarray, passes: np.ndarray, max_sweeps: int, value: np.ndarray) -> None:
    """Sweep in the CPU's order: cells of one diagonal do not see each other, so they are done at once.

    Stopped after `max_sweeps` the values are those of the CPU too.
    """
    grid, thread, num_threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    _, height, width = reward.shape
    stride = width + 2
    cells = (height + 2) * stride
    shared = cuda.shared.array(0, float32)
    v, p, own = shared[:cells], shared[cells : 2 * cells], shared[2 * cells : 3 * cells]
    for i in range(thread, cells, num_threads):
        y, x = i // stride - 1, i % stride - 1
        v[i] = NOTHING
        if 0 <= y < height and 0 <= x < width:
            v[i], p[i] = reward[grid, y, x], passes[grid, y, x]
            own[i] = (1 - p[i]) * v[i]
    cuda.syncthreads()
    for number in range(max_sweeps):
        moved = 0
        down, right = number % 2 == 0, number % 4 == 0 or number % 4 == 3
        for diagonal in range(height + width - 1):
            a = max(0, diagonal - width + 1) + thread
            while a < min(height, diagonal + 1):  # a range would divide to count its steps
                b = diagonal - a
                i = (a + 1 if down else height - a) * stride + (b + 1 if right else width - b)
                best = max(max(v[i - 1], v[i + 1]), max(v[i - stride], v[i + stride]))
                offered = p[i] * best + own[i]
                if offered > v[i]:
                    v[i] = offered
                    moved = 1
                a += num_threads
            cuda.syncthreads()
        if cuda.syncthreads_or(moved) == 0:
            break
    for i in range(thread, cells, num_threads):
        y, x = i // stride - 1, i % stride - 1
        if 0 <= y < height and 0 <= x < width:
            value[grid, y, x] = v[i]


def _route_grid_back(
    reward: np.ndarray, passes: np.ndarray, value: np.ndarray, grad: np.ndarray,
    to_reward: np.ndarray, to_passes: np.ndarray,
) -> None:  # fmt: skip
    """Turn by turn, every cell whose drawers are all done collects what they send, and is done.

    Cells look at what was done in earlier turns only, so it does not matter which thread comes first.
    """
    grid, thread, num_threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    _, height, width = reward.shape
    stride = width + 2
    cells = (height + 2) * stride
    whole_numbers = cuda.shared.array(0, int32)
    source, done_in = whole_numbers[:cells], whole_numbers[cells : 2 * cells]  # the turn in which a cell was done
    sent = cuda.shared.array(0, float32)[2 * cells : 3 * cells]  # to the source; the cell's own gradient until then
    for i in range(thread, cells, num_threads):
        y, x = i // stride - 1, i % stride - 1
        source[i], done_in[i] = -1, -1
        if 0 <= y < height and 0 <= x < width:
            done_in[i], sent[i] = NEVER, grad[grid, y, x]
            best = reward[grid, y, x]
            if value[grid, y, x] > best:  # ties go to the same neighbour as on the CPU
                if y > 0 and value[grid, y - 1, x] > best:
                    best, source[i] = value[grid, y - 1, x], i - stride
                if x < width - 1 and value[grid, y, x + 1] > best:
                    best, source[i] = value[grid, y, x + 1], i + 1
                if y < height - 1 and value[grid, y + 1, x] > best:
                    best, source[i] = value[grid, y + 1, x], i + stride
                if x > 0 and value[grid, y, x - 1] > best:
                    best, source[i] = value[grid, y, x - 1], i - 1
    cuda.syncthreads()
    turn = 0
    is_last, is_stuck = False, False
    while not is_last:
        moved = 0
        for i in range(thread, cells, num_threads):
            if done_in[i] != NEVER:
                continue
            pull, is_waiting = sent[i], False
            for side in range(4):
                n = i + (side - 1 if side % 2 == 0 else (side - 2) * stride)  # left, above, right, below
                if source[n] == i:
                    if done_in[n] < turn:
                        pull += sent[n]
                    else:
                        is_waiting = True
            if is_waiting and not is_stuck:
                continue
            moved = 1
            done_in[i] = turn
            y, x, j = i // stride - 1, i % stride - 1, source[i]
            if j < 0 or is_waiting:  # equal values that came from each other by rounding: here it ends
                to_reward[grid, y, x], to_passes[grid, y, x] = pull, 0
                continue
            p = passes[grid, y, x]
            to_reward[grid, y, x] = (1 - p) * pull
            to_passes[grid, y, x] = (value[grid, j // stride - 1, j % stride - 1] - reward[grid, y, x]) * pull
            sent[i] = p * pull
        turn += 1
        is_last = is_stuck
        is_stuck = cuda.syncthreads_or(moved) == 0


# --- kernels of `value_propagation` for small grids on the GPU: a thread holds a row of a grid in registers
#
# A warp takes as many grids as it has lanes for their rows. Values and gradients run along a row within a thread, and
# from row to row by shuffles: there is no shared memory and no barrier. A kernel is compiled for one size of grids, so
# that loops over a row are unrolled and its arrays stay in registers.


WARP = 32
ALL_LANES = 0xFFFFFFFF
LONGEST_ROW = 16
"""Cells of a row that fit into registers: the way back holds ten numbers for each."""
NOWHERE, ABOVE, RIGHT, BELOW, LEFT = range(5)
"""Where the value of a cell came from."""

Kernel = Callable[..., None]


def fits_rows(height: int, width: int) -> bool:
    """Whether grids of this size go through these kernels."""
    return 2 <= height <= WARP and width <= LONGEST_ROW


@cache
def sweep_kernel(height: int, width: int) -> Kernel:
    """The kernel that writes settled values: its arguments are rewards, shares, the most rounds, and values.

    A round offers every cell the values above and below it from before the round, then those to the left, then those
    to the right, so `height` rounds reach at least what a sweep of the CPU does. Offers grow with the values that they
    are made from: once nothing changes, values are the same bits in whatever order cells were visited.
    """
    per_warp = WARP // height

    def sweep_rows(reward: np.ndarray, passes: np.ndarray, max_rounds: int, value: np.ndarray) -> None:
        lane = cuda.threadIdx.x % WARP
        row, grid = lane % height, cuda.blockIdx.x * (cuda.blockDim.x // WARP) + cuda.threadIdx.x // WARP
        grid = grid * per_warp + lane // height
        is_row = lane < per_warp * height and grid < len(reward)
        above, below = lane, lane  # lanes that hold the rows above and below; at the rim both are the only neighbour
        v = cuda.local.array(width, float32)
        p = cuda.local.array(width, float32)
        own = cuda.local.array(width, float32)
        for x in range(width):
            v[x] = p[x] = own[x] = 0
        if is_row:
            above = lane - 1 if row > 0 else lane + 1
            below = lane + 1 if row < height - 1 else lane - 1
            for x in range(width):
                v[x] = reward[grid, row, x]
                p[x] = passes[grid, row, x]
                own[x] = (1 - p[x]) * v[x]
        for _ in range(max_rounds):
            moved = False
            for x in range(width):
                best = max(cuda.shfl_sync(ALL_LANES, v[x], above), cuda.shfl_sync(ALL_LANES, v[x], below))
                offered = p[x] * best + own[x]
                moved |= offered > v[x]
                v[x] = max(v[x], offered)
            for x in range(1, width):
                offered = p[x] * v[x - 1] + own[x]
                moved |= offered > v[x]
                v[x] = max(v[x], offered)
            for x in range(width - 2, -1, -1):
                offered = p[x] * v[x + 1] + own[x]
                moved |= offered > v[x]
                v[x] = max(v[x], offered)
            if not cuda.any_sync(ALL_LANES, moved):
                break
        if is_row:
            for x in range(width):
                value[grid, row, x] = v[x]

    return sweep_rows


@cache
def route_back_kernel(height: int, width: int) -> Kernel:
    """The kernel that writes gradients, with the arguments of `value_propagation.route_back`.

    Cells make a forest, see there. In a round every cell adds up what is sent to it: its own gradient, then what comes
    from above, below, left and right, in this order. Along a row all of it arrives in the round, from row to row in
    the next; once no row sends anything else than before, all sums are those of the forest.
    """
    per_warp = WARP // height

    def route_rows_back(
        reward: np.ndarray, passes: np.ndarray, value: np.ndarray, grad: np.ndarray,
        to_reward: np.ndarray, to_passes: np.ndarray,
    ) -> None:  # fmt: skip
        lane = cuda.threadIdx.x % WARP
        row, grid = lane % height, cuda.blockIdx.x * (cuda.blockDim.x // WARP) + cuda.threadIdx.x // WARP
        grid = grid * per_warp + lane // height
        is_row = lane < per_warp * height and grid < len(reward)
        above, below = lane, lane  # in a ring: what the first row sends up and the last one down is 0
        v = cuda.local.array(width, float32)
        gain = cuda.local.array(width, float32)  # value of the source over the cell's reward; 0 where there is none
        share = cuda.local.array(width, float32)
        pull = cuda.local.array(width, float32)
        own = cuda.local.array(width, float32)
        source = cuda.local.array(width, int32)
        for x in range(width):
            v[x] = gain[x] = share[x] = own[x] = 0
            source[x] = NOWHERE
        if is_row:
            above = lane - 1 if row > 0 else lane + height - 1
            below = lane + 1 if row < height - 1 else lane - height + 1
            for x in range(width):
                v[x], gain[x] = value[grid, row, x], reward[grid, row, x]
                share[x], own[x] = passes[grid, row, x], grad[grid, row, x]
        for x in range(width):
            up, down = cuda.shfl_sync(ALL_LANES, v[x], above), cuda.shfl_sync(ALL_LANES, v[x], below)
            least = gain[x]
            best = least
            if v[x] > least:  # ties go to the same neighbour as on the CPU
                if row > 0 and up > best:
                    best, source[x] = up, ABOVE
                if x < width - 1 and v[x + 1] > best:
                    best, source[x] = v[x + 1], RIGHT
                if row < height - 1 and down > best:
                    best, source[x] = down, BELOW
                if x > 0 and v[x - 1] > best:
                    best, source[x] = v[x - 1], LEFT
            gain[x] = best - least
        # Equal values may have come from each other by rounding: both end there, as on the CPU. There are no longer
        # circles: all values of one would be equal, and its lowest row would have to lead up at both of its ends.
        for x in range(width):
            over, under = cuda.shfl_sync(ALL_LANES, source[x], above), cuda.shfl_sync(ALL_LANES, source[x], below)
            if (source[x] == ABOVE and over == BELOW) or (source[x] == BELOW and under == ABOVE):
                source[x] = NOWHERE
        for x in range(width - 1):
            if source[x] == RIGHT and source[x + 1] == LEFT:
                source[x] = source[x + 1] = NOWHERE
        up_share = cuda.local.array(width, float32)
        right_share = cuda.local.array(width, float32)
        down_share = cuda.local.array(width, float32)
        left_share = cuda.local.array(width, float32)
        sent_up = cuda.local.array(width, float32)
        sent_down = cuda.local.array(width, float32)
        for x in range(width):
            up_share[x] = share[x] if source[x] == ABOVE else float32(0)
            right_share[x] = share[x] if source[x] == RIGHT else float32(0)
            down_share[x] = share[x] if source[x] == BELOW else float32(0)
            left_share[x] = share[x] if source[x] == LEFT else float32(0)
            sent_up[x] = sent_down[x] = 0
            if source[x] == NOWHERE:
                share[x] = gain[x] = 0
        for _ in range(height * width):
            moved = False
            for x in range(width):
                from_above = cuda.shfl_sync(ALL_LANES, sent_down[x], above)
                from_below = cuda.shfl_sync(ALL_LANES, sent_up[x], below)
                pull[x] = own[x] + from_above + from_below
            for x in range(1, width):
                pull[x] += right_share[x - 1] * pull[x - 1]
            for x in range(width - 2, -1, -1):
                pull[x] += left_share[x + 1] * pull[x + 1]
            for x in range(width):
                up, down = up_share[x] * pull[x], down_share[x] * pull[x]
                moved |= up != sent_up[x]
                moved |= down != sent_down[x]
                sent_up[x], sent_down[x] = up, down
            if not cuda.any_sync(ALL_LANES, moved):
                break
        if is_row:
            for x in range(width):
                to_reward[grid, row, x] = (1 - share[x]) * pull[x]
                to_passes[grid, row, x] = gain[x] * pull[x]

    return route_rows_back
