"""The trainings that `digests.py` takes digests of: one for each kind of network, world, env pool and algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import scramjet

WORLDS = Path(__file__).resolve().parent / "digest_worlds.py"

Schedule = Callable[[int, int], list[dict[str, Any]]]
"""The events of an asynchronous run, given the number of updates and the steps of a trajectory."""


class Guessing(nn.Module):
    """CartPole's policy and value on one trunk, and a head with a loss of its own that guesses the observation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.actor, self.critic, self.guess = nn.Linear(32, 2), nn.Linear(32, 1), nn.Linear(32, 4)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(obs)
        return self.actor(features), self.critic(features).squeeze(-1)

    def loss(self, batch: scramjet.LossBatch) -> dict[str, Tensor]:
        error = self.guess(self.trunk(batch.obs)) - batch.obs
        return {"guess": 0.1 * error.square().mean()}


def trajectories(num_updates: int, num_steps: int) -> list[dict[str, Any]]:
    """Two actors of a native world play whole trajectories; each is learned from one update late."""
    events: list[dict[str, Any]] = []
    for update in range(num_updates + 1):
        events += [{"play": actor, "version": max(0, update - 1)} for actor in (0, 1)]
        events += [{"learn": [0, 1]}] if update >= 1 else []
    return events


def rounds(num_updates: int, num_steps: int) -> list[dict[str, Any]]:
    """Two actors of Gymnasium envs step together, or one after the other; what they played is learned half late.

    The round after a trajectory's last step ends it, so update k can learn from round (k + 1) * num_steps + 1 on.
    """
    events: list[dict[str, Any]] = []
    learned = 0
    for number in range(1, (num_updates + 1) * num_steps + 2):
        together = number % 5 != 0
        events += [{"round": each, "version": learned} for each in ([[0, 1]] if together else [[1], [0]])]
        if learned < num_updates and number == (learned + 1) * num_steps + 1 + num_steps // 2:
            events.append({"learn": [0, 1] if learned % 2 == 0 else [1, 0]})
            learned += 1
    return events


@dataclass(frozen=True)
class Case:
    """A world and the settings in which it differs from COMMON."""

    env: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    num_updates: int = 3
    network: Callable[[], nn.Module] | None = None
    schedule: Schedule | None = None
    """With mode="async": what is replayed."""
    needs: str | None = None
    """A package that is not installed everywhere; without it the case is left out."""

    def config(self, device: str) -> dict[str, Any]:
        """Settings by the names of scramjet.train's keywords, over scramjet's defaults."""
        settings = COMMON | (ON_CUDA if device == "cuda" else {}) | dict(self.settings)
        total_timesteps = self.num_updates * settings["num_envs"] * settings["num_steps"]
        return settings | {"device": device, "total_timesteps": total_timesteps}


COMMON: dict[str, Any] = {
    "num_envs": 16,
    "num_steps": 16,
    "num_threads": 1,
    "num_epochs": 2,
    "num_minibatches": 4,
    "learning_rate": 0.001,
    "eval": {"every": 2, "episodes": 4, "final_episodes": 6, "max_steps": 40},
    "checkpoint": {"every": 0},
}
ON_CUDA: dict[str, Any] = {"num_envs": 128, "num_steps": 32}
"""Enough that the GPU draws minibatches by runs of 32 neighbouring envs, of which one must hold at least 32."""

SMALL = {"hidden": [32]}
LSTM = {"memory": "lstm", "memory_size": 16, "hidden": [32]}
GRU = {"memory": "gru", "memory_size": 16, "hidden": [32]}
ASYNC = {"mode": "async", "num_actors": 2}
PLAIN = {"normalize_observations": False, "normalize_rewards": False}

CPU_CASES = {
    "mlp": Case("cartpole"),
    "mlp_torch": Case("cartpole", {"fused": False}),
    "mlp_two_threads": Case("cartpole", {"num_envs": 64, "num_steps": 32, "num_threads": 2}),
    "three_layers": Case("acrobot", {"policy": {"hidden": [32, 32, 32], "activation": "relu"}}),
    "shared_trunk": Case("cartpole", {"policy": {"shared_trunk": True}, "value_clip": 0.2}),
    "not_normalized": Case("cartpole", {**PLAIN, "normalize_advantages": "batch", "reward_clip": 0.5}),
    "schedules": Case(
        "cartpole",
        {"learning_rate": "0.003@0,0@end", "clip_epsilon": "0.3@0,0.1@end", "target_kl": 0.001, "num_epochs": 4},
    ),
    "lstm": Case("tmaze", {"policy": LSTM}),
    "lstm_torch": Case("tmaze", {"policy": LSTM, "fused": False}),
    "gru_bptt": Case("memory", {"policy": GRU, "bptt_horizon": 8}),
    "mingru": Case("masked_cartpole", {"policy": {**GRU, "memory": "mingru", "memory_layers": 2}}),
    "masks": Case("maze", {"policy": {**SMALL, "encoder": "mlp"}}),
    "continuous": Case("pendulum"),
    "continuous_tanh": Case("pendulum", {"policy": {"bounded_actions": "tanh", "state_dependent_std": True}}),
    "multi_discrete": Case(f"{WORLDS}:Dials"),
    "agents": Case(f"{WORLDS}:Team"),
    "agents_lstm": Case(f"{WORLDS}:Team", {"policy": LSTM}),
    "seats": Case("connect_four", {"policy": SMALL}),
    "seats_lstm": Case("connect_four", {"policy": {**LSTM, "encoder": "mlp"}}),
    "frame_stack": Case("masked_cartpole", {"frame_stack": 3}),
    "board": Case("snake", {"env_parameters": {"size": 6, "snakes": 2}, "policy": {**SMALL, "grid_channels": [8]}}),
    "value_propagation": Case("maze", {"policy": {**SMALL, "encoder": "value_propagation", "planning_steps": 8}}),
    "attention": Case(
        "binpack",
        {"policy": {**SMALL, "encoder": "entity_attention", "attention_width": 16, "attention_blocks": 1}},
        num_updates=2,
    ),
    "vtrace": Case("cartpole", {"advantage": "vtrace"}),
    "seats_vtrace": Case("connect_four", {"advantage": "vtrace", "policy": SMALL}),
    "impala": Case("cartpole", {"loss": "impala", "num_epochs": 1}),
    "own_loss": Case("cartpole", network=Guessing),
    "gym_workers": Case("gym:CartPole-v1", {"num_workers": 2, "num_envs": 8}),
    "gym_serial": Case("gym:CartPole-v1", {"num_workers": 0, "num_envs": 8}),
    "gym_lstm": Case("gym:Pendulum-v1", {"num_workers": 1, "num_envs": 8, "policy": LSTM}),
    "gym_masks": Case(f"factory:{WORLDS}:Signpost", {"num_workers": 2, "num_envs": 8}),
    "gym_frame_stack": Case("gym:CartPole-v1", {"num_workers": 0, "num_envs": 8, "frame_stack": 2}),
    "gym_vector": Case("vec:CartPole-v1", {"num_envs": 8}),
    "ale": Case(
        "ale:Pong",
        {
            "num_envs": 4,
            "env_parameters": {"img_height": 36, "img_width": 36, "stack_num": 2},
            "policy": {"encoder": "nature_cnn", "hidden": [16]},
            "eval": {"every": 0, "final_episodes": 0},
        },
        num_updates=2,
        needs="ale_py",
    ),
    "envpool": Case("envpool:CartPole-v1", {"num_envs": 8}, needs="envpool"),
    "pettingzoo": Case("pettingzoo:tictactoe_v3", {"num_envs": 4}, needs="pettingzoo"),
    "rnd": Case("cartpole", {"curiosity": "rnd"}),
    "icm_agents": Case(f"{WORLDS}:Team", {"curiosity": "icm", "bonus": {"episodic": "elliptical"}}),
    "noveld": Case("door_key", {"curiosity": "noveld", "policy": {**SMALL, "encoder": "mlp"}}),
    "e3b": Case("pendulum", {"curiosity": "e3b"}),
    "alphazero": Case("tic_tac_toe", {"algorithm": "alphazero", "policy": SMALL}, num_updates=2),
    "spo": Case("cartpole", {"algorithm": "spo"}, num_updates=2),
    "async_replay": Case("cartpole", ASYNC, schedule=trajectories),
    "async_lstm_replay": Case("tmaze", {**ASYNC, "policy": LSTM}, schedule=trajectories),
    "async_impala_replay": Case("cartpole", {**ASYNC, "loss": "impala", "num_epochs": 1}, schedule=trajectories),
    "async_gym_replay": Case("gym:CartPole-v1", {**ASYNC, "num_envs": 8}, schedule=rounds),
}

# Five updates: the first runs plainly, the second records CUDA graphs, the others replay them. Networks whose gradients
# CUDA adds up in no fixed order (those of Maze and BinPack) have no digest.
CUDA_CASES = {
    "mlp": Case("cartpole", PLAIN, num_updates=5),
    "mlp_torch": Case("cartpole", {**PLAIN, "fused": False}, num_updates=5),
    "mlp_float32": Case("cartpole", {**PLAIN, "precision": "float32"}, num_updates=5),
    "normalized": Case("cartpole", num_updates=5),
    "masks": Case("maze", {"policy": {**SMALL, "encoder": "mlp"}}, num_updates=5),
    "continuous": Case("pendulum", num_updates=5),
    "lstm": Case("tmaze", {"policy": LSTM}, num_updates=5),
    "gru_bptt": Case("memory", {"policy": GRU, "bptt_horizon": 16}, num_updates=5),
    "agents": Case(f"{WORLDS}:Team", num_updates=5),
    "seats": Case("connect_four", {"policy": SMALL}, num_updates=5),
    "seats_vtrace": Case("connect_four", {"advantage": "vtrace", "policy": SMALL}, num_updates=5),
    "frame_stack": Case("masked_cartpole", {"frame_stack": 3}, num_updates=5),
    "board": replace(CPU_CASES["board"], num_updates=5),
    "own_loss": Case("cartpole", network=Guessing, num_updates=5),
    "rnd": Case("cartpole", {"curiosity": "rnd"}, num_updates=5),
    "e3b": Case("pendulum", {"curiosity": "e3b"}, num_updates=5),
    "envs_on_cpu": Case("cartpole", {"env_device": "cpu"}, num_updates=5),
    "gym_workers": Case("gym:CartPole-v1", {"num_workers": 2, "num_envs": 8}, num_updates=5),
    "gym_lstm": Case("gym:CartPole-v1", {"num_workers": 2, "num_envs": 8, "policy": LSTM}, num_updates=5),
    "async_replay": Case("cartpole", ASYNC, num_updates=5, schedule=trajectories),
    "async_gym_replay": Case("gym:CartPole-v1", {**ASYNC, "num_envs": 8}, num_updates=5, schedule=rounds),
}
