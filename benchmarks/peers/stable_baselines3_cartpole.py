"""Stable-Baselines3's PPO, and SBX's (the same in JAX), on Gymnasium's CartPole in their DummyVecEnv.

The timed work is what `learn` repeats, `collect_rollouts` and `train`, with the default MlpPolicy: separate 64x64 tanh
networks. To solve CartPole both have the settings that RL Baselines3 Zoo tuned for it (SBX is made to take them as they
are), its 100 K steps included; training stops at the rollout after which the last 100 episodes are good enough.
Where `sbx` is installed beside it, SBX is what runs.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from measuring import (
    EPOCHS,
    GAE_ENVS,
    GAE_LAMBDA,
    GAE_STEPS,
    GAMMA,
    MINIBATCHES,
    NUM_STEPS,
    SOLVED_EPISODES,
    SOLVED_RETURN,
    Answer,
    Task,
    main,
    median_rate,
    solved,
    unsolved,
)
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

IS_SBX = find_spec("sbx") is not None
if IS_SBX:
    from sbx import PPO
else:
    from stable_baselines3 import PPO

ZOO_STEPS = 100_000
ZOO = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0}
"""rl-baselines3-zoo, hyperparams/ppo.yml, CartPole-v1; with 8 envs, and rate and clip falling from these to 0."""
ZOO_ENVS, ZOO_RATE, ZOO_CLIP = 8, 0.001, 0.2


def make_model(num_envs: int, seed: int, **settings: Any) -> Any:
    """A PPO learner on CartPole, on the CPU."""
    device = {} if IS_SBX else {"device": "cpu"}
    return PPO("MlpPolicy", make_vec_env("CartPole-v1", num_envs, seed=seed), seed=seed, **settings, **device)


def env_steps(task: Task) -> Answer:
    """The envs that both train on, in one process."""
    envs = make_vec_env("CartPole-v1", task.num_envs, seed=task.seed)
    envs.reset()
    actions = np.random.default_rng(task.seed).integers(0, 2, (4, task.num_envs))

    def sweep() -> None:
        for row in actions:
            envs.step(row)

    rate = median_rate(sweep, actions.size, task.seconds)
    return {"steps_per_second": rate, "settings": "Gymnasium's CartPole in DummyVecEnv with Monitor"}


def training(task: Task) -> Answer:
    """Rollouts and updates in turn, as `learn` does it."""
    batch = task.num_envs * NUM_STEPS
    model = make_model(task.num_envs, task.seed, n_steps=NUM_STEPS, batch_size=batch // MINIBATCHES, n_epochs=EPOCHS)
    _, callback = model._setup_learn(10**9)

    def update() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, NUM_STEPS)
        model.train()

    rate = median_rate(update, batch, task.seconds, warm_ups=1)
    return {"steps_per_second": rate, "settings": "MlpPolicy, DummyVecEnv"}


class StopWhenSolved(BaseCallback):
    """Ends training once the last 100 training episodes are good enough."""

    answer: Answer | None = None

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        if len(returns) == SOLVED_EPISODES and np.mean(returns) >= SOLVED_RETURN:
            self.answer = solved(self.num_timesteps, "RL Baselines3 Zoo")

    def _on_step(self) -> bool:
        return self.answer is None


def solve(task: Task) -> Answer:
    """The zoo's settings."""
    clip = ZOO_CLIP if IS_SBX else lambda left: ZOO_CLIP * left  # SBX takes no schedule for the clip
    model = make_model(ZOO_ENVS, task.seed, learning_rate=lambda left: ZOO_RATE * left, clip_range=clip, **ZOO)
    stop = StopWhenSolved()
    model.learn(ZOO_STEPS, callback=stop)
    return stop.answer or unsolved(model.num_timesteps, "RL Baselines3 Zoo")


def gae(task: Task) -> Answer:
    """`RolloutBuffer.compute_returns_and_advantage`, a NumPy loop over steps."""
    envs = make_vec_env("CartPole-v1", 1)
    buffer = RolloutBuffer(
        GAE_STEPS, envs.observation_space, envs.action_space, "cpu", GAE_LAMBDA, GAMMA, n_envs=GAE_ENVS
    )
    random = np.random.default_rng(task.seed)
    shape = (GAE_STEPS, GAE_ENVS)
    buffer.rewards = random.random(shape, dtype=np.float32)
    buffer.values = random.random(shape, dtype=np.float32)
    buffer.episode_starts = (random.random(shape) < 0.02).astype(np.float32)
    last_values, dones = torch.rand(GAE_ENVS), np.zeros(GAE_ENVS, bool)

    rate = median_rate(
        lambda: buffer.compute_returns_and_advantage(last_values, dones), buffer.rewards.size, task.seconds
    )
    return {"steps_per_second": rate, "settings": "RolloutBuffer, NumPy loop"}


if __name__ == "__main__":
    works = {"env": env_steps, "training": training, "solve": solve, "gae": gae}
    main(__doc__, works, ["sbx-rl", "stable-baselines3", "jax", "torch", "gymnasium", "numpy"])
