"""Machine code that calls machine code by its address."""

import numpy as np

from scramjet.compile.addresses import AddressedFunction, Task, call, doubles, flags, floats, record_at, words

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
        assert numbers.tolist() == [2 * (i + 1) for i in range(10)]
        assert task.record["done"] == 7.0


def test_copies_of_a_task_are_tasks_of_their_own():
    first, second = np.zeros(3, np.float32), np.ones(3, np.float32)
    one, other = make_task(first).copies(2)
    other.set(numbers=second, factor=2.0)
    work_on_part.in_parts(1, one.address)
    work_on_part.in_parts(1, other.address)
    assert first.tolist() == [2, 2, 2]
    assert second.tolist() == [6, 6, 6]


def test_a_task_keeps_its_arrays_alive_and_takes_nothing_for_zero():
    task = Task(TASK)
    task.set(numbers=np.ones(1000, np.float32), size=1000, function=double.address)
    np.zeros((50, 1000))
    work_on_part.in_parts(2, task.address)
    assert task.record["numbers"] != 0
    task.set(numbers=None)
    assert task.record["numbers"] == 0
    task.set(numbers=np.zeros(0, np.float32))
    assert task.record["numbers"] == 0


def test_numbers_of_each_kind_are_read_and_written_at_their_address():
    memory = np.zeros(3, np.int64)
    kinds(memory.ctypes.data)
    assert memory[0] == 1
    assert memory[1:2].view(np.float64)[0] == 0.5
    assert memory[2] == 1
