"""Worlds and policies for tests of searches: what a particle did can be read off its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.algorithms.spo import SPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, randint
from scramjet.policies import Policy, PolicyConfig
from scramjet.search.particles import ParticleResult, ParticleSearch
from scramjet.search.search import Rewards

GAMMA = 0.9
REWARDS = (0.0, 0.4, -0.3, 1.0)
PLACES = 8


class Path(Env):
    """Writes down its actions, which give fixed rewards; what is legal depends on all of them."""

    ends_with: int = -1  # the action that ends the episode
    has_mask: bool = True

    observation_space = Box(0, 4, (PLACES,), np.float32)
    action_space = Discrete(4)
    state = {"path": (np.int8, (PLACES,)), "length": np.int8, "is_broken": np.bool_}

    def reset(self, s: Any) -> None:
        s.length = randint(s, 2)  # so that roots differ: some have one step behind them
        for i in range(s.length):
            s.path[i] = 1 + randint(s, 4)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        if self.has_mask and action == illegal(s):
            s.is_broken = True
        s.path[s.length] = action + 1
        s.length += 1
        return REWARDS[action], action == self.ends_with

    def observe(self, s: Any, obs: Any) -> None:
        for i in range(PLACES):
            obs[i] = s.path[i]

    def mask(self, s: Any, mask: Any) -> None:
        if self.has_mask:
            mask[illegal(s)] = False


def illegal(s: Any) -> int:
    """The action that is illegal after this path."""
    total = 0
    for i in range(PLACES):
        total += (i + 1) * s.path[i]
    return total % 4


class ShortPath(Path):
    """Is cut by the clock after three steps."""

    max_episode_steps = 3


class Lock(Env):
    """Pays only for action 2 followed by action 1, when it ends; all else pays nothing."""

    observation_space = Box(0, 4, (2,), np.float32)
    action_space = Discrete(4)
    state = {"steps": np.int32, "is_open": np.bool_}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.steps += 1
        wins = s.steps == 2 and s.is_open and action == 1
        s.is_open = s.steps == 1 and action == 2
        return (1.0 if wins else 0.0), s.steps == 2

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.steps
        obs[1] = s.is_open


class Network(nn.Module):
    """Logits and values by two functions of the observations."""

    def __init__(self, logits: Callable[[Any], Tensor], value: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self._logits, self._value = logits, value

    def forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        return self._logits(obs), self._value(obs)


def path_value(obs: Tensor) -> Tensor:
    """A value that differs between all short paths."""
    return obs @ torch.tensor([0.05 * 1.7**k for k in range(PLACES)])


def uniform(num_inputs: int) -> Callable[[Any], Tensor]:
    return lambda obs: torch.zeros(len(obs), num_inputs)


def nothing(obs: Any) -> Tensor:
    return torch.zeros(len(obs))


class Searched:
    """A pool of some world, reset, and a search of all its envs."""

    def __init__(
        self,
        env: Env,
        logits: Callable[[Any], Tensor],
        value: Callable[[Any], Tensor],
        num_envs: int = 16,
        backend: Any = "interpreted",
        rewards: Rewards | None = None,
        **settings: Any,
    ) -> None:
        self.pool = NativePool(env, num_envs, num_threads=1, backend=backend)
        self.out = self.pool.reset(3)
        spaces = self.pool.observation_space, self.pool.action_space
        self.policy = Policy(Network(logits, value), *spaces, PolicyConfig())
        rewards = Rewards(GAMMA, torch.ones(1)) if rewards is None else rewards
        self.search = ParticleSearch(self.pool, self.policy, num_envs, rewards, SPOConfig(**settings))
        self.generator = torch.Generator().manual_seed(5)

    def run(self) -> ParticleResult:
        """Search from where the envs are."""
        shown = (torch.as_tensor(leaf) for leaf in (self.out.obs, self.out.mask, self.out.turn))
        return self.search.search(self.pool.state_bytes(), *shown, self.generator)

    def play(self) -> np.ndarray:
        """Search, step the envs by what was chosen, and return the rewards."""
        self.out = self.pool.step(self.policy.distribution.env_action(self.run().action).numpy())
        rewards: np.ndarray = self.out.reward
        return rewards

    def particles(self) -> np.ndarray:
        """The records of all particles after a search, [N, P]."""
        records = self.search.simulator.records.numpy().view(self.pool.states().dtype)
        return records.reshape(self.pool.num_envs, -1)
