"""Files of strangers run nothing: every way in which a checkpoint, config or run could name code, a path or a process.

Each hostile name would leave a canary behind, a file, if anything it names were run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import tomli_w
import tomllib
import torch
import yaml

import scramjet
from scramjet import cli
from scramjet.engine.space_files import space_to_data
from scramjet.errors import CheckpointError, ConfigError, ScramjetError, TrustError, WorldError
from scramjet.runtime import checkpoint_format
from scramjet.training.config import CheckpointConfig, EvaluationConfig, RunConfig

TINY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "num_threads": 1,
    "total_timesteps": 64,
    "device": "cpu",
    "eval": EvaluationConfig(every=0, final_episodes=0),
    "checkpoint": CheckpointConfig(every=1),
}
FLAGS = ("--num-envs 4 --num-steps 8 --num-threads 1 --device cpu --eval.every 0 --eval.final-episodes 0").split()

WORLD = """
from pathlib import Path
import numpy as np
from scramjet.envs import Box, Discrete, Env

class Walk(Env):
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"at": np.int32}
    max_episode_steps = 10
    length: int = 4

    def reset(self, s):
        s.at = 0

    def step(self, s, action):
        s.at = s.at + action
        return 1.0, s.at >= self.length

    def observe(self, s, obs):
        obs[0] = s.at / 10
"""

ENVS = """
import gymnasium

def make_env(level="easy", render_mode=None):
    return gymnasium.make("CartPole-v1", render_mode=render_mode)
"""


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has never named a world of his own."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "worlds"


@pytest.fixture(scope="module")
def cartpole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = RunConfig(env="cartpole", **TINY)
    return scramjet.train(config, runs_dir=tmp_path_factory.mktemp("runs"), display="quiet").run_path


@pytest.fixture
def run(cartpole_run: Path, tmp_path: Path) -> Path:
    """A run to forge, with one checkpoint."""
    copy = tmp_path / "stranger"
    shutil.copytree(cartpole_run, copy, symlinks=True)
    return copy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stranger's code: a file, a module and a package that leave a canary, all of them importable."""
    place = tmp_path / "evil"
    package = place / "evil_package"
    package.mkdir(parents=True)
    leave = f"open({str(tmp_path / 'canary')!r}, 'w').close()\n"
    for name in ("evil.py", "evil_module.py", "evil_package/__init__.py", "evil_package/worlds.py"):
        (place / name).write_text(leave + WORLD + ENVS)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place)
    yield place
    for name in [name for name in sys.modules if name.startswith("evil")]:
        del sys.modules[name]


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
    "train(FILE)": lambda run: scramjet.train(
        as_config(run, "toml"), runs_dir=run.parent / "runs", display="quiet"
    ),
    "load_config": lambda run: scramjet.load_config(as_config(run, "yaml")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_what_a_file_names_is_not_run(way: str, kind: str, run: Path, folder: Path) -> None:
    env = HOSTILE[kind](folder)
    forge(run, env)
    with pytest.raises(TrustError) as refused:
        WAYS[way](run)
    assert not canary_of(folder).exists()
    assert repr(env["name"]) in str(refused.value)
    assert "--trust" in str(refused.value)
    assert not (run.parent / "runs").exists()


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_policy_loads_without_its_world(kind: str, run: Path, folder: Path) -> None:
    forge(run, HOSTILE[kind](folder))
    policy = scramjet.load_policy(run)
    assert policy.act(torch.zeros(3, 4)).shape == (3,)
    assert not canary_of(folder).exists()


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_older_checkpoint_that_needs_its_world_for_that_is_refused(kind: str, run: Path, folder: Path) -> None:
    forge(run, HOSTILE[kind](folder), policy_spaces=None)
    with pytest.raises(TrustError):
        scramjet.load_policy(run)
    assert not canary_of(folder).exists()
