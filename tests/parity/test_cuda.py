"""One source on the CPU and on the GPU: the same actions give the same transitions, the same seed the same episodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scramjet.engine import Episodes, NativePool, Transition
from scramjet.engine.actions import random_actions
from scramjet.engine.layout import state_dtype
from scramjet.engine.trees import leaves
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.envs import Env, load_env
from tests.parity.test_back_ends import CASES, as_numpy, assert_same, ids

pytestmark = pytest.mark.gpu

NUM_ENVS = 200  # no number of whole blocks of threads


def has_floats(env: Env) -> bool:
    """Whether its rules calculate: a GPU rounds a * b + c once, a CPU twice."""
    own = [name for name in state_dtype(env).names or () if not name.startswith("_")]
    return any(state_dtype(env)[name].base.kind == "f" for name in own)


def assert_same_episodes(got: Episodes, expected: Episodes) -> None:
    assert got.num_ended == expected.num_ended == len(got)
    for field in ("returns", "lengths", "env_ids", "players"):
        ours, theirs = getattr(got, field), getattr(expected, field)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3, err_msg=field)
    for name, theirs in expected.stats.items():
        np.testing.assert_allclose(got.stats[name], theirs, rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_gpu_plays_every_world_as_the_cpu_does(case):
    name, parameters = case
    env = load_env(name, **parameters)
    tolerance = 1e-3 if has_floats(env) else 1e-6
    cpu, gpu = NativePool(env, NUM_ENVS, num_threads=1), CudaPool(env, NUM_ENVS)
    expected, got = cpu.reset(42), gpu.reset(42)
    assert_same(got, expected, "after reset", tolerance)
    random = np.random.default_rng(0)
    for t in range(200):
        actions = random_actions(cpu, expected, random)
        expected, got = cpu.step(actions.copy()), gpu.step(actions)
        assert_same(got, expected, f"at step {t}", tolerance)
        if t % 2:  # before there are more than the GPU's pool reads
            assert_same_episodes(gpu.episodes(), cpu.episodes())
    if tolerance < 1e-5:
        np.testing.assert_array_equal(gpu.snapshot()["states"], cpu.snapshot()["states"])


def test_a_snapshot_moves_between_the_cpu_and_the_gpu():
    env = load_env("maze")
    cpu, gpu = NativePool(env, 64, num_threads=1), CudaPool(env, 64)
    out, random = cpu.reset(3), np.random.default_rng(1)
    for _ in range(30):
        out = cpu.step(random_actions(cpu, out, random))
    got = gpu.restore(cpu.snapshot())
    assert_same_view(got, out)
    assert gpu.steps_taken == cpu.steps_taken == 30
    for _ in range(30):
        actions = random_actions(cpu, out, random)
        out, got = cpu.step(actions), gpu.step(actions)
    back = cpu.restore(gpu.snapshot())
    assert_same_view(got, back)


def assert_same_view(got: Transition, expected: Transition) -> None:
    for ours, theirs in zip((*leaves(got.obs), got.mask), (*leaves(expected.obs), expected.mask), strict=True):
        np.testing.assert_array_equal(as_numpy(ours), theirs)


def test_scores_are_those_of_the_cpu():
    env = load_env("othello", size=6, opening_plies=12)
    cpu, gpu = NativePool(env, 32, num_threads=1), CudaPool(env, 32)
    cpu.reset(3)
    gpu.reset(3)
    expected = cpu.scores(cpu.states())
    np.testing.assert_allclose(as_numpy(gpu.scores(gpu.states())), expected, rtol=1e-6)
    assert np.abs(expected).max() > 0


def test_simulate_and_views_are_those_of_the_cpu():
    env = load_env("connect_four")
    cpu, gpu = NativePool(env, 32, num_threads=1), CudaPool(env, 32)
    out, random = cpu.reset(3), np.random.default_rng(1)
    gpu.reset(3)
    for _ in range(5):
        actions = random_actions(cpu, out, random)
        out = cpu.step(actions)
        gpu.step(actions)
    for ours, theirs in zip(leaves(gpu.views()), leaves(cpu.views()), strict=True):
        np.testing.assert_array_equal(as_numpy(ours), theirs)
    actions = random_actions(cpu, out, random)
    (after, seen), (after_gpu, seen_gpu) = cpu.simulate(cpu.states(), actions), gpu.simulate(gpu.states(), actions)
    np.testing.assert_array_equal(after_gpu, after)
    np.testing.assert_array_equal(as_numpy(seen_gpu.reward), seen.reward)
    np.testing.assert_array_equal(gpu.states(), cpu.states())  # the pool itself has not moved


def test_steps_recorded_by_a_cuda_graph_are_those_of_the_pool():
    env = load_env("cartpole")
    plain, recorded = CudaPool(env, 256), CudaPool(env, 256)
    for pool in (plain, recorded):
        pool.reset(7)
        pool.step(torch.zeros(256, dtype=torch.int64, device="cuda"))
    actions = torch.zeros(10, 256, dtype=torch.int64, device="cuda")
    graph, out = torch.cuda.CUDAGraph(), recorded.allocate()
    torch.cuda.synchronize()
    with recorded.recording(), torch.cuda.graph(graph):
        for t in range(10):
            recorded.step(actions[t], out=out)
    for _ in range(4):
        actions.random_(2)
        for t in range(10):
            expected = plain.step(actions[t])
        recorded.before_replay(10)
        graph.replay()
        torch.testing.assert_close(out.obs, expected.obs, rtol=0, atol=0)
        assert recorded.steps_taken == plain.steps_taken
    first, second = plain.episodes(), recorded.episodes()
    assert first.num_ended > 100
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.env_ids, second.env_ids)


@pytest.mark.parametrize("num_steps", [1, 40])
def test_where_too_many_episodes_ended_the_newest_are_read(num_steps):
    """All end at once, and over and over: the log is full several times."""
    env, num_envs = load_env("probe_constant"), 3000
    cpu, gpu = NativePool(env, num_envs, num_threads=1), CudaPool(env, num_envs)
    for pool in (cpu, gpu):
        pool.reset(5)
    for _ in range(num_steps):
        cpu.step(np.zeros(num_envs, np.int64))
        gpu.step(torch.zeros(num_envs, dtype=torch.int64, device="cuda"))
    gpu.begin_reading_episodes()
    gpu.step(torch.zeros(num_envs, dtype=torch.int64, device="cuda"))
    newest, expected, later = gpu.episodes(), cpu.episodes(), gpu.episodes()
    assert newest.num_ended == expected.num_ended == num_steps * num_envs
    assert later.num_ended == num_envs
    assert later.ticks.tolist() == [num_steps + 1] * len(later)
    for field in ("ticks", "env_ids", "returns", "lengths"):
        np.testing.assert_array_equal(getattr(newest, field), getattr(expected, field)[-1024:], err_msg=field)


def test_check_looks_at_the_gpu_too():
    from scramjet.engine.worlds.check import check_world

    findings = list(check_world("maze", steps=60))
    assert all(finding.is_fine for finding in findings)
    assert "compiled for the GPU" in findings[-1].text
