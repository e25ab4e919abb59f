"""Kernels over rows, and the threads that Numba and torch share."""

import subprocess
import sys

import numpy as np
import pytest

from scramjet.engine.jit import ROWS_PER_BLOCK, RowKernel


@RowKernel
def scale(start, stop, factor, numbers):
    for row in range(start, stop):
        numbers[row] = numbers[row] * factor + row


@pytest.mark.parametrize("rows", [0, 1, ROWS_PER_BLOCK, 5 * ROWS_PER_BLOCK + 3])
@pytest.mark.parametrize("start", [0, 7])
def test_threads_do_each_row_once_and_no_other(rows, start):
    stop = start + rows
    numbers = np.random.default_rng(0).normal(size=(stop + 9, 3))
    expected, alone = numbers.copy(), numbers.copy()
    expected[start:stop] = expected[start:stop] * 3.0 + np.arange(start, stop)[:, None]
    scale.alone(start, stop, 3.0, alone)
    scale.threaded(start, stop, 3.0, numbers)
    np.testing.assert_array_equal(alone, numbers)
    np.testing.assert_allclose(numbers, expected, rtol=1e-12)


KEEPS_ITS_NUMBER = """
import numpy as np, torch
from scramjet.engine.jit import RowKernel

torch.set_num_threads({threads})
{use}
assert torch.get_num_threads() == {threads}, torch.get_num_threads()
"""
POOL = """
import scramjet
pool = scramjet.make("cartpole", 600, num_threads=2)
pool.reset(0)
pool.step(np.zeros(600, np.int64))
"""
KERNEL = """
@RowKernel
def double(start, stop, numbers):
    for row in range(start, stop):
        numbers[row] *= 2
double.threaded(0, 100, np.ones(100))
"""
SET_THREADS = "from scramjet.runtime.devices import set_threads; set_threads({threads})"


@pytest.mark.parametrize("use", [POOL, KERNEL, SET_THREADS], ids=["pool", "kernel", "set_threads"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_torch_keeps_its_number_of_threads_whatever_starts_those_of_numba(use, threads):
    source = KEEPS_ITS_NUMBER.format(threads=threads, use=use.format(threads=threads))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
