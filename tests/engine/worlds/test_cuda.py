"""What the CUDA back-end is made of, as far as it can be looked at without a GPU."""

from __future__ import annotations

import importlib.util

import numba
import numpy as np
import pytest
import torch

import scramjet
from scramjet.engine.layout import clear_function, leaf_layout, state_dtype
from scramjet.engine.trees import leaves, space_tree
from scramjet.engine.worlds import cuda
from scramjet.engine.worlds.cuda_staging import MAX_SHARED_BYTES, _digits, plan
from scramjet.envs import load_env, registrations, rng
from scramjet.errors import ConfigError


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
    assert staging.shared_bytes + staging.block * staged <= MAX_SHARED_BYTES
    if staging.record is not None:
        assert staging.words * 8 == record.itemsize
        assert (staging.record.itemsize // 8) % 2 == 1  # neighbours begin in different banks
        for field in record.names:
            assert staging.record.fields[field][:2] == record.fields[field][:2]


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
        cuda.require_cuda()


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
        cuda.require_cuda()


def test_frames_are_not_stacked_on_the_gpu():
    with pytest.raises(ConfigError, match="frame_stack=4 is the CPU's"):
        scramjet.make("cartpole", 4, backend="cuda", frame_stack=4)
