"""What the CUDA back-end is made of, as far as it can be looked at without a GPU: its kernels as plain Python."""

import importlib.util
import threading
from types import SimpleNamespace

import numba
import numpy as np
import pytest
import torch
from numba.np.numpy_support import as_dtype

import scramjet
from scramjet.compile.cuda import require_cuda
from scramjet.engine import NativePool
from scramjet.engine.layout import clear_function, episode_dtype, leaf_layout, state_dtype
from scramjet.engine.trees import leaves, space_tree
from scramjet.engine.worlds import cuda, cuda_pool, kernels
from scramjet.engine.worlds.cpu import Record, Records, interpreted_rules
from scramjet.engine.worlds.cuda import MAX_SHARED_BYTES, plan, staged_row, staged_step
from scramjet.engine.worlds.cuda_pool import build_pick
from scramjet.engine.worlds.transitions import Compilers
from scramjet.envs import load_env, registrations, rng
from scramjet.errors import ConfigError


class SimulatedCuda:
    """A stand-in for Numba's module: kernels run as plain Python, a block at a time, with a Python thread for each of
    its threads. `run` launches one."""

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
                thread.join(120)
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


def test_the_generator_of_the_gpu_is_that_of_the_worlds():
    compiled = numba.njit(cuda.philox4x32)
    random = np.random.default_rng(0)
    for _ in range(500):
        words = [int(word) for word in random.integers(0, 2**32, 6)]
        assert tuple(int(word) for word in compiled(*words)) == rng.philox4x32(*words)
    known = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)  # Random123's kat_vectors
    assert tuple(compiled(0, 0, 0, 0, 0, 0)) == known


def test_what_a_block_stages_fits_and_keeps_its_layout():
    for name in (entry.name for entry in registrations()):
        env = load_env(name)
        staging, record = plan(env), state_dtype(env)
        spaces = leaves(space_tree(env.observation_space))
        staged = sum(np.prod(leaf_layout(spaces[k])[0]) * leaf_layout(spaces[k])[1].itemsize for k in staging.parts)
        assert staging.shared_bytes(staging.block) + staging.block * staged <= MAX_SHARED_BYTES, name
        if staging.record is not None:
            assert staging.words * 8 == record.itemsize, name
            assert (staging.record.itemsize // 8) % 2 == 1, name  # neighbours begin in different banks
            for field in record.names:
                assert staging.record.fields[field][:2] == record.fields[field][:2], name


OTHERS = [(name, threads) for name in ("cartpole", "squared", "snake", "maze", "connect_four") for threads in (1, 2, 8)]
CORE = [("cartpole", 2), ("connect_four", 8)]


@pytest.mark.parametrize(
    ("name", "threads"), [*CORE, *(pytest.param(*pair, marks=pytest.mark.rest) for pair in OTHERS if pair not in CORE)]
)
def test_a_step_by_way_of_shared_memory_is_the_step_of_the_interpreted_rules(name, threads):
    env, num_envs, envs = load_env(name), 11, 4
    pool = NativePool(env, num_envs, backend="interpreted")
    expected = pool.reset(3)
    staging, simulated = plan(env), SimulatedCuda()
    rules = interpreted_rules(env)
    as_is = Compilers(*[lambda function: function] * 4, shown_row=staged_row(env, staging, rules.row, simulated))
    step_env = kernels.build(rules, as_is).step_env

    def step_record(record, *arguments):
        step_env(Record(record, name), *arguments)

    kernel = staged_step(env, staging, step_record, simulated)
    states, out, log_size = pool.states(), pool.allocate(), np.zeros(2, np.int64)
    log = np.zeros(num_envs * pool.num_players + 1, episode_dtype(env))
    words = states.view(np.int64) if states.itemsize % 8 == 0 else None
    for tick in range(2):
        actions = expected.mask.argmax(1) if pool.mask_size else np.zeros(pool._action_shape, pool._action_dtype)
        arguments = (num_envs, np.zeros(1, np.int64), tick, states, words, actions, *out.arrays, False)
        shared_bytes = staging.shared_bytes(envs)
        simulated.run(kernel, 3, (threads, envs), *arguments, Records(log, name), log_size, shared_bytes=shared_bytes)
        expected = pool.step(actions)
    for field in states.dtype.names:
        np.testing.assert_array_equal(states[field], pool.states()[field])
    for found, wanted in zip(leaves(out.obs), leaves(expected.obs), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(out.reward, expected.reward)


def test_clearing_a_record_leaves_the_header_alone_and_nothing_else():
    for name in ("cartpole", "connect_four", "snake", "binpack", "maze"):
        env = load_env(name)
        record = np.zeros(1, state_dtype(env))
        record.view(np.uint8)[:] = 255
        before = record.copy()
        clear_function(env)(Records(record, name)[0])
        for field in record.dtype.names:
            if field in ("_seed", "_return", "_episode", "_draw", "_steps", "_index"):
                assert record[field].tobytes() == before[field].tobytes(), (name, field)
            else:
                assert not record[field].any(), (name, field)


def test_what_the_gpu_needs_or_cannot_is_told(monkeypatch):
    find = importlib.util.find_spec
    with pytest.raises(ConfigError, match="frame_stack=4 is the CPU's"):
        scramjet.make("cartpole", 4, backend="cuda", frame_stack=4)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match=r"needs a torch that was built for CUDA.*--device cpu"):
        require_cuda()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"needs an NVIDIA GPU and its driver.*nvidia-smi.*--device cpu"):
        scramjet.make("cartpole", 4, backend="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba_cuda" else find(name))
    with pytest.raises(ConfigError, match=r"needs numba-cuda.*pip install 'scramjet\[cuda\]'"):
        require_cuda()


NUM_READ, ROW_WORDS, THREADS = 20, 5, 8


def pick(log, num_logged, num_players, num_places):
    """What the kernel writes: the number of episodes that ended, and rows."""
    simulated = SimulatedCuda()
    kernel = build_pick(simulated, lambda function: function)
    picked = np.full(1 + NUM_READ * ROW_WORDS, -1, np.int64)
    arguments = (num_logged, log.ravel(), picked, len(log) - 1, ROW_WORDS, num_players, num_places)
    simulated.run(kernel, 1, (THREADS, 1), THREADS, *arguments)
    return int(picked[0]), picked[1:].reshape(NUM_READ, ROW_WORDS)


def play(random, num_envs, num_players, share_ended, num_steps):
    """A log as envs write it, all that was ever written to it [E, words], and the counter."""
    num_places = num_envs * num_players
    log, every = np.zeros((num_places + NUM_READ + 1, ROW_WORDS), np.int64), []
    for tick in range(100, 100 + num_steps):
        ended = random.permutation(num_places)[: random.binomial(num_places, share_ended)]
        for place in ended:
            row = (tick, place // num_players, place % num_players, random.integers(1 << 40), random.integers(1 << 40))
            log[len(every) % (len(log) - 1)] = row
            every.append(row)
    return log, np.array(every, np.int64).reshape(len(every), ROW_WORDS), np.array([len(every)])


def test_the_newest_episodes_are_those_that_a_sort_of_all_of_them_gives(monkeypatch):
    monkeypatch.setattr(cuda_pool, "MAX_EPISODES_READ", NUM_READ)
    for num_envs, num_players, share_ended, num_steps in (
        (5, 1, 0.0, 3),  # none
        (30, 1, 0.1, 4),  # all are read
        (30, 1, 0.5, 4),  # the newest, of a log that is not full
        (7, 3, 0.4, 50),  # written over several times
        (700, 1, 0.5, 3),  # places have two digits
        (300, 2, 1.0, 2),  # all end at once
    ):
        log, every, num_logged = play(np.random.default_rng(num_envs), num_envs, num_players, share_ended, num_steps)
        num_ended, rows = pick(log, num_logged, num_players, num_envs * num_players)
        newest = every[np.lexsort(every[:, 2::-1].T)][-NUM_READ:]
        assert (num_ended, num_logged[0], len(newest)) == (len(every), 0, min(num_ended, NUM_READ))
        rows = rows[: len(newest)]
        about = f"{num_envs} envs, {share_ended} ended"
        np.testing.assert_array_equal(rows[np.lexsort(rows[:, 2::-1].T)], newest, err_msg=about)


def test_which_episodes_of_a_step_are_read_does_not_depend_on_their_rows(monkeypatch):
    monkeypatch.setattr(cuda_pool, "MAX_EPISODES_READ", NUM_READ)
    log, every, _ = play(np.random.default_rng(1), 40, 1, 1.0, 1)
    shuffled = log.copy()
    shuffled[: len(every)] = np.random.default_rng(2).permutation(every)
    found = [pick(each, np.array([len(every)]), 1, 40)[1] for each in (log, shuffled)]
    np.testing.assert_array_equal(*(each[each[:, 1].argsort()] for each in found))
