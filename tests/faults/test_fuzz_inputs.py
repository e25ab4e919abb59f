"""Whatever is given as a flag, in a file or from Python: it is accepted, or refused in one message, and soon.

Each `example` once ended otherwise. `benchmarks/fuzz_inputs.py` looks for the next one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from scramjet.adapters.registry import parameter_defaults
from tests.helpers.input_fuzz import (
    call_python,
    load_file,
    must_end_well,
    own_folder,
    run_other,
    run_train,
    try_parameter,
    try_setting,
)
from tests.helpers.odd_inputs import (
    ALL_SETTINGS,
    EACH_VALUE,
    other_words,
    python_calls,
    train_words,
    written_files,
)

SAME_EACH_TIME = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=[*HealthCheck], print_blob=False
)


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where files of these tests are."""
    with own_folder(tmp_path_factory.mktemp("fuzz")):
        yield


def some_of(names: Iterable[str], number: int) -> list[tuple[str, Any]]:
    """Names with an odd value each, the same each time: every name is among them."""
    draw = random.Random(0)
    names = list(names)
    return [(name, draw.choice(EACH_VALUE)) for name in names * math.ceil(number / len(names))]


def test_every_setting_meets_some_odd_values() -> None:
    for name, value in [("time_limit", "9" * 6000), *some_of(ALL_SETTINGS, 150)]:
        must_end_well(partial(try_setting, name, value))


@pytest.mark.parametrize("world", ["bandit", "cartpole", "ale:Pong"])
def test_every_parameter_of_a_world_meets_some_odd_values(world: str) -> None:
    for name, value in some_of(parameter_defaults(world) or {}, 40):
        must_end_well(partial(try_parameter, world, name, value))


@settings(SAME_EACH_TIME, max_examples=10)
@given(words=train_words())
@example(words=["--seed", "9" * 6000])
@example(words=["cartpole", "--num-envs", str(2**63 - 1)])
@example(words=["cartpole", "--num-steps", str(2**63 - 1)])
@example(words=["cartpole", "--policy.memory", "lstm", "--policy.memory-size", str(2**63 - 1)])
@example(words=["cartpole", "--reward-clip", "1e308"])
@example(words=["gym:CartPole-v1", "--env.sutton_barto_reward", "inf"])
@example(words=["gym:CartPole-v1", "--env.name", "gym:Other-v0"])
@example(words=["gym:CartPole-v1", "--env.render_mode", "\udcff"])
@example(words=["\udcff"])
@example(words=["9" * 6000])
@example(words=["--learning-rate", "1@1e999999999"])
@example(words=["--total-timesteps", "1e999999999"])
@example(words=["--num-minibatches", str(2**62), "--num-envs", str(2**31 - 1)])
def test_a_command_line_for_train(words: list[str]) -> None:
    must_end_well(lambda: run_train(words))


@settings(SAME_EACH_TIME, max_examples=20)
@given(words=other_words())
@example(words=["bench", "--num-envs", "0"])
@example(words=["bench", "--seconds", "nan"])
@example(words=["bench", "--num-epochs", "0"])
@example(words=["check", "cartpole", "--steps", "-1"])
@example(words=["check", "cartpole", "--steps", "0"])
@example(words=["eval", "nowhere", "--episodes", str(10**12)])
@example(words=["eval", "nowhere", "--seed", str(-1)])
def test_a_line_for_the_other_commands(words: list[str]) -> None:
    must_end_well(lambda: run_other(words))


@settings(SAME_EACH_TIME, max_examples=40)
@given(file=written_files())
@example(file=(".toml", b"gamma = " + b"9" * 400))
@example(file=(".toml", b"seed = 0x" + b"f" * 6000))
@example(file=(".toml", b"seed = " + b"9" * 6000))
@example(file=(".toml", b"max_grad_norm = inf"))
@example(file=(".toml", b"[env]\nname = 'gym:CartPole-v1'\nx = [1, 'none']"))
@example(file=(".yaml", b"env: {name: 'gym:CartPole-v1', x: [1, null]}"))
@example(file=(".yaml", b"env: {name: 'gym:CartPole-v1', 1: 2, null: 3}"))
@example(file=(".yaml", b"env: {name: 'gym:CartPole-v1', a: !!binary aGk=, b: !!set {x}, c: !!timestamp 2020-01-01}"))
@example(file=(".yaml", b'env: "\\UFFFFFFFF"'))
@example(file=(".yaml", b"%YAML 1." + b"9" * 5000 + b"\n---\nseed: 1"))
@example(file=(".yaml", b"seed: " + b"9" * 6000))
@example(file=(".yaml", b"policy: &a [*a, *a]"))
@example(file=(".yaml", b"[" * 3000))
@example(file=(".toml", b"policy = " + b"[" * 3000))
def test_a_config_file(file: tuple[str, bytes]) -> None:
    must_end_well(lambda: load_file(*file))


@settings(SAME_EACH_TIME, max_examples=40)
@given(call=python_calls())
@example(call=("train", {"config": 5}))
@example(call=("train", {"fork": 5}))
@example(call=("train", {"config": "bandit", "trust": "no", "run_name": "../no"}))
@example(call=("make", {"name": None, "num_envs": 2}))
@example(call=("make", {"name": "cartpole", "num_envs": 2**40}))
@example(call=("evaluate", {"path": True}))
@example(call=("run", {"num_envs": [[]] * 20_000}))
def test_a_call_from_python(call: tuple[str, dict[str, Any]]) -> None:
    must_end_well(lambda: call_python(*call))
