"""Whatever is given as a flag, in a file or from Python: it is accepted, or refused in one message, and soon.

The core tries what once ended otherwise, and every setting with an odd value; the rest lets `benchmarks/fuzz_inputs.py`
draw others, the same each time.
"""

import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from scramjet.adapters.registry import parameter_defaults
from tests.helpers import ROOT
from tests.helpers.input_fuzz import (
    ACTIONS,
    ALL_SETTINGS,
    EACH_VALUE,
    must_end_well,
    own_folder,
    try_parameter,
    try_setting,
)

MOST = str(2**63 - 1)
ENDED_OTHERWISE: dict[str, list[Any]] = {
    "train": [
        ["--seed", "9" * 6000],
        ["cartpole", "--num-envs", MOST],
        ["cartpole", "--num-steps", MOST],
        ["cartpole", "--policy.memory", "lstm", "--policy.memory-size", MOST],
        ["cartpole", "--reward-clip", "1e308"],
        ["gym:CartPole-v1", "--env.sutton_barto_reward", "inf"],
        ["gym:CartPole-v1", "--env.name", "gym:Other-v0"],
        ["gym:CartPole-v1", "--env.render_mode", "\udcff"],
        ["\udcff"],
        ["9" * 6000],
        ["--learning-rate", "1@1e999999999"],
        ["--total-timesteps", "1e999999999"],
        ["--num-minibatches", str(2**62), "--num-envs", str(2**31 - 1)],
    ],
    "other commands": [
        ["bench", "--num-envs", "0"],
        ["bench", "--seconds", "nan"],
        ["bench", "--num-epochs", "0"],
        ["check", "cartpole", "--steps", "-1"],
        ["check", "cartpole", "--steps", "0"],
        ["eval", "nowhere", "--episodes", str(10**12)],
        ["eval", "nowhere", "--seed", "-1"],
    ],
    "files": [
        (".toml", b"gamma = " + b"9" * 400),
        (".toml", b"seed = 0x" + b"f" * 6000),
        (".toml", b"seed = " + b"9" * 6000),
        (".toml", b"max_grad_norm = inf"),
        (".toml", b"[env]\nname = 'gym:CartPole-v1'\nx = [1, 'none']"),
        (".yaml", b"env: {name: 'gym:CartPole-v1', x: [1, null]}"),
        (".yaml", b"env: {name: 'gym:CartPole-v1', 1: 2, null: 3}"),
        (".yaml", b"env: {name: 'gym:CartPole-v1', a: !!binary aGk=, b: !!set {x}, c: !!timestamp 2020-01-01}"),
        (".yaml", b'env: "\\UFFFFFFFF"'),
        (".yaml", b"%YAML 1." + b"9" * 5000 + b"\n---\nseed: 1"),
        (".yaml", b"seed: " + b"9" * 6000),
        (".yaml", b"policy: &a [*a, *a]"),
        (".yaml", b"[" * 3000),
        (".toml", b"policy = " + b"[" * 3000),
    ],
    "python": [
        ("train", {"config": 5}),
        ("train", {"fork": 5}),
        ("train", {"config": "bandit", "trust": "no", "run_name": "../no"}),
        ("make", {"name": None, "num_envs": 2}),
        ("make", {"name": "cartpole", "num_envs": 2**40}),
        ("evaluate", {"path": True}),
        ("run", {"num_envs": [[]] * 20_000}),
    ],
    "settings": [("time_limit", "9" * 6000)],
}


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_folder(tmp_path_factory.mktemp("fuzz")):
        yield


def test_what_once_ended_otherwise_ends_well() -> None:
    for kind, inputs in ENDED_OTHERWISE.items():
        for each in inputs:
            must_end_well(partial(ACTIONS[kind], each))


def test_every_setting_and_parameter_meets_an_odd_value() -> None:
    draw = random.Random(0)
    for name in ALL_SETTINGS:
        must_end_well(partial(try_setting, name, draw.choice(EACH_VALUE)))
    for world in ("bandit", "cartpole", "ale:Pong"):
        for name in parameter_defaults(world) or {}:
            must_end_well(partial(try_parameter, world, name, draw.choice(EACH_VALUE)))


@pytest.mark.rest
def test_drawn_inputs_end_well() -> None:
    words = [sys.executable, ROOT / "benchmarks" / "fuzz_inputs.py", "--rounds", "1", "--seed", "1", "--seconds", "100"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("0 rounds with a failure") == len(ACTIONS)
