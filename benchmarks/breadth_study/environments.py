"""Single envs of the tasks with Gymnasium's interface, as Stable-Baselines3 and random play take them."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
from breadth_study.tasks import Task


class RememberedMask(gymnasium.Wrapper):
    """Keeps the legal actions that a native world tells in `info`, as sb3-contrib asks for them."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**arguments)
        self._mask = info.get("action_mask")
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._mask = info.get("action_mask")
        return obs, reward, terminated, truncated, info

    def action_masks(self) -> np.ndarray | None:
        """Legal actions of the present state, [A]; None where all are legal."""
        return self._mask


def make_env(task: Task) -> gymnasium.Env:
    """One env of the task, unwrapped but for what its players need."""
    if task.is_native:
        from scramjet.adapters.exports.gymnasium_env import GymEnv

        return _readable(RememberedMask(GymEnv(task.world)))
    if "MiniGrid" in task.world:
        importlib.import_module("minigrid")
    env = gymnasium.make(task.gym_id)
    if task.wrapper is not None:
        module, _, name = task.wrapper.partition(":")
        env = getattr(importlib.import_module(module), name)(env)
    return env


def _readable(env: gymnasium.Env) -> gymnasium.Env:
    """One-hot numbers in a row in place of a grid of choices, which Stable-Baselines3 does not take."""
    space = env.observation_space
    is_grid = isinstance(space, gymnasium.spaces.MultiDiscrete) and space.nvec.ndim > 1
    return gymnasium.wrappers.FlattenObservation(env) if is_grid else env


def has_masks(task: Task) -> bool:
    """Whether some actions of the world are illegal at times."""
    if not task.is_native:
        return False
    from scramjet.envs.registry import load_env

    return hasattr(load_env(task.world), "mask")


def random_return(task: Task, seed: int) -> float:
    """The mean return of legal actions drawn evenly."""
    env = make_env(task)
    env.action_space.seed(seed)
    total = 0.0
    for episode in range(task.episodes):
        _, info = env.reset(seed=seed if episode == 0 else None)
        ended = False
        while not ended:
            mask = info.get("action_mask")
            action = env.action_space.sample() if mask is None else env.action_space.sample(mask)
            _, reward, terminated, truncated, info = env.step(action)
            total += float(reward)
            ended = terminated or truncated
    return total / task.episodes
