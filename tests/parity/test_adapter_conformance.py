"""One env through every adapter and every style of auto-reset: the same actions give the same rollouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.adapters.gymnasium.worker_pool import WorkerPool
from scramjet.adapters.vector import VectorPool
from scramjet.engine.episode_seeds import EpisodeSeed

NUM_ENVS, NUM_STEPS, SEED = 5, 40, 11


class Counting(gymnasium.Env[np.ndarray, int]):
    """Counts its steps; episodes of drawn length end by themselves or are cut short.

    It writes all observations into one array, as many envs do: whoever keeps one without a copy loses it. In SAME_STEP
    Gymnasium itself keeps the last one while it resets the env, and needs the copies.
    """

    observation_space = Box(-1000, 1000, (4,), np.float32)
    action_space = Discrete(3)

    def __init__(self, *, is_copying: bool = False) -> None:
        self._obs, self._is_copying = np.zeros(4, np.float32), is_copying

    def _shown(self) -> np.ndarray:
        return self._obs.copy() if self._is_copying else self._obs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(1, 6))
        self.is_cut = bool(self.np_random.integers(2))
        self._obs[:] = self.length, 0, -1, self.np_random.integers(100)
        return self._shown(), {"fresh": 1}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._obs[1] += 1
        self._obs[2] = action
        count, ended = int(self._obs[1]), self._obs[1] == self.length
        reward = 10.0 * count + 0.25 * int(action) + float(self._obs[3])
        terminated, truncated = bool(ended and not self.is_cut), bool(ended and self.is_cut)
        return self._shown(), reward, terminated, truncated, {"count": count, "name": "x"}


@dataclass
class Steps:
    """What one env did, step by step; and its episodes."""

    seen: list[list[float]] = field(default_factory=list)
    results: list[tuple[float, bool, bool]] = field(default_factory=list)
    finals: list[list[float]] = field(default_factory=list)
    episodes: list[tuple[float, int, float]] = field(default_factory=list)


class NextStepOnly(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A vector env of some other library: it steps all its envs at once and resets in the next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.envs = num_envs, [Counting() for _ in range(num_envs)]
        self.single_observation_space, self.single_action_space = Counting.observation_space, Counting.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        assert options is None, "there is no part reset here"
        return np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)]), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        obs, reward = np.zeros((self.num_envs, 4), np.float32), np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        infos: dict[str, Any] = {}
        for i, env in enumerate(self.envs):
            if self._ended[i]:
                obs[i], info = env.reset()
            else:
                obs[i], reward[i], terminated[i], truncated[i], info = env.step(int(actions[i]))
            infos = self._add_info(infos, info, i)
        self._ended = terminated | truncated
        return obs, reward, terminated, truncated, infos


def vector_pool(make: Callable[[int], VectorEnv]) -> ForeignPool:
    return VectorPool("Counting", make, NUM_ENVS)


def gymnasium_pool(kind: Any, mode: AutoresetMode, **options: Any) -> ForeignPool:
    return vector_pool(lambda n: kind([Counting] * n, autoreset_mode=mode, **options))


class Kept(SyncVectorEnv):
    """Not Gymnasium's own class any more: the pool leaves its style alone."""


ADAPTERS: dict[str, Callable[[], ForeignPool]] = {
    "sync, next step": lambda: gymnasium_pool(SyncVectorEnv, AutoresetMode.NEXT_STEP),
    "sync, disabled": lambda: gymnasium_pool(SyncVectorEnv, AutoresetMode.DISABLED),
    "kept, next step": lambda: gymnasium_pool(Kept, AutoresetMode.NEXT_STEP),
    "async, next step": lambda: gymnasium_pool(AsyncVectorEnv, AutoresetMode.NEXT_STEP),
    "async, disabled": lambda: gymnasium_pool(AsyncVectorEnv, AutoresetMode.DISABLED, shared_memory=False),
    "another library's, next step": lambda: vector_pool(NextStepOnly),
    "serial": lambda: SerialPool("Counting", Counting, NUM_ENVS),
    "workers": lambda: WorkerPool("Counting", Counting, NUM_ENVS, num_workers=2),
}


for kind in (SyncVectorEnv, AsyncVectorEnv, Kept):
    ADAPTERS[f"{kind.__name__}, same step"] = lambda kind=kind: vector_pool(
        lambda n: kind([partial(Counting, is_copying=True)] * n, autoreset_mode=AutoresetMode.SAME_STEP)
    )


def actions_of_envs() -> np.ndarray:
    """[NUM_ENVS, NUM_STEPS]: what each env is told to do in its own steps."""
    return np.random.default_rng(3).integers(3, size=(NUM_ENVS, NUM_STEPS))


SEEDS = EpisodeSeed.of(SEED).of_envs(NUM_ENVS)


def seeds_through(pool: ForeignPool) -> list[int]:
    """What each env is seeded with: vector envs are given one number and count up from it."""
    return [SEEDS[0] + i for i in range(NUM_ENVS)] if isinstance(pool, VectorPool) else SEEDS


def reference(seeds: list[int]) -> list[Steps]:
    """A plain loop over single envs."""
    played = []
    for seed, actions in zip(seeds, actions_of_envs(), strict=True):
        env, steps = Counting(), Steps()
        obs, _ = env.reset(seed=seed)
        total, length = 0.0, 0
        for action in actions:
            steps.seen.append(obs.tolist())
            obs, reward, terminated, truncated, info = env.step(int(action))
            steps.results.append((reward, terminated, truncated))
            total, length = total + reward, length + 1
            if terminated or truncated:
                steps.finals.append(obs.tolist())
                steps.episodes.append((total, length, info["count"]))
                total, length = 0.0, 0
                obs, _ = env.reset()
        played.append(steps)
    return played


def through(pool: ForeignPool) -> list[Steps]:
    """The same through a pool; a step in which an env is dead is none of its steps."""
    told, played = actions_of_envs(), [Steps() for _ in range(NUM_ENVS)]
    out = pool.reset(SEED)
    for _ in range(3 * NUM_STEPS):
        counts = np.array([len(steps.seen) for steps in played])
        alive = out.turn.copy() if len(out.turn) else np.ones(NUM_ENVS, np.bool_)
        before = out.obs.copy()
        out = pool.step(told[np.arange(NUM_ENVS), counts % NUM_STEPS])
        for i in np.flatnonzero(alive & (counts < NUM_STEPS)):
            ended = out.terminated[i] or out.truncated[i]
            played[i].seen.append(before[i].tolist())
            played[i].results.append((float(out.reward[i]), bool(out.terminated[i]), bool(out.truncated[i])))
            if ended:
                played[i].finals.append(out.final_obs[i].tolist())
        for i in np.flatnonzero(~alive):
            assert (out.reward[i], out.terminated[i], out.truncated[i]) == (0, False, False)
    episodes = pool.episodes()
    for i, steps in enumerate(played):
        of_env = episodes.env_ids == i
        rows = (episodes.returns[of_env], episodes.lengths[of_env], episodes.stats["count"][of_env])
        steps.episodes = list(zip(*(row.tolist() for row in rows), strict=True))[: len(steps.finals)]
    return played


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_gives_the_rollout_of_a_plain_loop(adapter: str) -> None:
    """Only a library that can do no other has dead steps."""
    pool = ADAPTERS[adapter]()
    try:
        played, expected = through(pool), reference(seeds_through(pool))
        assert played == expected
        results = [result for steps in expected for result in steps.results]
        assert sum(terminated for _, terminated, _ in results) > 5 < sum(truncated for _, _, truncated in results)
        assert {length for steps in expected for _, length, _ in steps.episodes} == {1, 2, 3, 4, 5}
        turns = [pool.step(np.zeros(NUM_ENVS, np.int64)).turn.copy() for _ in range(20)]
        assert (not np.all(turns)) == (adapter in ("another library's, next step", "kept, next step"))
    finally:
        getattr(pool, "close", lambda: None)()
