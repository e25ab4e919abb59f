"""Runs a numba-cuda kernel that uses shuffles and votes, but no shared memory, as Python: a thread for each lane."""

import threading
from types import SimpleNamespace

import numpy as np

WARP = 32


class Warp:
    """What kernels know as `cuda`, for the lanes of one warp. Lanes wait for each other at shuffles and votes only."""

    def __init__(self, number):
        self.local = SimpleNamespace(array=lambda size, dtype: np.full(size, 77, np.dtype(str(dtype))))
        self.blockDim, self.blockIdx = SimpleNamespace(x=WARP), SimpleNamespace(x=number)
        self._barrier = threading.Barrier(WARP, timeout=60)
        self._held = [None] * WARP
        self._own = threading.local()

    @property
    def threadIdx(self):  # noqa: N802
        return SimpleNamespace(x=self._own.lane)

    def shfl_sync(self, mask, number, lane):
        return self._exchange(mask, number, lambda held: held[lane])

    def any_sync(self, mask, flag):
        return self._exchange(mask, flag, any)

    def _exchange(self, mask, number, read):
        assert mask == 0xFFFFFFFF
        self._held[self._own.lane] = number
        self._barrier.wait()
        found = read(self._held)
        self._barrier.wait()
        return found

    def run(self, kernel, arguments):
        errors = []

        def as_lane(lane):
            self._own.lane = lane
            try:
                kernel(*arguments)
            except Exception as error:
                errors.append(error)
                self._barrier.abort()

        lanes = [threading.Thread(target=as_lane, args=(lane,)) for lane in range(WARP)]
        for each in lanes:
            each.start()
        for each in lanes:
            each.join()
        if errors:
            raise errors[0]
