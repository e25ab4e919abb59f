"""What the CUDA back-end is made of, as far as it can be looked at without a GPU."""

from __future__ import annotations

import importlib.util

import numba
import numpy as np
import pytest
import torch

import scramjet
from scramjet.compile.cuda import require_cuda
from scramjet.engine.layout import clear_function, episode_dtype, leaf_layout, state_dtype
from scramjet.engine.trees import leaves, space_tree
from scramjet.engine.worlds import cuda, kernels
from scramjet.engine.worlds.cuda_staging import MAX_SHARED_BYTES, _digits, plan, staged_row, staged_step
from scramjet.engine.worlds.interpreted import Record, Records, interpreted_rules
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.worlds.world_functions import Compilers
from scramjet.envs import load_env, registrations, rng
from scramjet.errors import ConfigError
from tests.helpers.simulated_cuda import SimulatedCuda


def test_the_generator_of_the_gpu_is_that_of_the_worlds():
    compiled = numba.njit(cuda.philox4x32)
    random = np.random.default_rng(0)
    for _ in range(500):
        words = [int(word) for word in random.integers(0, 2**32, 6)]
        assert tuple(int(word) for word in compiled(*words)) == rng.philox4x32(*words)
    assert tuple(compiled(0, 0, 0, 0, 0, 0)) == (
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    )  # Random123's kat_vectors


@pytest.mark.parametrize("name", [entry.name for entry in registrations()])
def test_what_a_block_stages_fits_and_keeps_its_layout(name):
    env = load_env(name)
    staging, record = plan(env), state_dtype(env)
    spaces = leaves(space_tree(env.observation_space))
    staged = sum(np.prod(leaf_layout(spaces[k])[0]) * leaf_layout(spaces[k])[1].itemsize for k in staging.parts)
    assert staging.shared_bytes(staging.block) + staging.block * staged <= MAX_SHARED_BYTES
    if staging.record is not None:
        assert staging.words * 8 == record.itemsize
        assert (staging.record.itemsize // 8) % 2 == 1  # neighbours begin in different banks
        for field in record.names:
            assert staging.record.fields[field][:2] == record.fields[field][:2]


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("name", ["cartpole", "squared", "snake", "maze", "connect_four"])
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


def test_with_few_envs_blocks_take_fewer_of_them_so_that_all_multiprocessors_work():
    few, many = (plan(load_env(name)) for name in ("snake", "cartpole"))
    assert [few.launch(n, 132)["block"] for n in (1, 1024, 4096, 16384)] == [(16, 8), (16, 8), (16, 8), (4, 32)]
    assert [many.launch(n, 132)["block"] for n in (4096, 16384, 65536, 10**6)] == [(16, 8), (4, 32), (1, 128), (1, 128)]
    assert many.launch(4096, 132)["shared_bytes"] == 8 * 72  # a record of 64 bytes and room behind it


def test_an_element_of_a_row_has_its_place_along_each_axis():
    shape = (2, 6, 7)
    for k in (0, 1, 6, 7, 41, 42, 83):
        place = tuple(eval(digit, {"k": k}) for digit in _digits(shape))
        assert place == np.unravel_index(k, shape)


@pytest.mark.parametrize("name", ["cartpole", "connect_four", "snake", "binpack", "maze"])
def test_clearing_a_record_leaves_the_header_alone_and_nothing_else(name):
    env = load_env(name)
    record = np.zeros(1, state_dtype(env))
    record.view(np.uint8)[:] = 255
    before = record.copy()
    from scramjet.engine.worlds.interpreted import Records

    clear_function(env)(Records(record, name)[0])
    for field in record.dtype.names:
        if field in ("_seed", "_return", "_episode", "_draw", "_steps", "_index"):
            assert record[field].tobytes() == before[field].tobytes()
        else:
            assert not record[field].any()


def test_without_a_build_for_cuda_the_message_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match=r"needs a torch that was built for CUDA.*--device cpu"):
        require_cuda()


def test_without_a_gpu_the_message_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"needs an NVIDIA GPU and its driver.*nvidia-smi.*--device cpu"):
        scramjet.make("cartpole", 4, backend="cuda")


def test_without_numba_cuda_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba_cuda" else find(name))
    with pytest.raises(ConfigError, match=r"needs numba-cuda.*pip install 'scramjet\[cuda\]'"):
        require_cuda()


def test_frames_are_not_stacked_on_the_gpu():
    with pytest.raises(ConfigError, match="frame_stack=4 is the CPU's"):
        scramjet.make("cartpole", 4, backend="cuda", frame_stack=4)
