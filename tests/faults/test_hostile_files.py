"""Files of strangers run nothing: every way in which a checkpoint, config or run could name code, a path or a process.

Each hostile name would leave a canary behind, a file, if anything it names were run.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import py_compile
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import tomli_w
import torch
import yaml

import scramjet
from scramjet import cli
from scramjet.adapters import factories
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import CheckpointError, ConfigError, ScramjetError, TrustError, WorldError
from scramjet.policies.config import PolicyConfig
from scramjet.runtime import checkpoint_format
from scramjet.training.collector import read_schedule
from scramjet.training.config.files import field_docs
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.playing import load_trained
from scramjet.training.session import make_pool

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


# Every way with a third of the kinds, every kind with a third of the ways.
PAIRS = [(way, kind) for i, way in enumerate(WAYS) for j, kind in enumerate(HOSTILE) if (i + j) % 3 == 0]


@pytest.mark.parametrize(("way", "kind"), PAIRS)
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


@pytest.mark.parametrize(
    "settings",
    [
        {"env": "cartpole", "frame_stack": 3, "ppo": PPOConfig(normalize_observations=True)},
        {"env": "maze", "policy": PolicyConfig(memory="gru", memory_size=8)},
        {"env": "pendulum", "policy": PolicyConfig(shared_trunk=True)},
        {"env": "gym:FrozenLake-v1", "num_workers": 0},
        {"env": "squared"},
    ],
    ids=lambda settings: settings["env"],
)
def test_a_policy_loaded_without_its_world_is_the_one_loaded_with_it(settings: dict[str, Any], tmp_path: Path) -> None:
    run = scramjet.train(RunConfig(**{**TINY, **settings}), runs_dir=tmp_path, display="quiet").run_path
    alone = scramjet.load_policy(run)
    beside_its_world, config, _ = load_trained(run)
    assert str(alone) == str(beside_its_world)
    assert alone.state_dict().keys() == beside_its_world.state_dict().keys()
    pool = make_pool(config, num_envs=3)
    out, states = pool.reset(0), [policy.initial_state(pool.num_rows) for policy in (alone, beside_its_world)]
    actions = [
        policy.act(out.obs, state if policy.state_size else None, mask=out.mask)
        for policy, state in zip((alone, beside_its_world), states, strict=True)
    ]
    pool.close()
    assert torch.equal(*actions)


def box(*shape: int) -> dict[str, Any]:
    return {"kind": "box", "dtype": "float32", "shape": list(shape), "low": 0.0, "high": 1.0}


ACTIONS = {"kind": "discrete", "n": 2, "start": 0}


@pytest.mark.parametrize(
    "spaces",
    [
        "Box(0, 1, (4,), float32)",
        [],
        [box(4)],
        [box(4), ACTIONS, ACTIONS],
        [None, None],
        [box(10**9, 10**9), ACTIONS],
        [box(1 << 20), ACTIONS],  # sound, and not what the weights are for
        [box(4), {"kind": "discrete", "n": 1 << 24, "start": 0}],
        [ACTIONS, box(4)],
    ],
    ids=str,
)
def test_spaces_that_are_none_or_not_the_weights_are_refused(spaces: Any, run: Path) -> None:
    forge(run, {"name": "cartpole"}, policy_spaces=spaces)
    with pytest.raises(CheckpointError):
        scramjet.load_policy(run)


def test_a_network_larger_than_the_checkpoints_tensors_takes_no_memory(run: Path) -> None:
    config = json.loads((run / "checkpoints" / "latest" / "metadata.json").read_text())["metadata"]["config"]
    config["policy"]["hidden"] = [1 << 16, 1 << 15]  # 8 GB and as much again for the value
    forge(run, {"name": "cartpole"}, policy_spaces=[box(1 << 20), ACTIONS], config=config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="holds another network"):
        scramjet.load_policy(run)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB: a gigabyte


QUIETLY_HOSTILE: dict[str, dict[str, Any]] = {
    "a model file": {"name": "mujoco:Ant-v5", "xml_file": "/etc/passwd"},
    "a program of EnvPool's": {"name": "envpool:VizdoomCustom-v1", "vzd_path": "/bin/sh"},
    "EnvPool's folder": {"name": "envpool:Pong-v5", "base_path": "."},
    "a folder of ROMs": {"name": "pettingzoo:pong_v3", "auto_rom_install_path": "."},
    "text in a list": {"name": "gym:CartPole-v1", "things": [1, [2, "evil.py"]]},
    "text in a table": {"name": "gym:CartPole-v1", "things": {"a": {"b": "evil.py"}}},
    "a window": {"name": "gym:CartPole-v1", "render_mode": "human"},
    "wrappers": {"name": "vec:CartPole-v1", "wrappers": ["os.system"]},
    "a way to make many": {"name": "vec:CartPole-v1", "vector_kwargs": {"worker": "os:system"}},
    "a word in another's place": {"name": "gym:CartPole-v1", "entry_point": "rgb_array"},
}


@pytest.mark.parametrize("env", QUIETLY_HOSTILE.values(), ids=QUIETLY_HOSTILE)
def test_text_that_a_library_might_load_things_by_is_refused(env: dict[str, Any], run: Path) -> None:
    forge(run, env)
    (key,) = env.keys() - {"name"}
    for way in ("eval a run", "train --resume", "train --config TOML"):
        with pytest.raises(TrustError, match=key):
            WAYS[way](run)


@pytest.mark.parametrize(
    "name", ["os", "pettingzoo", "..evil_module", "evil_module_v1", "classic.connect_four_v3", "../evil_v1", "a:b_v1"]
)
def test_a_name_for_pettingzoo_is_no_module_of_anybody_elses(name: str, run: Path, folder: Path) -> None:
    pytest.importorskip("pettingzoo")
    (folder / "evil_module_v1.py").write_text((folder / "evil_module.py").read_text())
    forge(run, {"name": f"pettingzoo:{name}"})
    with pytest.raises((TrustError, WorldError)):
        cli.run(["eval", str(run)])
    assert not canary_of(folder).exists()


@pytest.mark.parametrize("name", ["ale:evil.py", "ale:../../evil", "ale:os:system", "envpool:evil_module", "mujoco:x"])
def test_a_game_that_a_library_does_not_have_is_refused_by_its_name(name: str, run: Path, folder: Path) -> None:
    forge(run, {"name": name})
    with pytest.raises((TrustError, WorldError), match=r"ale|Atari|[Ee]nv[Pp]ool|Gymnasium"):
        cli.run(["eval", str(run)])
    assert not canary_of(folder).exists()


@pytest.mark.parametrize(
    "env",
    [
        {"name": "gym:CartPole-v1"},
        {"name": "vec:CartPole-v1", "vectorization_mode": "sync"},
        {"name": "gym:scramjet/CartPole-v1", "gravity": 9.8},
        {"name": "gym:CartPole-v1", "render_mode": "rgb_array", "sutton_barto_reward": False, "max_episode_steps": 9},
    ],
    ids=lambda env: " ".join(map(str, env.values())),
)
def test_worlds_of_installed_libraries_are_anybodys_to_name(env: dict[str, Any], run: Path) -> None:
    spaces = {}
    made = scramjet.make(env["name"], 1)
    for name in ("observation_space", "action_space"):
        spaces[name] = repr(getattr(made, name))
    made.close()
    forge(run, env, **spaces)
    assert scramjet.evaluate(run, episodes=1).episodes == 1


def test_the_command_line_says_it_in_one_message_and_exits_with_2(run: Path, folder: Path) -> None:
    forge(run, HOSTILE["a shell command"](folder))
    environment = {**os.environ, "PYTHONPATH": str(Path(scramjet.__file__).parents[1])}
    command = [sys.executable, "-P", "-m", "scramjet", "eval", str(run)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == 2
    assert ended.stderr.startswith("scramjet: checkpoint ")
    assert "would import the module 'os' and call its function 'system' (command='touch " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not canary_of(folder).exists()


@pytest.mark.parametrize("kind", ["a function in a file", "a class in a module", "a module for Gymnasium"])
@pytest.mark.parametrize(
    "way",
    [
        lambda run: cli.run(["eval", str(run), "--episodes", "1", "--trust"]),
        lambda run: cli.run(["train", "--resume", str(run), "--total-timesteps", "128", "--trust", *runs_of(run)]),
        lambda run: cli.run(["train", "--fork", str(run), "--trust", "--total-timesteps", "128", *runs_of(run)]),
        lambda run: scramjet.evaluate(run, episodes=1, trust=True),
        lambda run: scramjet.train(resume=run, total_timesteps=128, trust=True, display="quiet"),
        lambda run: scramjet.load_config(as_config(run, "toml"), trust=True).make_env().observation_space,
    ],
    ids=["eval", "resume", "fork", "evaluate", "train", "load_config"],
)
def test_trust_lets_a_file_name_what_it_likes(way: Callable[[Path], Any], kind: str, run: Path, folder: Path) -> None:
    forge(run, HOSTILE[kind](folder))
    with suppress(CheckpointError, ConfigError):  # it is no checkpoint of that world
        way(run)
    assert canary_of(folder).exists()


def test_a_world_on_the_command_line_stands_in_place_of_a_strangers(run: Path, folder: Path) -> None:
    forge(run, HOSTILE["a file"](folder))
    for words in (
        ["cartpole", "--fork", str(run), "--total-timesteps", "128"],
        ["--fork", str(run), "--total-timesteps", "128", "cartpole"],
        ["--config", as_config(run, "toml"), *FLAGS, "--total-timesteps", "32", "cartpole"],
        ["cartpole", "--config", as_config(run, "yaml"), *FLAGS, "--total-timesteps", "32"],
    ):
        assert cli.run(["train", *words, *runs_of(run)]) == 0
    assert cli.run(["eval", str(run), "--env", "cartpole", "--episodes", "1"]) == 0
    assert scramjet.evaluate(run, episodes=1, env="cartpole").episodes == 1
    assert scramjet.train(resume=run, env="cartpole", total_timesteps=128, display="quiet").step == 128
    assert not canary_of(folder).exists()


def test_what_a_file_adds_to_a_world_that_the_user_names_is_looked_at_too(run: Path, folder: Path) -> None:
    forge(run, {"name": "factory:builtins:eval", "source": f"open({str(canary_of(folder))!r}, 'w')"})
    for words in (["--config", as_config(run, "toml")], ["--fork", str(run)]):
        with pytest.raises(TrustError, match="source="):
            cli.run(["train", "factory:builtins:eval", *words, *runs_of(run)])
    with pytest.raises(TrustError, match="source="):
        cli.run(["eval", str(run), "--env", "factory:builtins:eval"])
    assert not canary_of(folder).exists()


# What somebody trained himself -----------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's own folder, where he works."""
    place = tmp_path / "mine"
    place.mkdir(mode=0o700)
    (place / "own_world.py").write_text("from own_helper import GOAL\n" + WORLD)
    (place / "own_helper.py").write_text("GOAL = 3\n")
    (place / "own_envs.py").write_text(ENVS)
    registers = "import gymnasium\ngymnasium.register('Own-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    (place / "own_registers.py").write_text(registers)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    yield place
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    gymnasium.registry.pop("Own-v0", None)


def train(*words: str) -> Path:
    """Train a world named on the command line, a little."""
    arguments = ["train", *words, *FLAGS, "--total-timesteps", "32", "--run-name", "own", "--display", "quiet"]
    assert cli.run(arguments) == 0
    return Path("runs/own").resolve()


def use_all(run: Path) -> None:
    """Everything that a user does with a run of his, and nothing said about trust."""
    number = len(list(run.parent.iterdir()))
    assert cli.run(["eval", str(run), "--episodes", "1"]) == 0
    assert scramjet.evaluate(run, episodes=1).episodes == 1
    scramjet.load_policy(run)
    assert cli.run(["train", "--resume", "own", "--total-timesteps", str(64 * number), "--display", "quiet"]) == 0
    fork = ["train", "--fork", str(run), "--total-timesteps", str(128 * number), "--display", "quiet"]
    assert cli.run([*fork, "--run-name", f"fork-{number}"]) == 0
    assert (
        cli.run(["train", "--config", str(run / "config.toml"), "--total-timesteps", "32", "--display", "quiet"]) == 0
    )


OWN = {
    "a file": ["own_world.py"],
    "a class in a file": ["own_world.py:Walk", "--env.length", "3"],
    "a class in a module": ["own_world:Walk"],
    "a function in a file": ["factory:own_envs.py:make_env", "--env.level", "hard"],
    "a function in a module": ["factory:own_envs:make_env"],
    "a module for Gymnasium": ["gym:own_registers:Own-v0"],
    "text for a library": [
        "vec:CartPole-v1",
        "--env.vectorization-mode",
        "sync",
        "--env.render-mode",
        "rgb_array_list",
    ],
}


@pytest.mark.parametrize("words", OWN.values(), ids=OWN)
def test_what_somebody_trained_himself_needs_no_trust(words: list[str], own: Path) -> None:
    use_all(train(*words))


def test_a_world_that_its_author_has_edited_since_needs_none_either(own: Path) -> None:
    run = train("own_world.py")
    (own / "own_world.py").write_text((own / "own_world.py").read_text().replace("1.0, s.at", "2.0, s.at"))
    (own / "own_helper.py").write_text("GOAL = 4\n")
    use_all(run)


def test_checking_or_measuring_a_world_names_it(own: Path) -> None:
    Path("own.toml").write_text("env = 'own_world.py'\n")
    with pytest.raises(TrustError, match=re.escape(str(own / "own_world.py"))):
        scramjet.load_config("own.toml")
    assert cli.run(["check", "own_world.py", "--steps", "5"]) == 0
    assert scramjet.load_config("own.toml").make_env().length == 4


def test_a_function_given_from_python_is_remembered_for_the_command_line(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import own_envs  # type: ignore[import-not-found]

    result = scramjet.train(RunConfig(**TINY), env=own_envs.make_env, display="quiet")
    monkeypatch.setattr(factories, "_FACTORIES", {})  # as in another process
    assert cli.run(["eval", str(result.run_path), "--episodes", "1"]) == 0


def test_a_function_that_is_in_no_module_is_asked_for_by_its_name(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_env = lambda: gymnasium.make("CartPole-v1")  # noqa: E731
    result = scramjet.train(RunConfig(**TINY), env=make_env, display="quiet")
    monkeypatch.setattr(factories, "_FACTORIES", {})
    with pytest.raises(WorldError, match="must be given again from Python"):
        cli.run(["eval", str(result.run_path)])
    assert scramjet.evaluate(result.run_path, episodes=1, env=make_env).episodes == 1


def test_a_world_that_has_moved_is_named_anew(own: Path) -> None:
    run = train("own_world.py", "--env.length", "3")
    (own / "elsewhere").mkdir()
    for name in ("own_world.py", "own_helper.py"):
        (own / name).rename(own / "elsewhere" / name)
    shutil.rmtree(run / "world")  # the copy that would play instead
    with pytest.raises(WorldError, match="no such file"):
        cli.run(["eval", str(run)])
    assert cli.run(["eval", str(run), "--env", "elsewhere/own_world.py", "--episodes", "1"]) == 0


# What is remembered covers no more than that -----------------------------------------------------------------------


def refused(run: Path, problem: str = "would run the file|would import the module") -> None:
    with pytest.raises(TrustError, match=problem):
        scramjet.evaluate(run, episodes=1)


def test_the_same_source_in_another_place_is_another_world(own: Path) -> None:
    run = train("own_world.py")
    shutil.copytree(own, own.parent / "theirs")
    forge(run, {"name": str(own.parent / "theirs" / "own_world.py")})
    refused(run)


def test_a_module_of_the_same_name_in_another_place_is_another(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train("own_world:Walk")
    theirs = own.parent / "theirs"
    shutil.copytree(own, theirs)
    monkeypatch.syspath_prepend(str(theirs))
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    refused(run)


def test_what_was_let_through_once_is_asked_for_again_when_it_has_changed(own: Path) -> None:
    run = train("own_world.py")
    shutil.copytree(own, own.parent / "theirs")
    world = own.parent / "theirs" / "own_world.py"
    forge(run, {"name": str(world)})
    assert scramjet.evaluate(run, episodes=1, trust=True).episodes == 1
    assert scramjet.evaluate(run, episodes=1).episodes == 1  # as it was
    world.with_name("own_helper.py").write_text("GOAL = 5\n")
    refused(run, "has changed since you let it through")


@pytest.fixture
def theirs(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's folder with a world and a run of it, of which the sources were let through once."""
    place = own.parent / "theirs"
    shutil.copytree(own, place)
    run = train("own_world.py")
    shutil.copytree(run, place / "run", symlinks=True)
    forge(place / "run", {"name": str(place / "own_world.py")})
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(own)])
    forget_own()
    assert scramjet.evaluate(place / "run", episodes=1, trust=True).episodes == 1
    forget_own()
    return place


def forget_own() -> None:
    """Import them again, as another process would."""
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


CANARY = "from pathlib import Path\nPath({canary!r}).touch()\n"


@pytest.mark.parametrize("module", ["own_world", "own_helper"])
def test_compiled_files_do_not_run_in_place_of_the_source_that_was_let_through(module: str, theirs: Path) -> None:
    source, canary = theirs / f"{module}.py", theirs / "canary"
    hostile = theirs / "hostile.py"
    hostile.write_text(CANARY.format(canary=str(canary)) + source.read_text())
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(hostile), importlib.util.cache_from_source(str(source)), invalidation_mode=unchecked)
    assert scramjet.evaluate(theirs / "run", episodes=1).episodes == 1
    assert not canary.exists()


def test_what_is_added_beside_a_world_that_was_let_through_is_not_imported(theirs: Path) -> None:
    canary = theirs / "canary"
    (theirs / "own_added.py").write_text(CANARY.format(canary=str(canary)))
    compiled = theirs / f"own_helper{EXTENSION_SUFFIXES[0]}"
    compiled.write_text("would be loaded before the source\n")
    assert scramjet.evaluate(theirs / "run", episodes=1).episodes == 1
    assert str(theirs) in sys.path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("own_added")
    assert not canary.exists()
    compiled.unlink()
    assert cli.run(["check", str(theirs / "own_world.py"), "--steps", "5"]) == 0  # which names it
    importlib.import_module("own_added")
    assert canary.exists()


def test_worker_processes_import_what_this_one_would(theirs: Path) -> None:
    canary = theirs / "canary"
    (theirs / "own_envs.py").write_text("import own_package.inner\n" + ENVS)
    (theirs / "own_package").mkdir()
    (theirs / "own_package" / "inner.py").write_text("")
    name = f"factory:{theirs / 'own_envs.py'}:make_env"
    forge(theirs / "run", {"name": name})
    (theirs / "sitecustomize.py").write_text(CANARY.format(canary=str(canary)))
    (theirs / "cloudpickle.py").write_text(CANARY.format(canary=str(canary)))
    config = theirs / "run" / "config.toml"
    words = ["train", "--config", str(config), *FLAGS, "--total-timesteps", "32", "--num-workers", "1"]
    assert cli.run([*words, "--run-name", "worked", "--display", "quiet", "--trust"]) == 0
    assert not canary.exists()


def test_a_changed_world_in_the_runs_own_folder_is_asked_for_again(own: Path) -> None:
    run = train("own_world.py")
    for name in ("own_world.py", "own_helper.py"):
        shutil.copy(own / name, run / name)
    assert cli.run(["check", str(run / "own_world.py"), "--steps", "5"]) == 0
    forge(run, {"name": str(run / "own_world.py")})
    assert scramjet.evaluate(run, episodes=1).episodes == 1
    (run / "own_world.py").write_text((run / "own_world.py").read_text() + "\n# theirs\n")
    refused(run, "lies in the run's own folder")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes")
@pytest.mark.parametrize("shared", ["own_world.py", "."])
def test_a_world_that_others_can_change_is_asked_for_again_when_it_has(shared: str, own: Path) -> None:
    run = train("own_world.py")
    (own / shared).chmod(0o777)
    assert scramjet.evaluate(run, episodes=1).episodes == 1
    (own / "own_world.py").write_text((own / "own_world.py").read_text() + "\n# somebody's\n")
    refused(run, "others can write to it")
    (own / shared).chmod(0o700)
    assert scramjet.evaluate(run, episodes=1).episodes == 1


def test_other_text_for_a_function_that_the_user_named_is_refused(own: Path) -> None:
    run = train("factory:own_envs.py:make_env", "--env.level", "hard")
    name = f"factory:{own / 'own_envs.py'}:make_env"
    forge(run, {"name": name, "level": "easy"})
    refused(run, "level='easy'")
    forge(run, {"name": name, "level": "hard"})
    assert scramjet.evaluate(run, episodes=1).episodes == 1


def test_another_function_of_a_file_that_the_user_named_is_refused(own: Path) -> None:
    run = train("factory:own_envs.py:make_env")
    forge(run, {"name": f"factory:{own / 'own_envs.py'}:gymnasium"})
    refused(run, "call its function 'gymnasium'")


def test_a_forged_memory_is_not_believed(own: Path, nothing_remembered: Path) -> None:
    run = train("own_world.py")
    records = list(nothing_remembered.iterdir())
    assert len(records) == 2  # of the file, and of the copy that the run keeps
    shutil.copytree(own, own.parent / "theirs")
    forge(run, {"name": str(own.parent / "theirs" / "own_world.py")})
    for number, record in enumerate(records):  # under names that are not their keys'
        (record.parent / f"{number:064}.json").write_bytes(record.read_bytes())
    refused(run)


# Names that are none ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"name": "a\0.py"}, "control character|no world's"),
        ({"name": "evil.py\n"}, "no world's"),
        ({"name": "\x1b[2J.py"}, "control character|no world's"),
        ({"name": "x" * 5000 + ".py"}, "no world's"),
        ({"name": "x" * 300 + ".py"}, "--trust"),
        ({"name": "loop.py"}, "--trust"),
        ({"name": "FACTORY:os:system"}, "--trust"),
        ({"name": "gym :os:system"}, "--trust"),
        ({"name": "evil.py:"}, "--trust"),
        ({"name": "factory:os"}, "--trust"),
        ({"name": "os.system"}, "unknown world"),
        ({"name": "gym:"}, "names no world"),
        ({"name": "gym::"}, "Gymnasium|import"),
        ({"name": 7}, "env must be a name"),
        ([1], "env must be a name"),
        ({"name": "gym:CartPole-v1", "env_id": 1}, "scramjet sets that itself"),
        ({"name": "vec:CartPole-v1", "num_envs": 1}, "scramjet sets that itself"),
    ],
    ids=repr,
)
def test_a_name_that_is_none_is_one_message(env: Any, message: str, run: Path, folder: Path) -> None:
    (folder / "loop.py").symlink_to("loop.py")
    forge(run, env)
    for way in ("eval a run", "train --resume", "load_config"):
        if "itself" in message and way == "load_config":
            continue  # told when it is trained
        with pytest.raises(ScramjetError, match=message):
            WAYS[way](run) if way != "load_config" else WAYS[way](run).make_env().observation_space


ALIAS_BOMB = "env:\n  name: gym:CartPole-v1\n  a: &a [x, x]\n" + "".join(
    f"  {name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in pairwise("abcdefghijkl")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env: {name: 'gym:CartPole-v1', when: 2020-01-01}", "(when='2020-01-01')"),  # text like any other
        ("env: {name: 'gym:CartPole-v1', when: !!timestamp 2020-01-01}", "tag 'tag:yaml.org,2002:timestamp'"),
        ("env: {name: 'gym:CartPole-v1', raw: !!binary aGk=}", "tag 'tag:yaml.org,2002:binary'"),
        ("env: {name: 'gym:CartPole-v1', all: !!set {a, b}}", "tag 'tag:yaml.org,2002:set'"),
        ("env: {name: 'gym:CartPole-v1', 1: 2}", "env has no parameter '1'"),
        ("env: {name: 'gym:CartPole-v1', ~: 2}", "env has no parameter '~'"),
        ("a: &a [1, *a]\nenv: {name: 'gym:CartPole-v1', deep: *a}", "aliases are not read"),
        ("env: {name: 'gym:CartPole-v1', deep: &a [1, *a]}", "aliases are not read"),
        (ALIAS_BOMB, "aliases are not read"),
        ("env: !!python/object/apply:os.system ['touch canary']", "not valid"),
        ("env: !!python/name:os.system ''", "not valid"),
    ],
)
def test_parameters_that_are_no_plain_data_are_one_message(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "named.yaml").write_text(text)
    with pytest.raises((ConfigError, TrustError), match=re.escape(message)) as refused:
        scramjet.load_config(tmp_path / "named.yaml")
    assert len(str(refused.value)) < 2000
    assert not Path("canary").exists()


def test_no_setting_but_the_world_and_the_schedule_is_text_that_a_file_decides() -> None:
    """Whoever adds a setting that is a path or a name has to say here what keeps a stranger's from being used."""
    free = [name for name, kind, _ in field_docs() if "text" in kind]
    assert free == ["env", "time_limit", "replay_schedule", *SCHEDULES, "policy.ignore"]  # entries to leave out


SCHEDULES = [field.name for field in dataclasses.fields(PPOConfig) if "str" in str(field.type)]
"""Settings of PPO that may be text: numbers over time, read by a small parser."""


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "not there", "not text"])
def test_a_schedule_that_a_config_names_is_only_read_and_must_be_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "schedule.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "not text":
        path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_schedule(path, 1, "play", {})
