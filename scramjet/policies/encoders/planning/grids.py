"""The kernels of `value_propagation` for the GPU, forward and backward; imported when tensors are there.

Small grids go through the kernels of `rows`. Larger ones, and sweeps that end before values have
settled, take one block of threads for each grid, which lies in shared memory with a border around it that saves the
looking at edges. Nothing waits for the GPU, and every sum has one order: the same inputs give the same bits.
"""

from __future__ import annotations

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
from scramjet.policies.encoders.planning.rows import (
    WARP,
    Kernel,
    fits_rows,
    route_back_kernel,
    sweep_kernel,
)

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
