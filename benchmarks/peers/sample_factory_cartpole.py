"""Sample Factory's asynchronous PPO on Gymnasium's CartPole: two processes that act, one that infers, one that learns.

The timed work has the common settings; its normalization of observations and returns is off, as nobody else's is on.
Steps count when the learner has trained on them. To solve CartPole it has the settings of the command that its own
`sf_examples/train_gym_env.py` gives for it, on as many workers as there are cores.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Any

import torch
from measuring import (
    EPOCHS,
    GAE_ENVS,
    GAE_LAMBDA,
    GAE_STEPS,
    GAMMA,
    HIDDEN,
    MINIBATCHES,
    NUM_STEPS,
    SOLVED_EPISODES,
    SOLVED_RETURN,
    WARM_UPS,
    Answer,
    Task,
    main,
    median_rate,
    solved,
    unsolved,
)
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.rl_utils import gae_advantages
from sample_factory.train import make_runner
from sf_examples.train_gym_env import parse_custom_args, register_custom_components

LEARNING_RATE = 0.001
EXAMPLE = [
    "--use_rnn=False",
    "--num_envs_per_worker=20",
    "--policy_workers_per_policy=2",
    "--recurrence=1",
    "--with_vtrace=False",
    "--batch_size=512",
    "--reward_scale=0.1",
]


class Watch(AlgoObserver):
    """When the learner had trained on how many steps."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.times: list[float] = []
        self.steps: list[int] = []
        self.answer: Answer | None = None

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Called after each update; once there is an answer, it stays."""
        if self.answer is not None:
            return
        self.times.append(time.perf_counter())
        self.steps.append(sum(runner.env_steps.values()))
        (self._look_at_returns if self.task.work == "solve" else self._look_at_clock)(runner)

    def _look_at_clock(self, runner: Runner) -> None:
        begin = WARM_UPS - 1
        if len(self.times) > WARM_UPS and self.times[-1] - self.times[begin] >= self.task.seconds:
            rate = (self.steps[-1] - self.steps[begin]) / (self.times[-1] - self.times[begin])
            returns = runner.policy_avg_stats.get("reward", [[]])[0]
            self.answer = {
                "steps_per_second": rate,
                "settings": "asynchronous, processes for acting and learning",
                "steps": self.steps[-1],
                "return": statistics.fmean(returns) if returns else None,
            }
            runner.cfg.train_for_env_steps = 0  # which ends the run

    def _look_at_returns(self, runner: Runner) -> None:
        returns = runner.policy_avg_stats.get("reward", [[]])[0]
        if len(returns) >= SOLVED_EPISODES and statistics.fmean(returns) >= SOLVED_RETURN:
            self.answer = solved(self.steps[-1], "its example for CartPole")
            runner.cfg.train_for_env_steps = 0


def run(task: Task, words: list[str]) -> Answer:
    """Train until the watch has seen enough."""
    register_custom_components()
    watch = Watch(task)
    with tempfile.TemporaryDirectory() as folder:
        common = ["--env=CartPole-v1", "--device=cpu", f"--seed={task.seed}", f"--train_dir={folder}"]
        workers = f"--num_workers={len(os.sched_getaffinity(0))}"
        _, runner = make_runner(parse_custom_args([*common, workers, "--experiment=cartpole", *words]))
        runner.register_observer(watch)
        runner.init()
        runner.run()
    return watch.answer or unsolved(watch.steps[-1] if watch.steps else 0, "its example for CartPole")


def training(task: Task) -> Answer:
    """The common settings."""
    workers = len(os.sched_getaffinity(0))
    batch = task.num_envs * NUM_STEPS
    words: dict[str, Any] = {
        "num_envs_per_worker": task.num_envs // workers,
        "rollout": NUM_STEPS,
        "recurrence": 1,
        "use_rnn": False,
        "batch_size": batch // MINIBATCHES,
        "num_batches_per_epoch": MINIBATCHES,
        "num_epochs": EPOCHS,
        "learning_rate": LEARNING_RATE,
        "nonlinearity": "tanh",
        "actor_critic_share_weights": False,
        "normalize_input": False,
        "normalize_returns": False,
        "with_vtrace": False,
        "reward_scale": 0.1,  # else it warns of large losses, line upon line
    }
    layers = ["--encoder_mlp_layers", str(HIDDEN), str(HIDDEN)]
    return run(task, [*(f"--{name}={value}" for name, value in words.items()), *layers])


def solve(task: Task) -> Answer:
    """The settings of its example."""
    return run(task, EXAMPLE)


def gae(task: Task) -> Answer:
    """`gae_advantages`, a scripted torch loop; it has the envs first."""
    torch.manual_seed(task.seed)
    shape = (GAE_ENVS, GAE_STEPS)
    rewards, dones, values = torch.rand(shape), torch.rand(shape) < 0.02, torch.rand(GAE_ENVS, GAE_STEPS + 1)
    valids = torch.ones(GAE_ENVS, GAE_STEPS + 1, dtype=torch.bool)

    def once() -> None:
        gae_advantages(rewards, dones, values, valids, GAMMA, GAE_LAMBDA) + values[:, :-1]

    return {"steps_per_second": median_rate(once, rewards.numel(), task.seconds), "settings": "its scripted torch loop"}


if __name__ == "__main__":
    main(__doc__, {"training": training, "solve": solve, "gae": gae}, ["sample-factory", "torch", "gymnasium", "numpy"])
