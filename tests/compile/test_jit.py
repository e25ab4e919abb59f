"""Kernels over rows, and the threads that Numba and torch share."""

import subprocess
import sys

import numpy as np
import pytest

from scramjet.compile.jit import ROWS_PER_BLOCK, AdaptiveThreading, RowKernel


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


EACH_IN_A_FORK = """
import os, sys
import numpy as np, torch
from scramjet.compile.jit import AdaptiveThreading, RowKernel

for use, threads in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    child = os.fork()
    if not child:
        torch.set_num_threads(threads)
        exec(use)
        assert torch.get_num_threads() == threads, (use, torch.get_num_threads())
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
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
SET_THREADS = "from scramjet.runtime.machine.devices import set_threads; set_threads(threads)"


def test_torch_keeps_its_number_of_threads_whatever_starts_those_of_numba():
    """In processes in which nothing has started any; one loads torch for all."""
    cases = [POOL, "1", POOL, "3", KERNEL, "2", SET_THREADS, "3"]
    done = subprocess.run([sys.executable, "-c", EACH_IN_A_FORK, *cases], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Clock:
    """Time that passes only when work takes some."""

    def __init__(self):
        self.now, self.done, self.threads_take = 0.0, [], 1e-4

    def __call__(self):
        return self.now

    def threaded(self):
        self.now += self.threads_take
        self.done.append("threads")

    def alone(self):
        self.now += 2e-4
        self.done.append("alone")

    def work(self, pays, times):
        self.done.clear()
        for _ in range(times):
            pays(self.threaded, self.alone)
        return self.done.count("alone") / times


def test_threads_that_are_slow_to_come_are_left_alone_for_a_while_and_tried_again():
    clock = Clock()
    pays = AdaptiveThreading(clock)
    assert clock.work(pays, 100) == 0
    clock.threads_take = 8e-3  # somebody else is at work
    assert clock.work(pays, 10_000) > 0.99
    clock.threads_take = 1e-4
    clock.now += AdaptiveThreading.PAUSE
    assert clock.work(pays, 100) == 0


def test_work_that_only_varies_stays_on_threads():
    clock = Clock()
    pays = AdaptiveThreading(clock)
    for seconds in (1e-4, 9e-4, 2e-4, 8e-3, 1e-4, 8e-3, 1e-4):  # now and then a long one is no sign
        clock.threads_take = seconds
        assert clock.work(pays, 1) == 0


def test_long_work_on_a_busy_machine_stays_on_threads():
    clock = Clock()
    pays = AdaptiveThreading(clock)
    for seconds in (0.1, 0.2, 0.25, 0.2):
        clock.threads_take = seconds
        assert clock.work(pays, 1) == 0
