"""Hashes of observations, to tell whether one has been seen before: the same on the CPU and the GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.jit import RowKernel


def observation_keys(parts: Sequence[Tensor], num_axes: int) -> Tensor:
    """A hash of each observation, int64 and never negative; equal for equal observations.

    parts: the tensors of the observations, [*L, *shape] each, of any number type; L are the first `num_axes` axes, and
    the result is [*L]. Numbers are compared bit by bit, except that -0.0 is 0.0. Two of a million different
    observations share a hash with a probability of 5e-8.
    """
    keys = torch.zeros(parts[0].shape[:num_axes], dtype=torch.int64, device=parts[0].device)
    for part in parts:
        rows = _bytes_of(part, num_axes)
        _absorb.on(len(rows), rows, keys.view(-1))
    return keys


def _bytes_of(part: Tensor, num_axes: int) -> Tensor:
    """The bytes of each observation, uint8 [rows, bytes]."""
    part = part.detach()
    positive = part + 0.0 if part.is_floating_point() else part  # -0.0 + 0.0 is 0.0
    return positive.contiguous().view(part.shape[:num_axes].numel(), -1).view(torch.uint8)


_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_POSITIVE = np.uint64(2**63 - 1)


@RowKernel
def _absorb(start: int, stop: int, content: np.ndarray, keys: np.ndarray) -> None:
    """Mix the bytes [rows, K] of rows start to stop into their `keys` [rows], eight at a time (splitmix64)."""
    size = content.shape[1]
    for row in range(start, stop):
        state = np.uint64(keys[row])
        for first in range(0, size, 8):
            word = np.uint64(0)
            if first + 8 <= size:
                for place in range(8):  # unrolled by the compiler
                    word |= np.uint64(content[row, first + place]) << np.uint64(8 * place)
            else:
                for place in range(size - first):
                    word |= np.uint64(content[row, first + place]) << np.uint64(8 * place)
            state = (state ^ word) + _STEP
            state = (state ^ (state >> np.uint64(30))) * _FIRST
            state = (state ^ (state >> np.uint64(27))) * _SECOND
            state = state ^ (state >> np.uint64(31))
        keys[row] = np.int64(state & _POSITIVE)
