"""Branches of a pool: the same on every back-end, carried whole, still after their end, with chance of their own."""

from typing import Any

import numpy as np
import pytest
import torch

from scramjet.engine.simulator import Simulator
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, randint
from scramjet.envs.games.connect_four import ConnectFour


class Dice(Env):
    """Shows the last roll of a die; ends at a six."""

    observation_space = Box(0, 6, (1,), np.float32)
    action_space = Discrete(2)
    state = {"roll": np.int32}
    max_episode_steps = 5

    def reset(self, s: Any) -> None:
        s.roll = 1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.roll = 1 + randint(s, 6)
        return float(s.roll), s.roll == 6

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.roll


def branches_of(env: Env, num_envs: int, per_env: int, pool: Any = None, **settings: Any) -> Simulator:
    pool = pool or NativePool(env, num_envs, **settings)
    pool.reset(3)
    simulator = Simulator(pool, num_envs * per_env)
    simulator.load(pool.state_bytes(), per_env)
    return simulator


def played(simulator: Simulator, key: int, num_steps: int = 4) -> list[torch.Tensor]:
    """Everything that branches show over some steps of the same actions."""
    generator = torch.Generator().manual_seed(1)
    device = simulator.records.device
    seen = []
    for depth in range(num_steps):
        actions = torch.randint(2, (simulator.num_branches,), generator=generator).to(device)
        now = simulator.step(actions, torch.tensor([key], device=device), depth)
        seen += [each.clone().cpu() for each in (now.obs, now.reward, now.terminated, now.truncated, simulator.live)]
    return seen


def assert_plays_as_one_thread(other: Simulator) -> None:
    expected = played(branches_of(Dice(), 40, 16, num_threads=1), 7)
    assert all(torch.equal(here, there) for here, there in zip(expected, played(other, 7), strict=True))


def test_branches_step_alike_on_every_back_end() -> None:
    for settings in ({"backend": "interpreted"}, {"num_threads": 2}):
        assert_plays_as_one_thread(branches_of(Dice(), 40, 16, **settings))


@pytest.mark.gpu
def test_branches_step_alike_on_the_gpu() -> None:
    from scramjet.engine.worlds.cuda_pool import CudaPool

    assert_plays_as_one_thread(branches_of(Dice(), 40, 16, CudaPool(Dice(), 40)))


def test_branches_of_one_env_see_different_futures_and_none_is_the_one_to_come() -> None:
    simulator = branches_of(Dice(), 1, 600)
    pool = simulator.pool
    now = simulator.step(torch.zeros(600, dtype=torch.int64), torch.tensor([5]), 0)
    shares = torch.bincount(now.obs[:, 0].long(), minlength=7)[1:] / 600
    assert shares.min() > 0.1  # all six rolls, none of them certain
    before = pool.state_bytes().clone()
    pool.step(np.zeros(1, np.int64))
    assert not torch.equal(before, pool.state_bytes())  # the search has left the pool where it was


def test_another_search_or_depth_draws_other_numbers() -> None:
    seen = [
        branches_of(Dice(), 1, 64).step(torch.zeros(64, dtype=torch.int64), torch.tensor([key]), depth).obs.clone()
        for key, depth in ((1, 0), (2, 0), (1, 1), (1, 0))
    ]
    assert [torch.equal(seen[0], other) for other in seen[1:]] == [False, False, True]


def test_a_branch_that_has_ended_stays_as_it_is_and_gains_nothing() -> None:
    simulator = branches_of(Dice(), 8, 16)
    actions = torch.zeros(128, dtype=torch.int64)
    now = simulator.step(actions, torch.tensor([1]), 0)
    ended = now.terminated.clone()
    assert ended.any()
    assert torch.equal(simulator.live, ~ended)
    records, obs = simulator.records[ended].clone(), now.obs[ended].clone()
    now = simulator.step(actions, torch.tensor([1]), 1)
    assert torch.equal(simulator.records[ended], records)
    assert torch.equal(now.obs[ended], obs)
    assert (now.reward[ended] == 0).all()
    assert now.terminated[ended].all()
    assert (now.reward[~ended] > 0).all()


def test_the_time_limit_cuts_branches() -> None:
    simulator = branches_of(Dice(), 4, 16)
    for depth in range(5):
        now = simulator.step(torch.zeros(64, dtype=torch.int64), torch.tensor([2]), depth)
    assert torch.equal(now.truncated, ~now.terminated)
    assert not simulator.live.any()


def test_gathered_branches_are_copies_of_their_sources_in_everything() -> None:
    simulator = branches_of(ConnectFour(), 4, 4)
    columns = torch.arange(16) % 7
    now = simulator.step(columns, torch.tensor([1]), 0)
    source = torch.tensor([15, 15, 3, 0, 8, 8, 8, 1, 2, 2, 2, 2, 7, 6, 5, 4])
    expected = [simulator.records[source], now.obs[source], now.mask[source], now.turn[source], now.reward[source]]
    simulator.gather(source)
    now = simulator.now
    found = [simulator.records, now.obs, now.mask, now.turn, now.reward]
    assert all(torch.equal(here, there) for here, there in zip(expected, found, strict=True))
