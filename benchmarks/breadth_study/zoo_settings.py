"""The settings of rl-baselines3-zoo for PPO: hyperparams/ppo.yml, commit 22e3ff2 of 2026-04-23.

Those of MuJoCo's v4 tasks are used for v5. What an entry leaves out is Stable-Baselines3's default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ZooSettings:
    """How the zoo trains PPO on one task."""

    num_envs: int = 1
    normalizes: bool = False
    """Whether observations and rewards are normalized (VecNormalize)."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of PPO; a text such as "lin_0.1" falls from the number to 0."""
    network: dict[str, Any] = field(default_factory=dict)
    """Arguments of the policy; "wide" is two layers of 256 with ReLU for each of policy and value."""


_WIDE = {"log_std_init": -2, "ortho_init": False, "wide": True}
_MINIGRID = ZooSettings(8, True, {
    "n_steps": 128, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.99, "n_epochs": 10, "ent_coef": 0.0,
    "learning_rate": 2.5e-4, "clip_range": 0.2,
})  # fmt: skip

ZOO = {
    "gym:CartPole-v1": ZooSettings(8, False, {
        "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
        "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    }),
    "gym:Acrobot-v1": ZooSettings(16, True, {
        "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    }),
    "gym:MountainCar-v0": ZooSettings(16, True, {
        "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    }),
    "gym:MountainCarContinuous-v0": ZooSettings(1, True, {
        "n_steps": 8, "batch_size": 256, "gamma": 0.9999, "learning_rate": 7.77e-5, "ent_coef": 0.00429,
        "clip_range": 0.1, "n_epochs": 10, "gae_lambda": 0.9, "max_grad_norm": 5, "vf_coef": 0.19, "use_sde": True,
    }, {"log_std_init": -3.29, "ortho_init": False}),
    "gym:Pendulum-v1": ZooSettings(4, False, {
        "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3,
        "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
    }),
    "gym:LunarLander-v3": ZooSettings(16, False, {
        "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
    }),
    "gym:BipedalWalker-v3": ZooSettings(32, True, {
        "n_steps": 2048, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.999, "n_epochs": 10, "ent_coef": 0.0,
        "learning_rate": 3e-4, "clip_range": 0.18,
    }),
    "gym:MiniGrid-Empty-Random-5x5-v0": _MINIGRID,
    "gym:MiniGrid-DoorKey-5x5-v0": _MINIGRID,
    "mujoco:HalfCheetah-v5": ZooSettings(1, True, {
        "n_steps": 512, "batch_size": 64, "gamma": 0.98, "learning_rate": 2.0633e-05, "ent_coef": 0.000401762,
        "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096,
    }, _WIDE),
    "mujoco:Hopper-v5": ZooSettings(1, True, {
        "n_steps": 512, "batch_size": 32, "gamma": 0.999, "learning_rate": 9.80828e-05, "ent_coef": 0.00229519,
        "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671,
    }, _WIDE),
    "mujoco:Walker2d-v5": ZooSettings(1, True, {
        "n_steps": 512, "batch_size": 32, "gamma": 0.99, "learning_rate": 5.05041e-05, "ent_coef": 0.000585045,
        "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.95, "max_grad_norm": 1, "vf_coef": 0.871923,
    }),
    "mujoco:Ant-v5": ZooSettings(1, True),
    "mujoco:Swimmer-v5": ZooSettings(4, True, {
        "n_steps": 1024, "batch_size": 256, "gamma": 0.9999, "learning_rate": 6e-4, "gae_lambda": 0.98,
    }),
}  # fmt: skip
