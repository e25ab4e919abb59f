"""Runs that are trained within a second, for tests of what shows and plays them."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

import scramjet
from scramjet.policies.config import PolicyConfig
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig

TINY: dict[str, Any] = {
    "num_envs": 4, "num_steps": 16, "num_threads": 1, "total_timesteps": 256, "device": "cpu",
    "policy": PolicyConfig(hidden=(8,)), "eval": EvaluationConfig(every=0, final_episodes=0),
    "checkpoint": CheckpointConfig(every=1),
}  # fmt: skip
"""Four updates, a checkpoint after each."""


class OneLayer(nn.Module):
    """The least network that a user of cartpole must bring."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.layer(obs.flatten(1))
        return out[:, :2], out[:, 2]


def train_small(runs_dir: Path, name: str, env: str, **changes: Any) -> Path:
    """Train a tiny run of a world; returns its folder."""
    config = RunConfig(env=env, **{**TINY, "fused": False, **changes})  # compiles nothing but the world
    scramjet.train(config, run_name=name, runs_dir=runs_dir, display="quiet")
    return runs_dir / name
