"""Names, parameters and schedules in a stranger's file that are none: one message each."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import CheckpointError, ConfigError, ScramjetError, TrustError
from scramjet.training.asynchronous.schedule import read_schedule
from scramjet.training.config.files import field_docs, load_config, to_toml
from tests.helpers.hostile_files import (
    WAYS,
    forge,
)


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
    # policy.ignore: entries to leave out; self_play.opponents: checkpoints that are only read, and players that
    # `approve_players` refuses
    # log_info: keys to look up in what a world says; tags, track_project: labels of the run
    # ray_address: a file that has one needs --trust, and no run keeps it
    top = ["env", "time_limit", "log_info", "ray_address", "replay_schedule", "tags", "track_project"]
    assert free == [*top, *SCHEDULES, "policy.ignore", "self_play.opponents"]


def test_a_file_cannot_lead_to_a_ray_cluster_and_a_run_does_not_keep_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('mode = "async"\nactors = "ray"\nray_address = "10.0.0.1:6379"\n')
    with pytest.raises(TrustError, match=r"names the Ray cluster '10.0.0.1:6379', which may run code here"):
        load_config(path)
    assert load_config(path, trust=True).ray_address == "10.0.0.1:6379"
    assert 'ray_address = "none"' in to_toml(load_config(path, trust=True))


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
