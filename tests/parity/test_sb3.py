"""Stable-Baselines3 trains on native worlds unchanged."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest

import scramjet.gym  # noqa: F401, makes our worlds known to Gymnasium
from tests.helpers.late_imports import skip_without

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("one_thread")]
skip_without("stable_baselines3", reason="needs Stable-Baselines3: pip install stable-baselines3")


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Snake-v0", "Maze-v0"])
def test_worlds_pass_stable_baselines3s_checker(name: str) -> None:
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="(?s).*(image|float32|normalize)")  # advice on what to observe
        check_env(gymnasium.make(f"scramjet/{name}").unwrapped, skip_render_check=True)


def test_stable_baselines3_learns_on_a_native_world_unchanged() -> None:
    from stable_baselines3 import PPO

    env = gymnasium.make("scramjet/CartPole-v1")
    model = PPO("MlpPolicy", env, n_steps=256, batch_size=64, n_epochs=8, gae_lambda=0.8, seed=1, device="cpu")
    model.learn(5 * 256)
    early = np.mean([episode["r"] for episode in model.ep_info_buffer])
    model.learn(4_000, reset_num_timesteps=False)
    late = np.mean([episode["r"] for episode in list(model.ep_info_buffer)[-10:]])
    assert model.num_timesteps >= 5_000
    assert late > 1.5 * early
