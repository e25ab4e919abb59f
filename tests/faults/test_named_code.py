"""Files of strangers run nothing: every way in which a checkpoint, config or run could name code, a path or a process.

Each hostile name would leave a canary behind, a file, if anything it names were run.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import resource
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
import yaml

import scramjet
from scramjet import cli
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import CheckpointError, ConfigError, ScramjetError, TrustError, WorldError
from scramjet.policies.config import PolicyConfig
from scramjet.training.asynchronous.collector import read_schedule
from scramjet.training.components import make_pool
from scramjet.training.config.files import field_docs, load_config, to_toml
from scramjet.training.config.run_config import RunConfig
from scramjet.training.playing import load_trained
from tests.helpers.cases import rest
from tests.helpers.command_calls import refusal
from tests.helpers.hostile_files import CANARY, ENVS, FLAGS, TINY, forge, forge_metadata, forget_modules
from tests.helpers.world_files import WALK


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has never named a world of his own."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def cartpole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = RunConfig(env="cartpole", **TINY)
    return scramjet.train(config, runs_dir=tmp_path_factory.mktemp("runs"), display="quiet").run_path


@pytest.fixture
def run(cartpole_run: Path, tmp_path: Path) -> Path:
    """A run to forge, with one checkpoint."""
    return Path(shutil.copytree(cartpole_run, tmp_path / "stranger", symlinks=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stranger's code: a file, a module and a package that leave a canary, all of them importable."""
    place = tmp_path / "evil"
    (place / "evil_package").mkdir(parents=True)
    for name in ("evil.py", "evil_module.py", "evil_package/__init__.py", "evil_package/worlds.py"):
        (place / name).write_text(CANARY.format(canary=str(tmp_path / "canary")) + WALK + ENVS)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place)
    yield place
    forget_modules("evil")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


Env = dict[str, Any]


def hostile(folder: Path) -> dict[str, Env]:
    """Worlds that are none of the user's, by what they name."""
    file, canary = str(folder / "evil.py"), str(folder.parent / "canary")
    return {
        "a shell command": {"name": "factory:os:system", "command": f"touch {canary}"},
        "a process": {"name": "factory:subprocess:Popen", "args": ["touch", canary]},
        "an expression": {"name": "factory:builtins:eval", "source": f"open({canary!r}, 'w')"},
        "a function in a file": {"name": f"factory:{file}:make_env"},
        "a function in a file of this folder": {"name": "factory:evil.py:make_env"},
        "a function in a module": {"name": "factory:evil_module:make_env"},
        "a file": {"name": file},
        "a file of this folder": {"name": "evil.py"},
        "a file by detours": {"name": f"{folder}/../evil/./evil.py:Walk"},
        "a class in a file": {"name": f"{file}:Walk"},
        "a class in a module": {"name": "evil_module:Walk"},
        "a class in a package": {"name": "evil_package.worlds:Walk"},
        "a module for Gymnasium": {"name": "gym:evil_module:CartPole-v1"},
        "a package for Gymnasium": {"name": "gym:evil_package.worlds:CartPole-v1"},
        "a file for Gymnasium": {"name": "gym:evil.py:CartPole-v1"},
        "a module for a vector env": {"name": "vec:evil_module:CartPole-v1"},
        "a module for MuJoCo": {"name": "mujoco:evil_module:CartPole-v1"},
        "a file for our worlds in Gymnasium": {"name": "gym:scramjet/CartPole-v1", "world": file},
        "a file for our vector worlds in Gymnasium": {"name": "vec:scramjet/CartPole-v1", "world": file},
        "an env of the old Gym": {"name": "gym:GymV26Environment-v0", "env_id": "evil_module:CartPole-v1"},
    }


def as_config(run: Path, suffix: str) -> str:
    """The same world named by a config file."""
    env, path = tomllib.loads((run / "config.toml").read_text())["env"], run / f"named.{suffix}"
    path.write_text(tomli_w.dumps({"env": env}) if suffix == "toml" else yaml.safe_dump({"env": env}))
    return str(path)


def checkpoint_of(run: Path) -> str:
    return str(run / "checkpoints" / "latest")


def train(run: Path, *words: object) -> Any:
    """`scramjet train`, with new runs beside that of the stranger."""
    return cli.run(["train", *map(str, words), "--runs-dir", str(run.parent / "runs"), "--display", "quiet"])


WAYS: dict[str, Callable[[Path], Any]] = {
    "eval a run": lambda run: cli.run(["eval", str(run), "--episodes", "1"]),
    "eval a checkpoint": lambda run: cli.run(["eval", checkpoint_of(run), "--json"]),
    "eval --render": lambda run: cli.run(["eval", str(run), "--render"]),
    "train --fork": lambda run: train(run, "--fork", checkpoint_of(run)),
    "train --fork with flags": lambda run: train(run, "--fork", run, "--seed", 2),
    "train --fork --help": lambda run: cli.run(["train", "--fork", str(run), "--help"]),
    "train --resume": lambda run: cli.run(["train", "--resume", str(run), "--total-timesteps", "1K"]),
    "train --config TOML": lambda run: train(run, "--config", as_config(run, "toml")),
    "train --config YAML": lambda run: train(run, "--config", as_config(run, "yaml")),
    "train --config --help": lambda run: cli.run(["train", "--config", as_config(run, "toml"), "--help"]),
    "train --fork --config": lambda run: train(run, "--fork", run, "--config", as_config(run, "toml")),
    "evaluate": lambda run: scramjet.evaluate(run, episodes=1),
    "train(resume=...)": lambda run: scramjet.train(resume=run, total_timesteps=1000, display="quiet"),
    "train(fork=...)": lambda run: scramjet.train(fork=run, runs_dir=run.parent / "runs", display="quiet"),
    "train(FILE)": lambda run: scramjet.train(as_config(run, "toml"), runs_dir=run.parent / "runs", display="quiet"),
    "load_config": lambda run: scramjet.load_config(as_config(run, "yaml")),
}


@pytest.mark.parametrize("pairs", ["each way and each kind", rest("every pair")])
def test_what_a_file_names_is_not_run(pairs: str, run: Path, folder: Path, canary: Path) -> None:
    kinds = hostile(folder)
    some = zip(itertools.cycle(WAYS), kinds, strict=False)
    for way, kind in itertools.product(WAYS, kinds) if pairs == "every pair" else some:
        forge(run, kinds[kind])
        with pytest.raises(TrustError) as refused:
            WAYS[way](run)
        assert not canary.exists(), (way, kind)
        assert repr(kinds[kind]["name"]) in str(refused.value), (way, kind)
        assert "--trust" in str(refused.value), (way, kind)
        assert not (run.parent / "runs").exists(), (way, kind)


def test_a_policy_loads_without_its_world_but_for_older_checkpoints(run: Path, folder: Path, canary: Path) -> None:
    spaces = json.loads((run / "checkpoints/latest/metadata.json").read_text())["metadata"]["policy_spaces"]
    for kind, env in hostile(folder).items():
        forge(run, env, policy_spaces=spaces)
        assert scramjet.load_policy(run).act(torch.zeros(3, 4)).shape == (3,), kind
        forge(run, env, policy_spaces=None)
        with pytest.raises(TrustError):
            scramjet.load_policy(run)
        assert not canary.exists(), kind


@pytest.mark.parametrize(
    "settings",
    [
        {"env": "cartpole", "frame_stack": 3, "ppo": PPOConfig(normalize_observations=True)},
        rest({"env": "maze", "policy": PolicyConfig(memory="gru", memory_size=8)}),
        rest({"env": "pendulum", "policy": PolicyConfig(shared_trunk=True)}),
        rest({"env": "gym:FrozenLake-v1", "num_workers": 0}),
        rest({"env": "squared"}),
    ],
    ids=lambda settings: settings["env"],
)
def test_a_policy_loaded_without_its_world_is_the_one_loaded_with_it(settings: Env, tmp_path: Path) -> None:
    run = scramjet.train(RunConfig(**{**TINY, **settings}), runs_dir=tmp_path, display="quiet").run_path
    alone = scramjet.load_policy(run)
    beside_its_world, config, _ = load_trained(run)
    assert str(alone) == str(beside_its_world)
    assert alone.state_dict().keys() == beside_its_world.state_dict().keys()
    pool = make_pool(config, num_envs=3)
    out, actions = pool.reset(0), []
    for policy in (alone, beside_its_world):
        state = policy.initial_state(pool.num_rows) if policy.state_size else None
        actions.append(policy.act(out.obs, state, mask=out.mask))
    pool.close()
    assert torch.equal(*actions)


QUIETLY_HOSTILE: list[Env] = [
    {"name": "mujoco:Ant-v5", "xml_file": "/etc/passwd"},
    {"name": "envpool:VizdoomCustom-v1", "vzd_path": "/bin/sh"},
    {"name": "envpool:Pong-v5", "base_path": "."},
    {"name": "pettingzoo:pong_v3", "auto_rom_install_path": "."},
    {"name": "gym:CartPole-v1", "things": [1, [2, "evil.py"]]},
    {"name": "gym:CartPole-v1", "things": {"a": {"b": "evil.py"}}},
    {"name": "gym:CartPole-v1", "render_mode": "human"},
    {"name": "vec:CartPole-v1", "wrappers": ["os.system"]},
    {"name": "vec:CartPole-v1", "vector_kwargs": {"worker": "os:system"}},
    {"name": "gym:CartPole-v1", "entry_point": "rgb_array"},  # a word that is all right in another's place
]


def test_text_that_a_library_might_load_things_by_is_refused(run: Path, folder: Path, canary: Path) -> None:
    for env in QUIETLY_HOSTILE:
        (key,) = env.keys() - {"name"}
        forge(run, env)
        for way in ("eval a run", "train --resume", "train --config TOML"):
            with pytest.raises(TrustError, match=key):
                WAYS[way](run)
    for name in ("ale:evil.py", "ale:../../evil", "ale:os:system", "envpool:evil_module", "mujoco:x"):
        forge(run, {"name": name})
        with pytest.raises((TrustError, WorldError), match=r"ale|Atari|[Ee]nv[Pp]ool|Gymnasium"):
            cli.run(["eval", str(run)])
        assert not canary.exists(), name


@pytest.mark.rest
def test_a_name_for_pettingzoo_is_no_module_of_anybody_elses(run: Path, folder: Path, canary: Path) -> None:
    pytest.importorskip("pettingzoo")
    shutil.copy(folder / "evil_module.py", folder / "evil_module_v1.py")
    others = ("classic.connect_four_v3", "../evil_v1", "a:b_v1")
    for name in ("os", "pettingzoo", "..evil_module", "evil_module_v1", *others):
        forge(run, {"name": f"pettingzoo:{name}"})
        with pytest.raises((TrustError, WorldError)):
            cli.run(["eval", str(run)])
        assert not canary.exists(), name


def test_worlds_of_installed_libraries_are_anybodys_to_name(run: Path) -> None:
    picture = {"render_mode": "rgb_array", "sutton_barto_reward": False, "max_episode_steps": 9}
    for env in (
        {"name": "gym:CartPole-v1", **picture},
        {"name": "vec:CartPole-v1", "vectorization_mode": "sync"},
        {"name": "gym:scramjet/CartPole-v1", "gravity": 9.8},
    ):
        made = scramjet.make(env["name"], 1)
        spaces = {name: repr(getattr(made, name)) for name in ("observation_space", "action_space")}
        made.close()
        forge(run, env, **spaces)
        assert scramjet.evaluate(run, episodes=1).episodes == 1, env


def test_the_command_line_says_it_in_one_message_and_exits_with_2(
    run: Path, folder: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(run, hostile(folder)["a shell command"])
    told = refusal(capsys, "eval", run)
    assert told.startswith("scramjet: checkpoint ")
    assert "would import the module 'os' and call its function 'system' (command='touch " in told
    assert not canary.exists()


def test_an_opponent_that_a_file_names_is_refused_by_every_command_that_trains(
    run: Path, folder: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the user names the world; whoever only plays the run is not asked, and runs nothing."""
    played = {"fixed_fraction": 0.5, "opponents": ["evil.py:choose", "evil_module:choose"]}
    forge(run, "tic_tac_toe", self_play=None)
    for step in (run / "checkpoints").glob("step_*"):
        forge_metadata(step, lambda record: record["metadata"]["config"].update(self_play=played))
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(tomli_w.dumps({**tomllib.loads(text), "self_play": played}))
    config = run.parent / "config.toml"
    config.write_text(tomli_w.dumps({"env": "tic_tac_toe", "total_timesteps": 64, "self_play": played}))
    for words in (
        ["--fork", run, "--total-timesteps", 128],
        ["--fork", run, "--total-timesteps", 128, "tic_tac_toe"],
        ["--config", config],
        ["tic_tac_toe", "--config", config],
        ["--resume", run, "--total-timesteps", 128],
    ):
        assert "names the player 'evil.py:choose'" in refusal(capsys, "train", *words)
    assert "names the player" in refusal(capsys, "tune", "tic_tac_toe", "--config", config, "--gamma", "0.9..0.99")
    for way in (lambda: scramjet.train(fork=run), lambda: scramjet.train(config), lambda: scramjet.tune(config)):
        with pytest.raises(TrustError, match="names the player"):
            way()
    with suppress(CheckpointError):  # it is no checkpoint of that world
        scramjet.evaluate(run, episodes=1)
    assert not canary.exists()


# --- what the user says himself ------------------------------------------------------------------------------

TRUSTED: list[Callable[[Path], Any]] = [
    lambda run: cli.run(["eval", str(run), "--episodes", "1", "--trust"]),
    lambda run: train(run, "--resume", run, "--total-timesteps", 128, "--trust"),
    lambda run: train(run, "--fork", run, "--trust", "--total-timesteps", 128),
    lambda run: scramjet.evaluate(run, episodes=1, trust=True),
    lambda run: scramjet.train(resume=run, total_timesteps=128, trust=True, display="quiet"),
    lambda run: scramjet.load_config(as_config(run, "toml"), trust=True).make_env().observation_space,
]


@pytest.mark.parametrize("shift", [0, rest(1), rest(2)])
def test_trust_lets_a_file_name_what_it_likes(shift: int, run: Path, folder: Path, canary: Path) -> None:
    kinds = ("a function in a file", "a class in a module", "a module for Gymnasium")
    for i, way in enumerate(TRUSTED):
        kind = kinds[(i + shift) % 3]
        forge(run, hostile(folder)[kind])
        with suppress(CheckpointError, ConfigError):  # it is no checkpoint of that world
            way(run)
        assert canary.exists(), (i, kind)
        canary.unlink()
        forget_modules("evil")


def test_a_world_on_the_command_line_stands_in_place_of_a_strangers(run: Path, folder: Path, canary: Path) -> None:
    forge(run, hostile(folder)["a file"])
    small = [*FLAGS, "--total-timesteps", "32"]
    for words in (
        ["--fork", run, "--total-timesteps", "128", "cartpole"],
        ["--config", as_config(run, "toml"), *small, "cartpole"],
        ["cartpole", "--config", as_config(run, "yaml"), *small],
    ):
        assert train(run, *words) == 0, words
    assert cli.run(["eval", str(run), "--env", "cartpole", "--episodes", "1"]) == 0
    assert scramjet.evaluate(run, episodes=1, env="cartpole").episodes == 1
    assert scramjet.train(resume=run, env="cartpole", total_timesteps=128, display="quiet").step == 128
    assert not canary.exists()
    forge(run, hostile(folder)["an expression"])  # what a file adds to a world that the user names is looked at too
    for way in (
        lambda: train(run, "factory:builtins:eval", "--config", as_config(run, "toml")),
        lambda: train(run, "factory:builtins:eval", "--fork", run),
        lambda: cli.run(["eval", str(run), "--env", "factory:builtins:eval"]),
    ):
        with pytest.raises(TrustError, match="source="):
            way()
    assert not canary.exists()


# --- names, parameters and settings that are none ------------------------------------------------------------


def box(*shape: int) -> dict[str, Any]:
    return {"kind": "box", "dtype": "float32", "shape": list(shape), "low": 0.0, "high": 1.0}


def test_spaces_that_are_none_or_not_the_weights_are_refused_and_take_no_memory(run: Path) -> None:
    actions = {"kind": "discrete", "n": 2, "start": 0}
    for spaces in (
        "Box(0, 1, (4,), float32)",
        [],
        [box(4)],
        [box(4), actions, actions],
        [None, None],
        [box(10**9, 10**9), actions],
        [box(1 << 20), actions],  # sound, and not what the weights are for
        [box(4), {"kind": "discrete", "n": 1 << 24, "start": 0}],
        [actions, box(4)],
    ):
        forge(run, {"name": "cartpole"}, policy_spaces=spaces)
        with pytest.raises(CheckpointError):
            scramjet.load_policy(run)
    config = json.loads((run / "checkpoints" / "latest" / "metadata.json").read_text())["metadata"]["config"]
    config["policy"]["hidden"] = [1 << 16, 1 << 15]  # 8 GB and as much again for the value
    forge(run, {"name": "cartpole"}, policy_spaces=[box(1 << 20), actions], config=config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="holds another network"):
        scramjet.load_policy(run)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB: a gigabyte


NO_NAMES: list[tuple[Any, str]] = [
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
]


def test_a_name_that_is_none_is_one_message(run: Path, folder: Path) -> None:
    (folder / "loop.py").symlink_to("loop.py")
    for env, message in NO_NAMES:
        forge(run, env)
        for way in ("eval a run", "train --resume"):
            with pytest.raises(ScramjetError, match=message):
                WAYS[way](run)
        if "itself" not in message:  # which is told when it is trained
            with pytest.raises(ScramjetError, match=message):
                WAYS["load_config"](run).make_env().observation_space  # noqa: B018


ALIAS_BOMB = "env:\n  name: gym:CartPole-v1\n  a: &a [x, x]\n" + "".join(
    f"  {name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in pairwise("abcdefghijkl")
)
NO_PLAIN_DATA = [
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
]


def test_parameters_that_are_no_plain_data_are_one_message(tmp_path: Path) -> None:
    for text, message in NO_PLAIN_DATA:
        (tmp_path / "named.yaml").write_text(text)
        with pytest.raises((ConfigError, TrustError), match=re.escape(message)) as refused:
            scramjet.load_config(tmp_path / "named.yaml")
        assert len(str(refused.value)) < 2000
    assert not Path("canary").exists()


def test_no_setting_but_the_world_and_the_schedule_is_text_that_a_file_decides(tmp_path: Path) -> None:
    """Whoever adds a setting that is a path or a name has to say here what keeps a stranger's from being used."""
    free = [name for name, kind, _ in field_docs() if "text" in kind]
    # numbers over time, read by a small parser
    schedules = [field.name for field in dataclasses.fields(PPOConfig) if "str" in str(field.type)]
    # policy.ignore: entries to leave out; self_play.opponents: checkpoints that are only read, and players that
    # `approved_players` refuses
    # log_info: keys to look up in what a world says; tags, track_project: labels of the run
    # ray_address: a file that has one needs --trust, and no run keeps it
    # algorithm: one of the list, which installed packages may add to
    top = ["env", "algorithm", "time_limit", "log_info", "ray_address", "replay_schedule", "tags", "track_project"]
    assert free == [*top, *schedules, "policy.ignore", "self_play.opponents"]
    path = tmp_path / "run.toml"
    path.write_text('mode = "async"\nactors = "ray"\nray_address = "10.0.0.1:6379"\n')
    with pytest.raises(TrustError, match=r"names the Ray cluster '10.0.0.1:6379', which may run code here"):
        load_config(path)
    assert load_config(path, trust=True).ray_address == "10.0.0.1:6379"
    assert 'ray_address = "none"' in to_toml(load_config(path, trust=True))


def test_a_schedule_that_a_config_names_is_only_read_and_must_be_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "no text").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "missing", tmp_path / "no text"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_schedule(path, 1, "play", {})
