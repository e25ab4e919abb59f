"""`scramjet list`: every world with its spaces."""

from __future__ import annotations

import json
import re

import pytest

from tests.helpers.command_calls import call


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
