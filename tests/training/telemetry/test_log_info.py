"""Numbers that the user names in Gymnasium's `info` reach the metrics as statistics of the episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scramjet
from scramjet.adapters.factories import register_factory
from scramjet.adapters.info.selection import InfoSelection
from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import ConfigError
from tests.helpers.info_envs import LENGTH, make_telling_env, make_telling_vector_env

NAMES = ("success", "reward/x", "reward/deep/y", "of_one")
LAST = {"success": 1.0, "reward/x": 3.0 * LENGTH, "reward/deep/y": 4.0 * LENGTH, "of_one": 2.0 * LENGTH}
"""What they are in the last step of every episode."""

SMALL = {"num_envs": 4, "num_steps": 16, "num_minibatches": 1, "total_timesteps": 256, "policy": {"hidden": [8]}}
EVALUATED = {"eval": {"every": 2, "episodes": 4, "final_episodes": 0}}


def records_of(tmp_path: Path, env: Any, **settings: Any) -> list[dict[str, Any]]:
    result = scramjet.train(
        env=env, runs_dir=tmp_path, display="quiet", device="cpu", **{**SMALL, **EVALUATED, **settings}
    )
    return [json.loads(line) for line in (result.run_path / "metrics.jsonl").read_text().splitlines()]


def stats_of(record: dict[str, Any], prefix: str) -> dict[str, float]:
    return {key.removeprefix(prefix): value for key, value in record.items() if key.startswith(prefix)}


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (make_telling_env, {"num_workers": 0}),
        (make_telling_env, {"num_workers": 2}),
        (make_telling_env, {"mode": "async", "num_actors": 2, "loss": "impala"}),
        (make_telling_vector_env, {}),
    ],
    ids=["serial", "workers", "async", "vector"],
)
def test_named_numbers_are_those_of_the_last_step_and_no_others_are_logged(
    tmp_path: Path, env: Any, settings: dict[str, Any]
) -> None:
    records = records_of(tmp_path, env, log_info=NAMES, **settings)
    assert stats_of(records[-1], "stat/") == LAST
    assert stats_of(records[-1], "eval/stat/") == LAST


def test_a_run_with_named_numbers_can_be_loaded_and_resumed(tmp_path: Path) -> None:
    settings = {"env": make_telling_env, "num_workers": 0, "display": "quiet", "device": "cpu", **SMALL}
    run = scramjet.train(runs_dir=tmp_path, log_info=NAMES, **settings).run_path
    scramjet.load_policy(run)
    resumed = scramjet.train(resume=run, env=make_telling_env, total_timesteps=512, display="quiet")
    records = [json.loads(line) for line in (resumed.run_path / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] == 512
    assert stats_of(records[-1], "stat/") == LAST


def test_without_names_all_numbers_that_are_not_nested_are_logged() -> None:
    pool = ForeignWorld(register_factory(make_telling_env)).pool(2)
    pool.reset(1)
    for _ in range(LENGTH):
        pool.step(np.zeros(2, np.int64))
    pool.close()
    assert set(pool.episodes().stats) == {"success", "steps", "of_one", "odd"}


def test_a_number_that_some_episodes_lack_is_averaged_over_those_that_have_it(tmp_path: Path) -> None:
    records = records_of(tmp_path, make_telling_env, log_info=("odd",), num_workers=0, num_envs=1, num_steps=64)
    # An episode ends every five steps; env 1 was reset once before, to look at it, and so begins with episode 2.
    assert records[0]["stat/odd"] == pytest.approx(np.mean([n for n in range(2, 2 + 64 // LENGTH) if n % 2]))


def test_a_name_that_never_appears_is_told_of_once_with_those_that_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scramjet.train(
        env=make_telling_env, runs_dir=tmp_path, display="plain", device="cpu", log_info=["sucess", "steps"],
        **{**SMALL, **EVALUATED},
    )  # fmt: skip
    told = [line for line in capsys.readouterr().out.splitlines() if "sucess" in line and "never gave" in line]
    assert len(told) == 1
    assert "Did you mean" in told[0]
    assert "reward/deep/y" in told[0]


def test_a_nested_number_gives_way_to_one_whose_own_name_has_the_stroke() -> None:
    assert InfoSelection(["a/b", "c"]).selected(["/a/b", "a/b", "/c/d"]) == {"a/b": "a/b"}
    assert InfoSelection(["a/b"]).selected(["/a/b"]) == {"a/b": "/a/b"}


@pytest.mark.parametrize(
    ("env", "names", "said"),
    [
        ("cartpole", ["win"], r"native world.*stat_names"),
        ("ale:Pong", ["lives"], r"gym:ALE/Pong-v5"),
        ("gym:CartPole-v1", ["a", "a"], "each once"),
        ("gym:CartPole-v1", ["/"], r"reward/x for"),
    ],
)
def test_names_that_cannot_be_found_are_refused_with_the_fix(env: str, names: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scramjet.RunConfig(env=env, log_info=tuple(names))


def test_mujocos_own_numbers_are_logged(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    world = ForeignWorld("mujoco:InvertedPendulum-v5", info=InfoSelection(["reward_survive"]))
    pool = world.pool(1)
    pool.reset(1)
    stats: dict[str, np.ndarray] = {}
    while not stats:
        pool.step(np.full((1, 1), 3.0, np.float32))
        stats = pool.episodes().stats
    pool.close()
    assert stats["reward_survive"].tolist() == [0.0]  # it has just fallen
