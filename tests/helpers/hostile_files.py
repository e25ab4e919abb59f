"""Worlds of a stranger and of the user, and a run to forge: for tests of files that name code."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import yaml

import scramjet
from scramjet import cli
from scramjet.errors import TrustError
from scramjet.runtime import checkpoint_format
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig

TINY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "num_threads": 1,
    "total_timesteps": 64,
    "device": "cpu",
    "eval": EvaluationConfig(every=0, final_episodes=0),
    "checkpoint": CheckpointConfig(every=1),
}

FLAGS = [
    *("--num-envs", "4", "--num-steps", "8", "--num-threads", "1", "--device", "cpu"),
    *("--eval.every", "0", "--eval.final-episodes", "0"),
]

ENVS = """
import gymnasium

def make_env(level="easy", render_mode=None):
    return gymnasium.make("CartPole-v1", render_mode=render_mode)
"""


def canary_of(folder: Path) -> Path:
    return folder.parent / "canary"


HOSTILE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "a shell command": lambda at: {"name": "factory:os:system", "command": f"touch {canary_of(at)}"},
    "a process": lambda at: {"name": "factory:subprocess:Popen", "args": ["touch", str(canary_of(at))]},
    "an expression": lambda at: {"name": "factory:builtins:eval", "source": f"open({str(canary_of(at))!r}, 'w')"},
    "a function in a file": lambda at: {"name": f"factory:{at / 'evil.py'}:make_env"},
    "a function in a file of this folder": lambda at: {"name": "factory:evil.py:make_env"},
    "a function in a module": lambda at: {"name": "factory:evil_module:make_env"},
    "a file": lambda at: {"name": str(at / "evil.py")},
    "a file of this folder": lambda at: {"name": "evil.py"},
    "a file by detours": lambda at: {"name": f"{at}/../evil/./evil.py:Walk"},
    "a class in a file": lambda at: {"name": f"{at / 'evil.py'}:Walk"},
    "a class in a module": lambda at: {"name": "evil_module:Walk"},
    "a class in a package": lambda at: {"name": "evil_package.worlds:Walk"},
    "a module for Gymnasium": lambda at: {"name": "gym:evil_module:CartPole-v1"},
    "a package for Gymnasium": lambda at: {"name": "gym:evil_package.worlds:CartPole-v1"},
    "a file for Gymnasium": lambda at: {"name": "gym:evil.py:CartPole-v1"},
    "a module for a vector env": lambda at: {"name": "vec:evil_module:CartPole-v1"},
    "a module for MuJoCo": lambda at: {"name": "mujoco:evil_module:CartPole-v1"},
    "a file for our worlds in Gymnasium": lambda at: {
        "name": "gym:scramjet/CartPole-v1",
        "world": str(at / "evil.py"),
    },
    "a file for our vector worlds in Gymnasium": lambda at: {
        "name": "vec:scramjet/CartPole-v1",
        "world": str(at / "evil.py"),
    },
    "an env of the old Gym": lambda at: {"name": "gym:GymV26Environment-v0", "env_id": "evil_module:CartPole-v1"},
}


def forge(run: Path, env: Any, **metadata: Any) -> None:
    """Have a run name another world, its hash computed anew: what a stranger can write."""
    config = tomllib.loads((run / "config.toml").read_text())
    (run / "config.toml").write_text(tomli_w.dumps({**config, "env": env}))
    for step in (run / "checkpoints").glob("step_*"):
        path = step / "metadata.json"
        record = json.loads(path.read_text())
        del record["sha256"]
        record.pop("signature", None)  # of whoever wrote it; what is forged a second time has none
        record["metadata"]["config"]["env"] = env
        record["metadata"].update(metadata)
        record["sha256"] = checkpoint_format._digest(record)
        path.write_text(json.dumps(record))


def as_config(run: Path, suffix: str) -> str:
    """The same world named by a config file."""
    env = tomllib.loads((run / "config.toml").read_text())["env"]
    path = run / f"named.{suffix}"
    path.write_text(tomli_w.dumps({"env": env}) if suffix == "toml" else yaml.safe_dump({"env": env}))
    return str(path)


def checkpoint_of(run: Path) -> str:
    return str(run / "checkpoints" / "latest")


def runs_of(run: Path) -> list[str]:
    return ["--runs-dir", str(run.parent / "runs"), "--display", "quiet"]


WAYS: dict[str, Callable[[Path], Any]] = {
    "eval a run": lambda run: cli.run(["eval", str(run), "--episodes", "1"]),
    "eval a checkpoint": lambda run: cli.run(["eval", checkpoint_of(run), "--json"]),
    "eval --render": lambda run: cli.run(["eval", str(run), "--render"]),
    "train --fork": lambda run: cli.run(["train", "--fork", checkpoint_of(run), *runs_of(run)]),
    "train --fork with flags": lambda run: cli.run(["train", "--fork", str(run), "--seed", "2", *runs_of(run)]),
    "train --fork --help": lambda run: cli.run(["train", "--fork", str(run), "--help"]),
    "train --resume": lambda run: cli.run(["train", "--resume", str(run), "--total-timesteps", "1K"]),
    "train --config TOML": lambda run: cli.run(["train", "--config", as_config(run, "toml"), *runs_of(run)]),
    "train --config YAML": lambda run: cli.run(["train", "--config", as_config(run, "yaml"), *runs_of(run)]),
    "train --config --help": lambda run: cli.run(["train", "--config", as_config(run, "toml"), "--help"]),
    "train --fork --config": lambda run: cli.run(
        ["train", "--fork", str(run), "--config", as_config(run, "toml"), *runs_of(run)]
    ),
    "evaluate": lambda run: scramjet.evaluate(run, episodes=1),
    "train(resume=...)": lambda run: scramjet.train(resume=run, total_timesteps=1000, display="quiet"),
    "train(fork=...)": lambda run: scramjet.train(fork=run, runs_dir=run.parent / "runs", display="quiet"),
    "train(FILE)": lambda run: scramjet.train(as_config(run, "toml"), runs_dir=run.parent / "runs", display="quiet"),
    "load_config": lambda run: scramjet.load_config(as_config(run, "yaml")),
}


def train(*words: str) -> Path:
    """Train a world named on the command line, a little."""
    arguments = ["train", *words, *FLAGS, "--total-timesteps", "32", "--run-name", "own", "--display", "quiet"]
    assert cli.run(arguments) == 0
    return Path("runs/own").resolve()


def refused(run: Path, problem: str = "would run the file|would import the module") -> None:
    with pytest.raises(TrustError, match=problem):
        scramjet.evaluate(run, episodes=1)
