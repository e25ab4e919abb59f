"""Worlds, networks and searches of them for tests: tables of random numbers, and paths that can be read off records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, randint
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.search.particles import ParticleResult, ParticleSearch
from scramjet.search.rows import SearchSettings
from scramjet.search.search import Rewards
from scramjet.search.specs import parse_search
from scramjet.search.tree import TreeResult, TreeSearch

# --- trees over tables of random numbers, which another search can read as well --------------------------------

GAMMA = 0.97
NUM_PLACES, NUM_ACTIONS, TIME_LIMIT = 300, 7, 6
_rng = np.random.default_rng(0)
LEADS_TO = _rng.integers(0, NUM_PLACES, (NUM_PLACES, NUM_ACTIONS))  # [places, actions]
PAYS = _rng.choice([-1.0, 0.0, 0.0, 1.0], (NUM_PLACES, NUM_ACTIONS))  # [places, actions], to whoever moves
ALLOWS = _rng.random((NUM_PLACES, NUM_ACTIONS)) < 0.7  # [places, actions]
ALLOWS[np.arange(NUM_PLACES), _rng.integers(0, NUM_ACTIONS, NUM_PLACES)] = True
ENDS = (_rng.random(NUM_PLACES) < 0.1) & (np.arange(NUM_PLACES) > 0)  # [places]
MOVER = _rng.integers(0, 2, NUM_PLACES)  # [places], the seat to move: often the same one twice
LOGITS = 2 * _rng.standard_normal((NUM_PLACES, NUM_ACTIONS)).astype(np.float32)
VALUES = _rng.uniform(-1, 1, NUM_PLACES).astype(np.float32)


class TableWorld(Env):
    """One player moves from place to place; some places end the episode, and so does a time limit."""

    max_episode_steps = TIME_LIMIT
    observation_space = Box(0, NUM_PLACES, (1,), np.float32)
    action_space = Discrete(NUM_ACTIONS)
    state = {"place": np.int32}

    def reset(self, s: Any) -> None:
        s.place = randint(s, NUM_PLACES)
        while ENDS[s.place]:
            s.place = randint(s, NUM_PLACES)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        reward = PAYS[s.place, action]
        s.place = LEADS_TO[s.place, action]
        return reward, ENDS[s.place]

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.place

    def mask(self, s: Any, mask: Any) -> None:
        for action in range(NUM_ACTIONS):
            mask[action] = ALLOWS[s.place, action]


class SeatedTableWorld(TableWorld):
    """The same for two seats, who gain what the other loses; the place says who moves."""

    num_seats = 2

    def seat(self, s: Any) -> int:
        return MOVER[s.place]

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        mover = MOVER[s.place]
        reward[mover] = PAYS[s.place, action]
        reward[1 - mover] = -PAYS[s.place, action]
        s.place = LEADS_TO[s.place, action]
        return ENDS[s.place]

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = s.place

    def mask(self, s: Any, mask: Any, player: Any) -> None:
        for action in range(NUM_ACTIONS):
            mask[action] = ALLOWS[s.place, action]


class TableNetwork(nn.Module):
    """Looks logits and values up by the place that is observed."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.Parameter(torch.from_numpy(np.column_stack([LOGITS, VALUES])))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.tables[obs[:, 0].long()]
        return rows[:, :-1], rows[:, -1]


class Network(nn.Module):
    """Logits and values by two functions of the observations."""

    def __init__(self, logits: Callable[[Any], Tensor], value: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self._logits, self._value = logits, value

    def forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        return self._logits(obs), self._value(obs)


def uniform(num_inputs: int) -> Callable[[Any], Tensor]:
    return lambda obs: torch.zeros(len(obs), num_inputs)


def nothing(obs: Any) -> Tensor:
    return torch.zeros(len(obs))


def tree_search(pool: NativePool, network: nn.Module | None = None, gamma: float = GAMMA, **config: Any) -> TreeSearch:
    """A search from every env of a pool; without a `network`, with one that knows nothing."""
    network = network or Network(uniform(pool.action_space.n), nothing)
    policy = Policy(network, pool.observation_space, pool.action_space)
    return TreeSearch(pool, policy, pool.num_envs, Rewards(gamma, torch.ones(1)), AlphaZeroConfig(**config))


def search_from(search: TreeSearch, out: Any, seed: int = 0, records: np.ndarray | None = None) -> TreeResult:
    """Search from where the pool stands, or from `records` [N] of it, which show `out`."""
    records = search.pool.states() if records is None else records
    as_bytes = torch.from_numpy(records.view(np.uint8).reshape(len(records), -1))
    shown = [torch.from_numpy(each) for each in (out.obs, out.mask, out.turn)]
    return search.search(as_bytes, *shown, torch.Generator().manual_seed(seed))


# --- particles -------------------------------------------------------------------------------------------------

STEP_GAMMA = 0.9
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


def path_value(obs: Tensor) -> Tensor:
    """A value that differs between all short paths."""
    return obs @ torch.tensor([0.05 * 1.7**k for k in range(PLACES)])


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
        rewards = Rewards(STEP_GAMMA, torch.ones(1)) if rewards is None else rewards
        self.search = ParticleSearch(self.pool, self.policy, num_envs, rewards, SPOConfig(**settings))
        self.generator = torch.Generator().manual_seed(5)

    def run(self) -> ParticleResult:
        """Search from where the envs are."""
        shown = (torch.as_tensor(leaf) for leaf in (self.out.obs, self.out.mask, self.out.turn))
        return self.search.search(self.pool.state_bytes(), *shown, self.generator)

    def play(self) -> np.ndarray:
        """Search, step the envs by what was chosen, and return the rewards."""
        self.out = self.pool.step(self.policy.distribution.env_action(self.run().action).numpy())
        return np.array(self.out.reward)

    def particles(self) -> np.ndarray:
        """The records of all particles after a search, [N, P]."""
        records = self.search.simulator.records.numpy().view(self.pool.states().dtype)
        return records.reshape(self.pool.num_envs, -1)


# --- players that search ---------------------------------------------------------------------------------------


def untrained(env: Any) -> Policy:
    """A small policy that makes all actions about as likely and values every position with 0."""
    torch.manual_seed(0)
    config, spaces = PolicyConfig(hidden=(16,), encoder="mlp"), (env.observation_space, env.action_space)
    policy = Policy(default_network(*spaces, config), *spaces, config)
    for name, weights in policy.named_parameters():
        if "critic_head" in name:
            weights.data.zero_()
    return policy.eval()


def settings(text: str, gamma: float = 1.0) -> SearchSettings:
    """A search over rewards as they are."""
    spec = parse_search(text)
    assert spec is not None
    return SearchSettings(spec, Rewards(gamma, torch.ones(1)))
