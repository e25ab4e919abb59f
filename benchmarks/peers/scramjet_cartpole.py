"""Scramjet's own part of the comparison; runs in the environment that scramjet is installed in.

Threads are what `scramjet train` would choose for the batch. To solve CartPole is `scramjet train cartpole` with its
preset; the program reads the run's metrics as they are written and stops it when the last 100 episodes say so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import (
    EPOCHS,
    GAE_ENVS,
    GAE_LAMBDA,
    GAE_STEPS,
    GAMMA,
    MINIBATCHES,
    NUM_STEPS,
    SOLVED_RETURN,
    Answer,
    Task,
    main,
    median_rate,
    solved,
    unsolved,
)

POLL_SECONDS = 0.01


def env_steps(task: Task) -> Answer:
    """The pool stepped with actions drawn beforehand, on all cores."""
    import numpy as np

    import scramjet
    from scramjet.runtime.machine import available_cores

    pool = scramjet.make("cartpole", task.num_envs, num_threads=available_cores())
    pool.reset(task.seed)
    actions = np.random.default_rng(task.seed).integers(0, 2, (64, task.num_envs))

    def sweep() -> None:
        for row in actions:
            pool.step(row)

    rate = median_rate(sweep, actions.size, task.seconds)
    return {"steps_per_second": rate, "settings": f"native pool, {available_cores()} threads"}


def training(task: Task) -> Answer:
    """What `scramjet bench` measures as training."""
    from scramjet.commands.bench import Arguments, measure
    from scramjet.runtime.devices import keep_freed_memory
    from scramjet.training.config.resolution import resolve
    from scramjet.training.config.run_config import RunConfig

    keep_freed_memory()
    threads = resolve(RunConfig(num_envs=task.num_envs, num_steps=NUM_STEPS, device="cpu")).num_threads
    assert isinstance(threads, int)
    arguments = Arguments(num_steps=NUM_STEPS, num_epochs=EPOCHS, num_minibatches=MINIBATCHES, seconds=task.seconds)
    row = measure(arguments, task.num_envs, threads)
    return {
        "steps_per_second": row.train_steps_per_second,
        "settings": "as `scramjet bench`, threads as `scramjet train` chooses",
    }


def solve(task: Task) -> Answer:
    """Train from the preset until the last 100 episodes are good enough."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "cartpole", "--seed", str(task.seed), "--runs-dir", folder, "--display", "quiet"]
        run = subprocess.Popen([sys.executable, "-m", "scramjet", *words], stdout=subprocess.DEVNULL)
        try:
            return _watch(run, Path(folder) / "cartpole-1" / "metrics.jsonl")
        finally:
            run.terminate()
            run.wait()


def _watch(run: subprocess.Popen[bytes], metrics: Path) -> Answer:
    """Read each line of metrics as it comes."""
    step, seen = 0, 0
    while True:
        has_ended = run.poll() is not None  # before the last look at the file
        lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
        for line in lines[seen:]:
            record = json.loads(line)
            step = record["step"]
            if (record["return_100"] or 0.0) >= SOLVED_RETURN:
                return solved(step, "the preset of `scramjet train cartpole`")
        if has_ended:
            return unsolved(step, "the preset of `scramjet train cartpole`")
        seen = len(lines)
        time.sleep(POLL_SECONDS)


def gae(task: Task) -> Answer:
    """`scramjet.algorithms.advantages.gae`, with its bootstrap of truncated episodes."""
    import torch

    from scramjet.algorithms.advantages import gae as advantages
    from scramjet.runtime.devices import keep_freed_memory

    keep_freed_memory()  # as training does
    torch.manual_seed(task.seed)
    shape = (GAE_STEPS, GAE_ENVS)
    reward, final_value, value = torch.rand(shape), torch.rand(shape), torch.rand(GAE_STEPS + 1, GAE_ENVS)
    terminated, truncated = torch.rand(shape) < 0.02, torch.rand(shape) < 0.002

    def once() -> None:
        advantages(reward, value, terminated, truncated, final_value, gamma=GAMMA, gae_lambda=GAE_LAMBDA)

    rate = median_rate(once, reward.numel(), task.seconds)
    return {"steps_per_second": rate, "settings": "Numba, 1 thread"}


if __name__ == "__main__":
    works = {"env": env_steps, "training": training, "solve": solve, "gae": gae}
    main(__doc__, works, ["scramjet", "torch", "numba", "numpy"])
