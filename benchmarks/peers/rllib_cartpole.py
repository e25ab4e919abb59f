"""RLlib's PPO on Gymnasium's CartPole, everything in one process (no remote env runners, a local learner).

The timed work has the common settings. To solve CartPole it has those of its own example for it (`cartpole_ppo.py`),
with one env runner; training stops when the mean return that it reports, over its last 100 episodes, is high enough.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import ray
from measuring import (
    EPOCHS,
    GAE_LAMBDA,
    GAMMA,
    HIDDEN,
    MINIBATCHES,
    NUM_STEPS,
    SOLVED_RETURN,
    Answer,
    Task,
    main,
    median_rate,
    solved,
)
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def build(num_envs: int, seed: int, hidden: list[int], *, shared: bool, **settings: Any) -> Any:
    """A PPO algorithm on CartPole."""
    ray.init(num_cpus=len(os.sched_getaffinity(0)), include_dashboard=False, log_to_driver=False)
    model = DefaultModelConfig(fcnet_hiddens=hidden, fcnet_activation="tanh", vf_share_layers=shared)
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
        .learners(num_learners=0, num_gpus_per_learner=0)
        .debugging(seed=seed, log_level="ERROR")
        .rl_module(model_config=model)
        .training(**settings)
        .build_algo()
    )


def training(task: Task) -> Answer:
    """`Algorithm.train`: one rollout and the gradient steps on it."""
    batch = task.num_envs * NUM_STEPS
    algorithm = build(
        task.num_envs,
        task.seed,
        [HIDDEN, HIDDEN],
        shared=False,
        train_batch_size_per_learner=batch,
        minibatch_size=batch // MINIBATCHES,
        num_epochs=EPOCHS,
        gamma=GAMMA,
        lambda_=GAE_LAMBDA,
    )
    rate = median_rate(algorithm.train, batch, task.seconds, warm_ups=1)
    ray.shutdown()
    return {"steps_per_second": rate, "settings": "one process, Gymnasium's CartPole"}


def solve(task: Task) -> Answer:
    """The settings of its example."""
    algorithm = build(1, task.seed, [32], shared=True, lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
    while True:
        result = algorithm.train()
        if result["env_runners"].get("episode_return_mean", 0.0) >= SOLVED_RETURN:
            break
    answer = solved(int(result["num_env_steps_sampled_lifetime"]), "its example for CartPole")
    ray.shutdown()
    return answer


if __name__ == "__main__":
    main(__doc__, {"training": training, "solve": solve}, ["ray", "torch", "gymnasium", "numpy"])
