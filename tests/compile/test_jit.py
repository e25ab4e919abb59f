"""Compiled functions: rows on threads that Numba and torch share, calls by address, and who compiles what now."""

import numpy as np
import pytest

from scramjet.compile import progress as compiling
from scramjet.compile.addresses import AddressedFunction, Task, call, doubles, flags, floats, record_at, words
from scramjet.compile.jit import ROWS_PER_BLOCK, AdaptiveThreading, RowKernel, compiled
from scramjet.engine import NativePool
from scramjet.errors import WorldError
from tests.helpers.pool_worlds import Counter
from tests.helpers.processes import run_python


@RowKernel
def scale(start, stop, factor, numbers):
    for row in range(start, stop):
        numbers[row] = numbers[row] * factor + row  # one number: a slice would take long to compile


def test_threads_do_each_row_once_and_no_other():
    for start, rows in [(start, rows) for start in (0, 7) for rows in (0, 1, ROWS_PER_BLOCK, 5 * ROWS_PER_BLOCK + 3)]:
        stop = start + rows
        numbers = np.random.default_rng(0).normal(size=stop + 9)
        expected, alone = numbers.copy(), numbers.copy()
        expected[start:stop] = expected[start:stop] * 3.0 + np.arange(start, stop)
        scale.alone(start, stop, 3.0, alone)
        scale.threaded(start, stop, 3.0, numbers)
        np.testing.assert_array_equal(alone, numbers)
        np.testing.assert_allclose(numbers, expected, rtol=1e-12, err_msg=f"{rows} rows from {start}")


EACH_IN_A_FORK = """
import os, sys
import numpy as np, torch

for use, threads in CASES:
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
KERNEL = "from tests.compile.test_jit import scale; scale.threaded(0, 100, 3.0, np.ones(100))"
SET_THREADS = "from scramjet.runtime.devices import set_threads; set_threads(threads)"


def test_torch_keeps_its_number_of_threads_whatever_starts_those_of_numba():
    """In processes in which nothing has started any; one loads torch for all."""
    cases = [(POOL, 1), (POOL, 3), (KERNEL, 2), (SET_THREADS, 3)]
    run_python(EACH_IN_A_FORK.replace("CASES", repr(cases)))


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


def test_work_that_only_varies_and_long_work_on_a_busy_machine_stay_on_threads():
    for took in ((1e-4, 9e-4, 2e-4, 8e-3, 1e-4, 8e-3, 1e-4), (0.1, 0.2, 0.25, 0.2)):  # a long one now and then
        clock = Clock()
        pays = AdaptiveThreading(clock)
        for seconds in took:
            clock.threads_take = seconds
            assert clock.work(pays, 1) == 0, took


# --- machine code that calls machine code by its address


TASK = np.dtype(
    [("numbers", np.int64), ("size", np.int64), ("function", np.int64), ("factor", np.float64), ("done", np.float64)]
)
_task = record_at(TASK)


@AddressedFunction
def double(address, index):
    floats(address, index + 1)[index] *= 2


@AddressedFunction
def work_on_part(part, num_parts, address):
    task = _task(address)
    numbers = floats(task.numbers, task.size)
    for i in range(task.size * part // num_parts, task.size * (part + 1) // num_parts):
        numbers[i] += task.factor
        call(task.function, (task.numbers, i))
    if part == 0:
        task.done = 7.0


@AddressedFunction
def kinds(address):
    words(address, 1)[0] += 1
    doubles(address + 8, 1)[0] += 0.5
    flags(address + 16, 1)[0] = not flags(address + 16, 1)[0]


def make_task(numbers, factor=1.0):
    task = Task(TASK)
    task.set(numbers=numbers, size=len(numbers), function=double.address, factor=factor)
    return task


def test_parts_on_threads_do_together_what_one_does_and_can_write_to_the_task():
    for num_parts in (1, 2, 3):
        numbers = np.arange(10, dtype=np.float32)
        task = make_task(numbers)
        work_on_part.in_parts(num_parts, task.address)
        assert numbers.tolist() == [2 * (i + 1) for i in range(10)], num_parts
        assert task.record["done"] == 7.0


def test_copies_of_a_task_are_tasks_of_their_own():
    first, second = np.zeros(3, np.float32), np.ones(3, np.float32)
    one, other = make_task(first).copies(2)
    other.set(numbers=second, factor=2.0)
    for each in (one, other):
        work_on_part.in_parts(1, each.address)
    assert (first.tolist(), second.tolist()) == ([2, 2, 2], [6, 6, 6])


def test_a_task_keeps_its_arrays_alive_and_takes_nothing_for_zero():
    task = make_task(np.ones(1000, np.float32))
    np.zeros((50, 1000))
    work_on_part.in_parts(2, task.address)
    assert task.record["numbers"] != 0
    for nothing in (None, np.zeros(0, np.float32)):
        task.set(numbers=nothing)
        assert task.record["numbers"] == 0


def test_numbers_of_each_kind_are_read_and_written_at_their_address():
    memory = np.zeros(3, np.int64)
    kinds(memory.ctypes.data)
    assert (memory[0], memory[1:2].view(np.float64)[0], memory[2]) == (1, 0.5, 1)


# --- progress


@pytest.fixture
def heard():
    """What a listener was told."""
    told = []
    with compiling.heard_by(told.append):
        yield told


def test_a_function_is_told_while_it_is_compiled_and_not_when_it_comes_from_the_cache(heard, monkeypatch, tmp_path):
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "cache"))

    def twice(number):
        return 2 * number

    seconds = [compiling.seconds()]
    for _ in range(2):
        compiled(twice)(3)
        assert heard == ["functions for acting and learning", None]
        seconds.append(compiling.seconds())
    assert seconds[0] < seconds[1] == seconds[2]


def test_rules_that_cannot_be_compiled_are_not_told_for_ever(heard):
    broken = type("Broken", (Counter,), {"step": lambda self, s, action: (0.0, {"unknown": set()} == s.count)})
    with pytest.raises(WorldError):
        NativePool(broken(), num_envs=1).prepare()
    assert (heard[0], heard[-1]) == ("Broken's rules", None)


def test_the_outer_function_is_told_again_when_the_one_it_needs_is_done(heard):
    with compiling.compilation("outer"), compiling.compilation("inner"):
        pass
    assert heard == ["outer", "inner", "outer", None]
