"""Reading the log of finished episodes from the GPU: one kernel picks the newest, one copy brings them to the CPU.

Envs log at the same time, so which row an episode gets is chance among those of one step; rows of different steps are
in the order of steps. So only of the oldest step that is still read it must be decided which episodes count, and that
are those of the last envs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import numpy as np
import torch
from numba import int32
from torch import Tensor

from scramjet.compile.cuda import launch, numba_cuda
from scramjet.compile.fingerprint import function_fingerprint
from scramjet.compile.numba_internals import keep_cuda_on_disk

MAX_EPISODES_READ = 1024
"""Where more episodes have ended than this, only the newest ones are read, and all are counted."""
THREADS = 1024
DIGIT_BITS = 8
"""Bits that a pass over the episodes of one step decides of the lowest place that is read."""
NUM_DIGITS = 1 << DIGIT_BITS


class EpisodeReader:
    """Reads the newest episodes of a log on the GPU; `begin` does not wait for it, and `finish` does."""

    def __init__(self, log: Tensor, num_logged: Tensor, num_places: int, num_players: int) -> None:
        """`log` uint8 [C + 1, row size], rows as `episode_dtype` says, of which C are written in turn; `num_logged`
        int64 [1] counts the episodes, and is set back to 0 by each reading. In one step at most `num_places` episodes
        end, one of each player of each env. C must be at least MAX_EPISODES_READ more: then no row that may be read
        has been written over."""
        capacity, row_bytes = len(log) - 1, log.shape[1]
        assert capacity >= num_places + MAX_EPISODES_READ
        cuda = numba_cuda()
        self._row_words = row_bytes // 8
        self._picked = torch.zeros(1 + MAX_EPISODES_READ * self._row_words, dtype=torch.int64, device=log.device)
        self._here = torch.zeros_like(self._picked, device="cpu", pin_memory=True)
        self._is_here = torch.cuda.Event()
        self._has_begun = False
        words = log.view(torch.int64).flatten()
        arrays = [cuda.as_cuda_array(each) for each in (num_logged, words, self._picked)]
        self._arguments = (*arrays, capacity, self._row_words, num_players, num_places)
        self._kernel = cuda.jit(build_pick(cuda, cuda.jit(device=True)))
        keep_cuda_on_disk(self._kernel, _fingerprint, "pick")

    def begin(self) -> None:
        """Begin to read what is logged by now, on torch's current stream; does nothing if `finish` is due."""
        if self._has_begun:
            return
        launch(self._kernel, THREADS, *self._arguments, block=THREADS)
        self._here.copy_(self._picked, non_blocking=True)
        self._is_here.record()
        self._has_begun = True

    def forget(self) -> None:
        """Forget what `begin` read."""
        self._has_begun = False

    def finish(self) -> tuple[int, np.ndarray]:
        """How many episodes had ended, and the newest of them in any order, int64 [E, words of a row]: a copy."""
        self.begin()
        self._is_here.synchronize()
        self._has_begun = False
        here = self._here.numpy()
        num_ended = int(here[0])
        num_read = min(num_ended, MAX_EPISODES_READ)
        return num_ended, here[1 : 1 + num_read * self._row_words].reshape(num_read, self._row_words).copy()


def _fingerprint() -> str:
    return function_fingerprint(cast(FunctionType, build_pick))


def _first_since(words: Any, capacity: int, row_words: int, low: int, high: int, tick: int) -> int:
    """The first of episodes `low` to `high` that ended at `tick` or later; `high` if none did."""
    while low < high:
        middle = (low + high) // 2
        if words[middle % capacity * row_words] < tick:
            low = middle + 1
        else:
            high = middle
    return low


def build_pick(cuda: Any, compile_helper: Callable[..., Any]) -> Callable[..., None]:
    """The kernel that picks the newest episodes. Episode k, counted from 0, is in row k % capacity of the log."""
    first_since = compile_helper(_first_since)

    def pick(num_threads, num_logged, words, picked, capacity, row_words, num_players, num_places):  # type: ignore[no-untyped-def]
        """One block of threads: write how many episodes there are, then the rows of the newest; count anew."""
        me = cuda.threadIdx.x
        counts = cuda.shared.array(NUM_DIGITS, int32)  # of episodes, by the digit of their place
        num_chosen = cuda.shared.array(1, int32)  # of the oldest step that is read
        num_ended = num_logged[0]
        num_read = min(num_ended, MAX_EPISODES_READ)
        start = stop = num_ended - num_read  # episodes of the oldest step that is read only in part
        lowest = 0  # of their places: this one and those above are read
        if stop > 0:
            tick = words[stop % capacity * row_words]
            start = first_since(words, capacity, row_words, max(0, num_ended - capacity), stop, tick)
            stop = first_since(words, capacity, row_words, stop, num_ended, tick + 1)
            num_wanted = num_read - (num_ended - stop)
            shift = 0
            while (num_places - 1) >> (shift + DIGIT_BITS) > 0:
                shift += DIGIT_BITS
            while shift >= 0:
                cuda.syncthreads()
                for digit in range(me, NUM_DIGITS, num_threads):
                    counts[digit] = 0
                cuda.syncthreads()
                for k in range(start + me, stop, num_threads):
                    at = k % capacity * row_words
                    place = words[at + 1] * num_players + words[at + 2]
                    if place >> (shift + DIGIT_BITS) == lowest >> (shift + DIGIT_BITS):
                        cuda.atomic.add(counts, (place >> shift) & (NUM_DIGITS - 1), 1)
                cuda.syncthreads()
                digit = NUM_DIGITS - 1
                while digit > 0 and counts[digit] < num_wanted:
                    num_wanted -= counts[digit]
                    digit -= 1
                lowest |= digit << shift
                shift -= DIGIT_BITS
        if me == 0:
            num_chosen[0] = 0
        cuda.syncthreads()
        for k in range(start + me, num_ended, num_threads):
            at, target = k % capacity * row_words, k - stop
            if k < stop:
                if words[at + 1] * num_players + words[at + 2] < lowest:
                    continue
                target = num_ended - stop + cuda.atomic.add(num_chosen, 0, 1)
            for word in range(row_words):
                picked[1 + target * row_words + word] = words[at + word]
        if me == 0:
            picked[0] = num_ended
            num_logged[0] = 0

    return pick
