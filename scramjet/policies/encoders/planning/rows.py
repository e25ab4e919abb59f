"""Kernels of `value_propagation` for small grids on the GPU: a thread holds a row of a grid in registers.

A warp takes as many grids as it has lanes for their rows. Values and gradients run along a row within a thread, and
from row to row by shuffles: there is no shared memory and no barrier. A kernel is compiled for one size of grids, so
that loops over a row are unrolled and its arrays stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cuda as numba_cuda
from numba import float32, int32

cuda: Any = numba_cuda  # to a type checker its functions are not those that kernels call

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
