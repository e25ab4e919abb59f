"""Small runs that train with search: of particles and of trees, with one seat and with two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scramjet.algorithms.alphazero import AlphaZeroConfig
from scramjet.algorithms.ppo import PPOConfig
from scramjet.algorithms.spo import SPOConfig
from scramjet.policies import PolicyConfig
from scramjet.training.config.run_config import RunConfig
from tests.helpers.sessions import SMALL

NUM_ENVS, NUM_STEPS = 8, 6
UPDATE = NUM_ENVS * NUM_STEPS

PARTICLES = SPOConfig(particles=4, depth=3, resample_period=2, replay_size=3 * UPDATE)
TREES = AlphaZeroConfig(simulations=4, considered=4, replay_size=3 * UPDATE)
BOARD = {"rows": 4, "cols": 4, "connect": 3, "opening_plies": 0}
CONVOLUTIONS = PolicyConfig(hidden=(8,), encoder="grid_cnn", grid_channels=(8,), grid_blocks=1, shared_trunk=True)


def searching_config(env: str, algorithm: str, num_updates: int = 6, **changes: Any) -> RunConfig:
    """A config of so many short updates with few particles or small trees; `changes` are other fields."""
    ppo = PPOConfig(num_epochs=2, num_minibatches=2, learning_rate=0.003, gamma=0.97, normalize_rewards=False)
    search: dict[str, Any] = {"spo": PARTICLES} if algorithm == "spo" else {"alphazero": TREES}
    policy = PolicyConfig(hidden=(8,), encoder="mlp")
    settings = {"num_envs": NUM_ENVS, "num_steps": NUM_STEPS, "ppo": ppo, "policy": policy, **search, **changes}
    return replace(SMALL, env=env, algorithm=algorithm, total_timesteps=UPDATE * num_updates, **settings)


def normalized(config: RunConfig) -> RunConfig:
    """The same with rewards and observations normalized."""
    return replace(config, ppo=replace(config.ppo, normalize_rewards=True, normalize_observations=True))


RUNS: dict[str, RunConfig] = {
    "particles": searching_config("cartpole", "spo"),
    "particles, normalized": normalized(searching_config("cartpole", "spo")),
    "particles, by effective size": searching_config("maze", "spo", spo=replace(PARTICLES, resample="ess")),
    "particles, continuous": normalized(searching_config("pendulum", "spo")),
    "particles, two seats": searching_config("tic_tac_toe", "spo"),
    "trees": normalized(searching_config("maze", "alphazero")),
    "trees, two seats": searching_config("tic_tac_toe", "alphazero"),
    "trees, two seats, results": searching_config(
        "tic_tac_toe", "alphazero", alphazero=replace(TREES, value_target="result")
    ),
    "trees, convolutions": searching_config("connect_four", "alphazero", env_parameters=BOARD, policy=CONVOLUTIONS),
}
"""Six updates each; the replay holds three rollouts."""
