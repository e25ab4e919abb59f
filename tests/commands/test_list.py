"""`scramjet list`: every world with its spaces."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.command_calls import call, refusal


def test_list_names_every_world_with_its_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--json") == 0
    worlds = {world["name"]: world for world in json.loads(capsys.readouterr().out)["worlds"]}
    assert worlds["cartpole"]["action_space"] == "Discrete(2)"
    assert worlds["cartpole"]["description"].startswith("Balance")
    assert {"bandit", "probe_constant", "probe_delay", "probe_policy"} <= set(worlds)


def test_list_shows_names_as_they_are_and_without_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = {"name": "[red]x\x1b[2J", "observes": "[bold]", "acts": "1", "description": "\x1b]0;pwned\x07"}
    monkeypatch.setattr("scramjet.commands.list.describe", lambda entry: world)
    assert call("list") == 0
    output = capsys.readouterr().out
    assert r"[red]x\x1b[2J  \x1b]0;pwned\x07" in re.sub("  +", "  ", output)
    assert "\x1b" not in output


def test_a_world_is_shown_with_all_of_its_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "connect_four") == 0
    names = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("--preset"))
    assert {"connect_four,", "connect_four_alphazero,"} <= set(names.split())
    assert call("list", "cartpole", "--json") == 0
    assert json.loads(capsys.readouterr().out)["presets"] == ["cartpole", "cartpole_alphazero", "cartpole_spo"]


TWO_WORLDS = """
from scramjet.envs import Box, Discrete, Env

class Left(Env):
    observation_space = Box(0, 1, (1,))
    action_space = Discrete(3)
    state = {}
    max_episode_steps = 7
    wind: float = 0.5

    def reset(self, s): ...
    def step(self, s, action): return 0.0, False
    def observe(self, s, obs): obs[0] = 0

class Right(Left):
    '''Blows from the other side.'''
"""
GYMNASIUM = """
import gymnasium

class Outside(gymnasium.Env):
    def step(self, action): ...
"""


def test_a_world_in_a_file_is_shown_like_one_that_has_a_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    corridor = f"{ROOT}/examples/corridor.py"
    assert call("list", corridor) == 0
    output = capsys.readouterr().out
    for part in ("2 actions: Discrete(2)", "--env.length 8", "100 steps", f"scramjet train {corridor}"):
        assert part in output
    (tmp_path / "winds.py").write_text(TWO_WORLDS)
    assert call("list", f"{tmp_path}/winds.py:Right", "--json") == 0
    world = json.loads(capsys.readouterr().out)
    assert world["parameters"] == {"wind": 0.5, "max_episode_steps": 7}
    assert world["description"] == "Blows from the other side."


@pytest.mark.parametrize(
    ("file", "source", "said"),
    [
        ("winds.py", TWO_WORLDS, "defines 2 worlds (Left, Right); name one"),
        ("winds.py", TWO_WORLDS.replace("Discrete(3)", "3"), "name one"),
        ("winds.py:Left", TWO_WORLDS.replace("Discrete(3)", "3"), "Left.action_space is 3"),
        ("outside.py", GYMNASIUM, "is an env of another library: `scramjet check"),
        ("gym:CartPole-v1", "", "`scramjet train gym:CartPole-v1 --help` its parameters"),
        ("missing.py", "", "no such file"),
        ("my_world", "", "give the file: my_world.py"),
    ],
)
def test_what_list_cannot_show_is_one_message_with_the_way_to_go_on(
    file: str,
    source: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if source:
        (tmp_path / file.partition(":")[0]).write_text(source)
    assert said in refusal(capsys, "list", file)
