"""Policies of several players that have played a rollout and can learn from it."""

from __future__ import annotations

import numpy as np
import torch

from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from tests.helpers import HELPERS

EVERY_AGENT = f"{HELPERS}/worlds/everything.py:EveryAgent"


def start(env, *, num_envs=4, num_steps=10, config=None, bounded="clip"):
    """What plays a pool, a policy away from uniform, a learner and a rollout of it."""
    config = PPOConfig(num_minibatches=2, learning_rate=0.01) if config is None else config
    pool = NativePool(env, num_envs, backend="interpreted")
    shape, spaces = PolicyConfig(hidden=(8,), bounded_actions=bounded), (env.observation_space, env.action_space)
    torch.manual_seed(0)
    policy = Policy(
        default_network(*spaces, shape), *spaces, shape, normalize_observations=config.normalize_observations
    )
    with torch.no_grad():
        for weight in policy.network.actor_head.parameters():
            weight.mul_(50 if weight.dim() == 2 else 1)
    player = RolloutPlayer(pool, TorchExecutor(policy), num_steps)
    pool.reset(100, out=player.buffers.last)
    learner = Learner.for_rollout(player.rollout, player.executor, config, total_steps=10_000, seed=3)
    return player, policy, learner, player.play(torch.Generator().manual_seed(5))


class Sitting(Env):
    """Two seats, three turns in five the first's; cut short after 4 turns. Each sees who it is and the turn."""

    num_seats = 2
    max_episode_steps = 4
    observation_space = Box(0, 10, (2,), np.float32)
    action_space = Discrete(3)
    state = {"turn": np.int32}
    order = (0, 0, 1, 0, 1)

    def reset(self, s):
        s.turn = s._index % 5

    def seat(self, s):
        return self.order[s.turn % 5]

    def step(self, s, action, reward):
        reward[0] = 1.0 + s.turn
        reward[1] = -3.0 * action
        s.turn += 1
        return s.turn % 7 == 0

    def observe(self, s, obs, player):
        obs[0] = player
        obs[1] = s.turn
