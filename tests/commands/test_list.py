"""`scramjet list`, every world with its spaces and all about one; `scramjet bench`, rows of speeds."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from scramjet.commands import bench
from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from tests.helpers import ROOT
from tests.helpers.command_calls import answer, call, refusal


def test_list_names_every_world_with_its_spaces_in_80_columns(monkeypatch, capsys):
    worlds = {world["name"]: world for world in answer(capsys, "list")["worlds"]}
    assert worlds["cartpole"]["action_space"] == "Discrete(2)"
    assert worlds["cartpole"]["description"].startswith("Balance")
    assert {"bandit", "probe_constant", "probe_delay", "probe_policy"} <= set(worlds)
    monkeypatch.setenv("COLUMNS", "80")
    assert call("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 70
    world = {"name": "[red]x\x1b[2J", "observes": "[bold]", "acts": "1", "description": "\x1b]0;pwned\x07"}
    monkeypatch.setattr("scramjet.commands.list.describe", lambda entry: world)
    assert call("list") == 0
    output = capsys.readouterr().out
    assert r"[red]x\x1b[2J  \x1b]0;pwned\x07" in re.sub("  +", "  ", output), "names as they are"
    assert "\x1b" not in output


CORRIDOR = ROOT / "examples" / "corridor.py"
TWO_WORLDS = f"{CORRIDOR.read_text()}\nclass Left(Corridor):\n    'Walk to the left.'\n    max_episode_steps = 7\n"
GYMNASIUM = "import gymnasium\nclass Outside(gymnasium.Env):\n    def step(self, action): ...\n"


def test_a_world_is_shown_with_its_presets_and_parameters_also_one_in_a_file(tmp_path, capsys):
    maze = ("maze", "--env.rows 10", "100 steps", "configs/maze.toml", "docs/worlds/maze.md", "scramjet train maze")
    of_a_file = ("2 actions: Discrete(2)", "--env.length 8", "100 steps", f"scramjet train {CORRIDOR}")
    for name, parts in (("Maze-v0", maze), (CORRIDOR, of_a_file)):
        assert call("list", name) == 0
        output = capsys.readouterr().out
        for part in parts:
            assert part in output, name
    assert call("list", "connect_four") == 0
    names = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("--preset"))
    assert {"connect_four,", "connect_four_alphazero,"} <= set(names.split())
    assert answer(capsys, "list", "cartpole")["presets"] == ["cartpole", "cartpole_alphazero", "cartpole_spo"]
    (tmp_path / "winds.py").write_text(TWO_WORLDS)
    world = answer(capsys, "list", f"{tmp_path}/winds.py:Left")
    assert world["parameters"] == {"length": 8, "max_episode_steps": 7}
    assert world["description"] == "Walk to the left."


def test_a_file_that_list_cannot_show_is_one_message_with_the_way_to_go_on(tmp_path, capsys):
    odd = TWO_WORLDS.replace("Discrete(2)", "3")
    for number, (source, name, said) in enumerate(
        (
            (TWO_WORLDS, "", "defines 2 worlds (Corridor, Left); name one"),
            (odd, "", "name one"),
            (odd, ":Left", "Left.action_space is 3"),
            (GYMNASIUM, "", "is an env of another library: `scramjet check"),
        )
    ):
        (tmp_path / f"winds_{number}.py").write_text(source)
        assert said in refusal(capsys, "list", f"{tmp_path}/winds_{number}.py{name}"), said


SMALL = ["bench", "bandit", "--num-threads", 1, "--num-steps", 8, "--seconds", 0.05, "--num-envs"]


@pytest.mark.parametrize("memory", ["none", pytest.param("mingru", marks=pytest.mark.rest)])
def test_bench_prints_rows_with_the_three_speeds_with_memory_or_none(capsys, memory):
    (row,) = answer(capsys, *SMALL, 16, "--memory", memory, "--memory-size", 8, "--shared-trunk")["rows"]
    assert (row["env"], row["device"], row["num_envs"], row["num_threads"]) == ("bandit", "cpu", 16, 1)
    for name in ("env_steps_per_second", "rollout_steps_per_second", "train_steps_per_second"):
        assert row[name] > 0
    assert row["env_steps_per_second_best"] >= row["env_steps_per_second"]


def test_each_line_of_benchs_table_has_the_best_env_steps_beside_the_median_and_fits_the_screen(capsys):
    assert call(*SMALL, 4, 16) == 0
    _, header, *rows, executor = capsys.readouterr().out.splitlines()
    assert executor == "acting and learning: numba executor"
    assert len(rows) == 2
    for line in rows:
        assert re.fullmatch(r" *\d+ +1 +[\d.]+ [KM] \([\d.]+ [KM]\) +[\d.]+ [KM] +[\d.]+ [KM] +\d+%", line)
        assert len(line) == len(header) <= 80


def test_bench_all_gives_each_worlds_median_and_best(capsys, monkeypatch):
    def pool_of(env: Any, num_envs: int, num_threads: int) -> Any:
        return SimpleNamespace(num_threads=num_threads)

    def rate_of(pool: Any, seconds: float) -> Any:
        return bench.Rate.of([1e8, 2.5e8, 9e7 * pool.num_threads])

    names = ("bandit", "mountain_car_continuous")
    monkeypatch.setattr(bench, "registrations", lambda: [SimpleNamespace(name=name) for name in names])
    monkeypatch.setattr(bench, "NativePool", pool_of)
    monkeypatch.setattr(bench, "measure_env_rate", rate_of)
    assert call("bench", "all", "--num-threads", 1, 2, 3) == 0
    _, header, *rows = capsys.readouterr().out.splitlines()
    cells = ["mountain_car_continuous", "100.0 M (250.0 M)", "180.0 M (250.0 M)", "250.0 M (270.0 M)"]
    assert rows[1].split("  ") == cells
    assert [len(line) for line in (header, *rows)] == [80, 80, 80]
    assert call("bench", "all", "--num-threads", 1, 2, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["env_steps_per_second"]["bandit"] == {"1": 1e8, "2": 1.8e8}
    assert report["env_steps_per_second_best"]["bandit"] == {"1": 2.5e8, "2": 2.5e8}


def test_the_policy_that_bench_measures_is_the_one_it_is_told(monkeypatch):
    built: list[PolicyConfig] = []

    def stop_there(observation_space: Any, action_space: Any, settings: PolicyConfig) -> None:
        built.append(settings)
        raise ConfigError("seen enough")

    monkeypatch.setattr(bench, "default_network", stop_there)
    for flags in ([], ["--hidden", "5", "--shared-trunk"], ["--memory", "gru", "--memory-size", "7"]):
        assert call("bench", "bandit", *flags) == 2
    memory = PolicyConfig(memory="gru", memory_size=7)
    assert built == [PolicyConfig(), PolicyConfig(hidden=(5,), shared_trunk=True), memory]
