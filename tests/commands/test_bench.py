"""`scramjet bench`: rows of speeds, for the policy it is told."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from scramjet.commands import bench
from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from tests.helpers.command_calls import call


def test_bench_prints_rows_with_the_three_speeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        call("bench", "bandit", "--num-envs", 16, "--num-threads", 1, "--num-steps", 8, "--seconds", 0.05, "--json")
        == 0
    )
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["env"], row["device"], row["num_envs"], row["num_threads"]) == ("bandit", "cpu", 16, 1)
    for name in ("env_steps_per_second", "rollout_steps_per_second", "train_steps_per_second"):
        assert row[name] > 0
    assert row["env_steps_per_second"] > row["train_steps_per_second"]
    assert row["env_steps_per_second_best"] >= row["env_steps_per_second"]


@pytest.mark.parametrize("memory", ["none", "mingru"])
def test_bench_takes_memory_or_none(memory: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--num-envs", 4, "--num-threads", 1, "--num-steps", 8, "--seconds", 0.05)
    assert call("bench", "bandit", *sizes, "--memory", memory, "--memory-size", 8, "--shared-trunk", "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["train_steps_per_second"] > 0


def test_each_line_of_benchs_table_has_the_best_env_steps_beside_the_median_and_fits_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("bench", "bandit", "--num-envs", 4, 16, "--num-threads", 1, "--num-steps", 8, "--seconds", 0.05) == 0
    _, header, *rows, executor = capsys.readouterr().out.splitlines()
    assert executor == "acting and learning: numba executor"
    assert len(rows) == 2
    assert executor.startswith("acting and learning: ")
    for line in rows:
        assert re.fullmatch(r" *\d+ +1 +[\d.]+ [KM] \([\d.]+ [KM]\) +[\d.]+ [KM] +[\d.]+ [KM] +\d+%", line)
        assert len(line) == len(header) <= 80


def test_bench_all_gives_each_worlds_median_and_best(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("bandit", "mountain_car_continuous")
    monkeypatch.setattr(bench, "registrations", lambda: [SimpleNamespace(name=name) for name in names])
    monkeypatch.setattr(
        bench, "NativePool", lambda env, num_envs, num_threads: SimpleNamespace(num_threads=num_threads)
    )
    monkeypatch.setattr(
        bench, "measure_env_rate", lambda pool, seconds: bench.Rate.of([1e8, 2.5e8, 9e7 * pool.num_threads])
    )
    assert call("bench", "all", "--num-threads", 1, 2, 3) == 0
    _, header, *rows = capsys.readouterr().out.splitlines()
    cells = ["mountain_car_continuous", "100.0 M (250.0 M)", "180.0 M (250.0 M)", "250.0 M (270.0 M)"]
    assert rows[1].split("  ") == cells
    assert [len(line) for line in (header, *rows)] == [80, 80, 80]
    assert call("bench", "all", "--num-threads", 1, 2, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["env_steps_per_second"]["bandit"] == {"1": 1e8, "2": 1.8e8}
    assert report["env_steps_per_second_best"]["bandit"] == {"1": 2.5e8, "2": 2.5e8}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], PolicyConfig()),
        (["--hidden", "5", "--shared-trunk"], PolicyConfig(hidden=(5,), shared_trunk=True)),
        (["--memory", "gru", "--memory-size", "7"], PolicyConfig(memory="gru", memory_size=7)),
    ],
)
def test_the_policy_that_bench_measures_is_the_one_it_is_told(
    flags: list[str], expected: PolicyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[PolicyConfig] = []

    def stop_there(observation_space: Any, action_space: Any, settings: PolicyConfig) -> None:
        built.append(settings)
        raise ConfigError("seen enough")

    monkeypatch.setattr(bench, "default_network", stop_there)
    assert call("bench", "bandit", *flags) == 2
    assert built == [expected]
