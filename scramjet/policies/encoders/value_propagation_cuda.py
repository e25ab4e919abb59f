"""Planning on grids, on the GPU: the sweeps of `value_propagation` and the way back, one block of threads a grid.

Imported when tensors are on the GPU. A grid lies in shared memory, with a border around it that saves the looking at
edges. Nothing waits for the GPU, and every sum has one order: the same inputs give the same bits.
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

WARP = 32
MAX_THREADS = 256
"""In a block; where a grid has more cells, each thread takes several."""
SHARED_BYTES = 48 * 1024
"""What every GPU gives a block."""
BYTES_PER_CELL = 12
"""Three numbers of four bytes, in both kernels."""
NOTHING = -1e30
"""The value of the border: no cell draws from it."""
NEVER = 1 << 30
"""The turn of a cell that is not done."""


def sweep(reward: Tensor, passes: Tensor, max_sweeps: int, value: Tensor) -> None:
    """Write the settled values, as the CPU's sweeps do; all [B, H, W]."""
    _, height, width = reward.shape
    _launch(_sweep_grid, (height, width), min(height, width), reward, passes, max_sweeps, value)


def route_back(
    reward: Tensor, passes: Tensor, value: Tensor, grad: Tensor, to_reward: Tensor, to_passes: Tensor
) -> None:
    """Write the gradients of rewards and shares, as the CPU does up to the order of sums; all [B, H, W]."""
    _, height, width = reward.shape
    num_threads = _bordered(height, width)
    _launch(_route_grid_back, (height, width), num_threads, reward, passes, value, grad, to_reward, to_passes)


def _bordered(height: int, width: int) -> int:
    return (height + 2) * (width + 2)


def _launch(kernel: Callable[..., None], size: tuple[int, int], num_threads: int, *arguments: Any) -> None:
    """Run a kernel on torch's current stream: a block for each grid of `size`, of about so many threads."""
    num_grids, shared_bytes = len(arguments[0]), _bordered(*size) * BYTES_PER_CELL
    assert arguments[0].dtype == torch.float32
    if shared_bytes > SHARED_BYTES:
        raise ConfigError(
            f"policy.encoder='value_propagation' plans on the GPU on grids of up to {SHARED_BYTES // BYTES_PER_CELL} "
            f"cells with their border, and this one is {size[0]} x {size[1]}; use --device cpu, or another "
            f"--policy.encoder"
        )
    if num_grids == 0:
        return
    block = min(MAX_THREADS, -(-num_threads // WARP) * WARP)
    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    _compiled(kernel)[num_grids, block, stream, shared_bytes](*cuda_arrays(arguments))


@cache
def _compiled(kernel: Callable[..., None]) -> Any:
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
