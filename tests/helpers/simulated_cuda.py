"""A stand-in for Numba's CUDA module: kernels run as plain Python, a block at a time, with a Python thread for each of
its threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
from numba.np.numpy_support import as_dtype


class SimulatedCuda:
    """What kernels name `cuda`; `run` launches one."""

    def __init__(self):
        self._thread = threading.local()
        self._lock = threading.Lock()
        self.shared = SimpleNamespace(array=self._shared_array)
        self.atomic = SimpleNamespace(add=self._atomic_add)

    threadIdx = property(lambda self: self._thread.place)  # noqa: N815 - Numba's names
    blockIdx = property(lambda self: SimpleNamespace(x=self._block))  # noqa: N815
    blockDim = property(lambda self: self._size)  # noqa: N815

    def run(self, kernel, grid, block, *arguments, shared_bytes=0):
        """Run `grid` blocks of (x, y) threads with so many bytes of dynamic shared memory."""
        width, height = block
        self._size = SimpleNamespace(x=width, y=height)
        for self._block in range(grid):
            self._barrier = threading.Barrier(width * height)
            self._static, self._dynamic = {}, np.full(shared_bytes, 255, np.uint8)
            self._errors = []
            places = [SimpleNamespace(x=x, y=y) for y in range(height) for x in range(width)]
            threads = [threading.Thread(target=self._work, args=(kernel, place, arguments)) for place in places]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self._errors:
                raise self._errors[0]

    def _work(self, kernel, place, arguments):
        self._thread.place, self._thread.num_arrays = place, 0
        try:
            kernel(*arguments)
        except threading.BrokenBarrierError:
            pass  # another thread failed
        except BaseException as error:
            self._errors.append(error)
            self._barrier.abort()

    def syncthreads(self):
        self._barrier.wait(timeout=60)

    def _shared_array(self, shape, dtype):
        """Arrays of one block: each call in the kernel's text makes one, and all of shape 0 are the same memory."""
        dtype = as_dtype(dtype)
        if shape == 0:
            return self._dynamic[: len(self._dynamic) // dtype.itemsize * dtype.itemsize].view(dtype)
        self._thread.num_arrays += 1
        with self._lock:
            return self._static.setdefault(self._thread.num_arrays, np.zeros(shape, dtype))

    def _atomic_add(self, array, index, value):
        with self._lock:
            before = array[index].item()
            array[index] += value
        return before
