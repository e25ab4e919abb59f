"""How well worlds are learned without a preset: the study that the defaults were chosen by.

    python benchmarks/defaults.py                                        the defaults, all worlds, three seeds
    python benchmarks/defaults.py acrobot lights_out --set num_envs=32 minibatch_size=256
    python benchmarks/defaults.py --peer sb3 gym:LunarLander-v3          Stable-Baselines3's defaults, the same steps
    python benchmarks/defaults.py --peer zoo gym:LunarLander-v3          and the settings of its zoo

Every run is a process of its own on one thread; `--jobs` of them at a time. Scores are mean returns of 100 episodes
with the most likely actions after training, scaled so that 0 is random play and 1 is what a good agent reaches.
Peers need stable-baselines3 and gymnasium[box2d,mujoco] beside scramjet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIGHTS_OUT = f"{HERE / 'lights_out.py'}:LightsOut"


@dataclass(frozen=True)
class Task:
    """A world and its budget; returns of random play and of a good agent."""

    env: str
    steps: int
    random: float
    good: float

    def score(self, mean_return: float) -> float:
        """0 for random play, 1 for a good agent."""
        return (mean_return - self.random) / (self.good - self.random)


TASKS = {
    "cartpole": Task("cartpole", 100_000, 22, 500),
    "acrobot": Task("acrobot", 200_000, -500, -80),
    "mountain_car": Task("mountain_car", 500_000, -200, -110),
    "pendulum": Task("pendulum", 500_000, -1230, -160),
    "mountain_car_continuous": Task("mountain_car_continuous", 300_000, -33, 93),
    "squared": Task("squared", 500_000, 5, 24),
    "snake": Task("snake", 1_000_000, -1, 10),
    "lights_out": Task(LIGHTS_OUT, 1_000_000, -0.37, 0.94),
    "binpack": Task("binpack", 300_000, 0.43, 0.85),
    "gym:FrozenLake-v1": Task("gym:FrozenLake-v1", 100_000, 0.014, 0.74),
    "gym:Acrobot-v1": Task("gym:Acrobot-v1", 100_000, -500, -80),
    "gym:MountainCar-v0": Task("gym:MountainCar-v0", 300_000, -200, -110),
    "gym:LunarLander-v3": Task("gym:LunarLander-v3", 300_000, -180, 260),
    "gym:BipedalWalker-v3": Task("gym:BipedalWalker-v3", 500_000, -100, 300),
    "mujoco:HalfCheetah-v5": Task("mujoco:HalfCheetah-v5", 300_000, -280, 3000),
}

# rl-baselines3-zoo's hyperparams/ppo.yml, read 2026-11-16.
ZOO: dict[str, dict[str, Any]] = {
    "FrozenLake-v1": {},
    "Acrobot-v1": {
        "normalize": True, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4,
        "ent_coef": 0.0,
    },
    "MountainCar-v0": {
        "normalize": True, "n_envs": 16, "n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4,
        "ent_coef": 0.0,
    },
    "LunarLander-v3": {
        "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "BipedalWalker-v3": {
        "normalize": True, "n_envs": 32, "n_steps": 2048, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.999,
        "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 3e-4, "clip_range": 0.18,
    },
    "HalfCheetah-v5": {
        "normalize": True, "n_envs": 1, "n_steps": 512, "batch_size": 64, "gamma": 0.98, "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8,
        "vf_coef": 0.58096, "wide": True,
    },
}  # fmt: skip


def run_ours(task: Task, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Train without a preset; the last evaluation and the seconds it took."""
    from scramjet import train
    from scramjet.training.config.files import apply
    from scramjet.training.config.run_config import RunConfig

    config = RunConfig(env=task.env, seed=seed, total_timesteps=task.steps, num_threads=1)
    config = apply(config, settings, "--set")
    config = replace(config, eval=replace(config.eval, every=0))
    with tempfile.TemporaryDirectory() as runs:
        started = time.perf_counter()
        result = train(config, runs_dir=runs, display="quiet")
        assert result.evaluation is not None
        return {"return": result.evaluation.mean_return, "seconds": time.perf_counter() - started}


def run_peer(task: Task, seed: int, peer: str) -> dict[str, float]:
    """Stable-Baselines3 on the same env for the same steps."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    env_id = task.env.partition(":")[2]
    settings = dict(ZOO[env_id]) if peer == "zoo" else {}
    normalizes, wide = settings.pop("normalize", False), settings.pop("wide", False)
    if wide:
        layers = {"pi": [256, 256], "vf": [256, 256]}
        settings["policy_kwargs"] = {
            "log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU, "net_arch": layers,
        }  # fmt: skip
    envs = make_vec_env(env_id, n_envs=settings.pop("n_envs", 1), seed=seed)
    if normalizes:
        envs = VecNormalize(envs, gamma=settings.get("gamma", 0.99))
    started = time.perf_counter()
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **settings).learn(task.steps)
    seconds = time.perf_counter() - started
    fresh = make_vec_env(env_id, n_envs=1, seed=seed + 10_000)
    if normalizes:
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = envs.obs_rms
    mean, _ = evaluate_policy(model, fresh, n_eval_episodes=100, deterministic=True)
    return {"return": float(mean), "seconds": seconds}


def in_a_process(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    """One run, in a process of its own."""
    words = [sys.executable, __file__, name, "--one", str(seed), "--peer", arguments.peer, "--set", *arguments.set]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"return": float("nan"), "seconds": 0.0, "problem": done.stderr[-300:]}  # type: ignore[dict-item]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def results(arguments: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """Of each world, its runs."""
    with ThreadPoolExecutor(arguments.jobs) as jobs:
        waiting = {
            name: [jobs.submit(in_a_process, name, seed, arguments) for seed in range(1, arguments.seeds + 1)]
            for name in arguments.tasks
        }
        for name, runs in waiting.items():
            yield name, [run.result() for run in runs]


def parsed(words: list[str]) -> dict[str, Any]:
    """`name=value` pairs, values as YAML has them; `a.b=1` is an entry of a table."""
    import yaml

    settings: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        table, _, entry = name.rpartition(".")
        place = settings.setdefault(table, {}) if table else settings
        place[entry] = yaml.safe_load(value)
    return settings


def main() -> None:
    """Run the study, or one run of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"of: {', '.join(TASKS)}")
    parser.add_argument("--peer", choices=["ours", "sb3", "zoo"], default="ours")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], help="settings to try, as name=value")
    parser.add_argument("--one", type=int, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.tasks = arguments.tasks or list(TASKS)
    if arguments.one is not None:
        task = TASKS[arguments.tasks[0]]
        seed, peer = arguments.one, arguments.peer
        one = run_ours(task, seed, parsed(arguments.set)) if peer == "ours" else run_peer(task, seed, peer)
        print(json.dumps(one))
        return
    scores = []
    for name, runs in results(arguments):
        returns = [run["return"] for run in runs]
        scores.append(TASKS[name].score(statistics.mean(returns)))
        each, seconds = ", ".join(f"{value:.4g}" for value in returns), statistics.mean(r["seconds"] for r in runs)
        print(f"{name:26} {scores[-1]:6.2f}   {each}   ({seconds:.0f} s) {runs[0].get('problem', '')}", flush=True)
    print(f"{'mean':26} {statistics.mean(scores):6.2f}   {' '.join(arguments.set)}")


if __name__ == "__main__":
    main()
