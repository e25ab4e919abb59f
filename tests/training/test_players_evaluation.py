"""Evaluation of several players: each by its own share of episodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.training.evaluation.evaluator import Evaluator

pytestmark = pytest.mark.usefixtures("one_thread")


class Staggered(Env):
    """Agent k of env i lives 1 + k + i % 3 steps and earns 10 ** k a step; an endless one never dies."""

    endless: bool = False
    num_agents = 3
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"age": np.int32}
    stat_names = ("agent",)

    def reset(self, s):
        pass

    def step(self, s, action, reward):
        s.age += 1
        for k in range(3):
            reward[k] = 10.0**k
        return False

    def alive(self, s, player):
        return s.age < 1 + player + s._index % 3 or (self.endless and player == 2)

    def observe(self, s, obs, player):
        obs[0] = 0.0

    def stats(self, s, stats, player):
        stats.agent = player


class Rounds(Staggered):
    """Two seats in turn; a game of env i lasts 1 + i % 4 turns, the one to move earns 1 and the other loses 2."""

    num_agents = 1
    num_seats = 2

    def seat(self, s):
        return s.age % 2

    def step(self, s, action, reward):
        mover = s.age % 2
        s.age += 1
        reward[mover] = 1.0
        reward[1 - mover] = -2.0
        return s.age > s._index % 4 and not self.endless


def policy_of(env):
    torch.manual_seed(0)
    spaces = env.observation_space, env.action_space
    return Policy(default_network(*spaces, PolicyConfig(hidden=(4,))), *spaces)


def evaluate(env, episodes, num_envs, max_steps=None):
    pool = NativePool(env, num_envs, backend="interpreted")
    return Evaluator(pool, episodes=episodes, max_steps=max_steps)(policy_of(env), 1)


@pytest.mark.parametrize(("episodes", "num_envs"), [(6, 6), (7, 3), (1, 1), (10, 4)])
def test_each_agent_of_each_env_is_judged_by_its_own_share_of_episodes(episodes, num_envs):
    result = evaluate(Staggered(), episodes, num_envs)
    lengths, returns = [], []
    for i in range(num_envs):
        share = episodes // num_envs + (i < episodes % num_envs)
        for k in range(3):
            lengths += [1 + k + i % 3] * share
            returns += [10.0**k * lengths[-1]] * share
    assert (result.episodes, len(returns)) == (episodes, 3 * episodes)  # a game of three is one episode
    assert result.mean_return == pytest.approx(np.mean(returns))
    assert result.std_return == pytest.approx(np.std(returns))
    assert result.mean_length == pytest.approx(np.mean(lengths))
    assert result.stats == {"agent": 1.0}


@pytest.mark.parametrize(("episodes", "num_envs"), [(8, 8), (7, 3), (1, 1)])
def test_each_seat_of_each_env_is_judged_by_its_own_share_of_games(episodes, num_envs):
    result = evaluate(Rounds(), episodes, num_envs)
    returns = []
    for i in range(num_envs):
        turns = 1 + i % 4
        first, second = (turns + 1) // 2, turns // 2
        share = episodes // num_envs + (i < episodes % num_envs)
        returns += [first - 2.0 * second, second - 2.0 * first] * share
    assert (result.episodes, len(returns)) == (episodes, 2 * episodes)
    assert result.mean_return == pytest.approx(np.mean(returns))
    assert result.std_return == pytest.approx(np.std(returns))
    assert result.stats == {"agent": 0.5}


@pytest.mark.parametrize("episodes", [1, 2])
def test_of_a_game_that_never_ends_each_agents_episode_counts_once_a_game(episodes):
    """Agents 0 and 1 die, agent 2 does not, so that only a cut begins a second game."""
    result = evaluate(Staggered(endless=True), episodes, 1, max_steps=30)
    lives = [1, 2]
    returns = [1.0 * lives[0], 10.0 * lives[1], 100.0 * 30]
    assert (result.episodes, result.cut_episodes) == (episodes, episodes)
    assert result.mean_return == pytest.approx(np.mean(returns))
    assert result.mean_length == pytest.approx(np.mean([*lives, 30]))


def test_a_game_of_seats_that_never_ends_counts_as_it_stands_for_each_of_them():
    result = evaluate(Rounds(endless=True), 1, 1, max_steps=31)
    assert (result.episodes, result.cut_episodes) == (1, 1)
    assert result.mean_return == pytest.approx(np.mean([16 - 2.0 * 15, 15 - 2.0 * 16]))
