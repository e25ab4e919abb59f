"""Stable-Baselines3's PPO on one task, with its defaults or the settings of rl-baselines3-zoo.

Worlds in which some actions are illegal are trained with MaskablePPO of sb3-contrib, which has the same defaults.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from breadth_study.environments import has_masks, make_env
from breadth_study.outcome import Outcome
from breadth_study.tasks import Task
from breadth_study.zoo_settings import ZOO, ZooSettings

EVALUATION_ENVS = 10


def train_defaults(task: Task, steps: int, seed: int) -> Outcome:
    """PPO without arguments: one env, 2,048 steps a rollout."""
    return _train(task, steps, seed, ZooSettings())


def train_zoo(task: Task, steps: int, seed: int) -> Outcome:
    """The zoo's settings for the task."""
    return _train(task, steps, seed, ZOO[task.world])


def _train(task: Task, steps: int, seed: int, settings: ZooSettings) -> Outcome:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    algorithm: Any = PPO
    if has_masks(task):
        from sb3_contrib import MaskablePPO

        algorithm = MaskablePPO
    make = functools.partial(make_env, task)
    envs = make_vec_env(make, n_envs=settings.num_envs, seed=seed)
    if settings.normalizes:
        envs = VecNormalize(envs, gamma=settings.arguments.get("gamma", 0.99))
    is_dict = isinstance(envs.observation_space, gymnasium.spaces.Dict)
    policy = "MultiInputPolicy" if is_dict else "MlpPolicy"
    arguments = {name: _scheduled(value) for name, value in settings.arguments.items()}
    started = time.perf_counter()
    model = algorithm(policy, envs, seed=seed, device="cpu", policy_kwargs=_network(settings.network), **arguments)
    model.learn(steps)
    seconds = time.perf_counter() - started
    fresh = make_vec_env(make, n_envs=EVALUATION_ENVS, seed=seed + 10_000)
    if settings.normalizes:
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = envs.obs_rms
    mean, _ = _evaluation(has_masks(task))(model, fresh, n_eval_episodes=task.episodes, deterministic=True)
    return Outcome(float(mean), int(model.num_timesteps), seconds)


def _evaluation(masked: bool) -> Callable[..., Any]:
    """The library's own evaluation, with masks or without."""
    if masked:
        from sb3_contrib.common.maskable.evaluation import evaluate_policy
    else:
        from stable_baselines3.common.evaluation import evaluate_policy
    return evaluate_policy


def _scheduled(value: Any) -> Any:
    """The zoo's "lin_0.1" as the function that Stable-Baselines3 takes; anything else as it is."""
    if not (isinstance(value, str) and value.startswith("lin_")):
        return value
    first = float(value.removeprefix("lin_"))
    return lambda remaining: remaining * first


def _network(network: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the policy, with the zoo's wide layers written out."""
    named = {name: value for name, value in network.items() if name != "wide"}
    if network.get("wide"):
        named.update(activation_fn=torch.nn.ReLU, net_arch={"pi": [256, 256], "vf": [256, 256]})
    return named
