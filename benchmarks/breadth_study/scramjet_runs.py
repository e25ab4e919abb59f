"""Scramjet on one task, with the code's defaults or with the world's preset; nothing else is set that learning sees."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace

from breadth_study.outcome import Outcome
from breadth_study.tasks import Task

from scramjet import evaluate, train
from scramjet.envs.registry import load_env
from scramjet.training.config.files import preset_path, starting_config
from scramjet.training.config.run_config import RunConfig


def has_preset(task: Task) -> bool:
    """Whether scramjet has tuned settings for the task's world."""
    return preset_path(task.world) is not None


def train_defaults(task: Task, steps: int, seed: int) -> Outcome:
    """The code's defaults: the world, the budget and the seed are all that is said."""
    return _train(RunConfig(env=task.world), task, steps, seed)


def train_preset(task: Task, steps: int, seed: int) -> Outcome:
    """The world's preset, as the bare command takes it, cut or stretched to the budget."""
    return _train(starting_config(task.world), task, steps, seed)


def _train(config: RunConfig, task: Task, steps: int, seed: int) -> Outcome:
    """Train and evaluate. A preset may change the world to learn it more easily; it is evaluated in the plain one."""
    config = replace(config, seed=seed, total_timesteps=steps, num_threads=1, device="cpu")
    if not task.is_native:
        config = replace(config, num_workers=0)
    config = replace(config, eval=replace(config.eval, every=0, final_episodes=0))
    config = replace(config, checkpoint=replace(config.checkpoint, every=0))
    with tempfile.TemporaryDirectory() as runs:
        started = time.perf_counter()
        result = train(config, runs_dir=runs, display="quiet")
        seconds = time.perf_counter() - started
        plain = {name: getattr(load_env(task.world), name) for name in config.env_parameters}
        latest = result.run_path / "checkpoints" / "latest"
        evaluation = evaluate(latest, task.episodes, env_parameters=plain or None, samples=False)
        return Outcome(evaluation.mean_return, result.step, seconds)
