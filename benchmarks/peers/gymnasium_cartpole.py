"""Gymnasium's own vectorized CartPole, written in NumPy: env steps alone, for it has no learner."""

from __future__ import annotations

import gymnasium
import numpy as np
from measuring import Answer, Task, main, median_rate


def env_steps(task: Task) -> Answer:
    """All envs in one NumPy program."""
    envs = gymnasium.make_vec("CartPole-v1", num_envs=task.num_envs, vectorization_mode="vector_entry_point")
    envs.reset(seed=task.seed)
    actions = np.random.default_rng(task.seed).integers(0, 2, (64, task.num_envs))

    def sweep() -> None:
        for row in actions:
            envs.step(row)

    rate = median_rate(sweep, actions.size, task.seconds)
    return {"steps_per_second": rate, "settings": "CartPoleVectorEnv, NumPy"}


if __name__ == "__main__":
    main(__doc__, {"env": env_steps}, ["gymnasium", "numpy"])
