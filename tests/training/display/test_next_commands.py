"""What a run ends with: its result in one line, and commands that can be typed as they stand."""

import io
import shlex
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium

import scramjet
from scramjet.envs.probes.single_answers import Bandit
from scramjet.envs.registry import _REGISTRY
from scramjet.training.display import PlainDisplay
from scramjet.training.display.interface import Hint
from scramjet.training.display.text import hint_commands, next_commands, shell_lines
from scramjet.training.start import name_of
from tests.helpers.screens import ESCAPE, SUMMARY, Screen, commands

HINTS = (
    Hint("no reward yet", "curiosity", "noveld"),
    Hint("greedy returns 0.0, drawn actions 1.00", "eval.samples"),
    Hint("no observation comes twice", "bonus.episodic", "elliptical"),
)


def test_a_finished_run_can_be_evaluated_watched_extended_and_forked():
    assert commands(SUMMARY) == [
        "scramjet eval runs/cartpole-7 --episodes 100",
        "scramjet eval runs/cartpole-7 --render",
        "scramjet serve",
        "scramjet train --resume runs/cartpole-7 --total-timesteps 2000896",
        "scramjet train --fork runs/cartpole-7/checkpoints/best --learning-rate 1e-4 --total-timesteps 2000896",
    ]


def test_a_run_is_only_offered_to_be_watched_where_its_world_can_be_drawn():
    assert all("--render" not in command for command in commands(replace(SUMMARY, can_be_watched=False)))
    watched = commands(replace(SUMMARY, env="gym:FrozenLake-v1"))
    assert watched[1] == "scramjet eval runs/cartpole-7 --render"


def test_a_game_is_measured_against_another_player_as_its_own_return_says_nothing():
    assert commands(replace(SUMMARY, is_game=True))[:2] == [
        "scramjet eval runs/cartpole-7 --against random --games 1000",
        "scramjet play runs/cartpole-7",
    ]


def test_a_stopped_run_is_resumed_as_it_was_and_a_fork_starts_from_latest_where_no_best_was_kept(tmp_path):
    assert "scramjet train --resume runs/cartpole-7" in commands(replace(SUMMARY, stopped_by="ctrl-c"))
    (tmp_path / "checkpoints" / "latest").mkdir(parents=True)
    assert "checkpoints/latest " in commands(replace(SUMMARY, run_path=tmp_path))[-1]


def test_hints_come_with_the_command_that_follows_them():
    another = "; try another setting in a new run"
    anew = "scramjet train --config runs/cartpole-7/config.toml"
    assert hint_commands(replace(SUMMARY, hints=HINTS)) == [
        (f"hint: no reward yet{another}", f"{anew} --curiosity noveld"),
        (
            "hint: greedy returns 0.0, drawn actions 1.00; evaluate with drawn actions",
            "scramjet eval runs/cartpole-7 --samples",
        ),
        (f"hint: no observation comes twice{another}", f"{anew} --bonus.episodic elliptical"),
    ]
    # A run that only a program can go on with.
    assert [command for _, command in hint_commands(replace(SUMMARY, hints=HINTS, is_own_network=True))] == [
        "scramjet.train('runs/cartpole-7/config.toml', network=..., curiosity='noveld')",
        "scramjet.evaluate('runs/cartpole-7', network=..., samples=True)",
        "scramjet.train('runs/cartpole-7/config.toml', network=..., bonus={'episodic': 'elliptical'})",
    ]


def test_the_summary_has_its_hints_before_the_other_commands():
    screen, file = Screen(), io.StringIO()
    summary = replace(SUMMARY, hints=HINTS)
    screen.display.finish(summary)
    PlainDisplay(file).finish(summary)
    for text in (ESCAPE.sub("", screen.output), file.getvalue()):
        lines = text.splitlines()
        for hint, command in hint_commands(summary):
            assert lines.index(hint) < lines.index("evaluate it")
            assert f"  {command}\n" in text.replace(" \\\n    ", " ")  # the view breaks long ones as shells do


def test_commands_are_quoted_for_a_shell_and_broken_over_lines_are_the_same_to_it():
    for command in commands(replace(SUMMARY, run_path="my runs/a")):
        assert any(word.startswith("my runs") for word in shlex.split(command))
    command = "scramjet train --fork runs/cartpole-20260712-101500/checkpoints/best --learning-rate 1e-4"
    for width in (20, 40, 59, 60, 61, 80):
        lines = shell_lines(command, width)
        script = "\n".join(lines).replace("scramjet", "printf '%s\\n' scramjet", 1)
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.splitlines() == command.split(), width
        if width >= 60:
            assert max(map(len, lines)) <= width


TINY = {"num_envs": 4, "num_steps": 4, "total_timesteps": 16, "policy": {"hidden": [8]}, "display": "plain"}


def make_cartpole(limit: int = 500) -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=limit)


class Maker:
    def __call__(self) -> gymnasium.Env:
        return make_cartpole()


def test_a_result_shows_the_run_and_what_it_reached_in_one_line(tmp_path: Path):
    off = {"every": 0, "final_episodes": 3}
    result = scramjet.train("bandit", runs_dir=tmp_path, eval=off, **{**TINY, "display": "quiet"})
    text = repr(result)
    assert text.startswith(f"TrainResult('{result.run_path}', step=16, return_100=")
    assert "evaluation=" in text
    assert "over 3 episodes" in text
    again = scramjet.evaluate(result, episodes=1)  # a result stands for its run
    assert again.episodes == 1
    assert scramjet.plot(result, out=tmp_path / "curves.html").num_runs == 1
    assert len(text.splitlines()) == 1
    assert len(text) < 200 + len(str(result.run_path))
    stopped = replace(result, stopped_by="callback", stop_reason="enough", evaluation=None, metrics={})
    assert repr(stopped) == f"TrainResult('{result.run_path}', step=16, stopped_by='callback' (enough))"


def test_a_world_registered_in_python_is_gone_on_with_from_python(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scramjet.envs.registry._REGISTRY", dict(_REGISTRY))
    scramjet.register("bandit_of_a_test", Bandit)
    scramjet.train("bandit_of_a_test", **TINY)
    told = capsys.readouterr().out
    assert "scramjet eval" not in told
    assert "from Python after scramjet.register('bandit_of_a_test', ...)" in told
    lines = [line.strip() for line in told.splitlines() if line.startswith("  scramjet.")]
    assert len(lines) == 2
    for line in lines:
        eval(line.replace("total_timesteps", "display='quiet', total_timesteps"))  # as printed


def test_an_env_registered_with_gymnasium_by_the_program_is_gone_on_with_from_python():
    gymnasium.register("OfATest-v0", "gymnasium.envs.classic_control:CartPoleEnv")
    summary = replace(SUMMARY, env="gym:OfATest-v0")
    try:
        assert all("scramjet.eval" not in command for command in commands(summary))  # any program may make it
        gymnasium.registry["OfATest-v0"].entry_point = make_cartpole
        purpose, command = next_commands(summary)[0]
    finally:
        del gymnasium.registry["OfATest-v0"]
    assert purpose == "evaluate it, from Python after gymnasium.register('OfATest-v0', ...)"
    assert command.startswith("scramjet.evaluate('runs/cartpole-7'")


def test_a_factory_that_no_name_leads_back_to_is_gone_on_with_from_python():
    for factory in (make_cartpole, partial(make_cartpole, 7), Maker(), Maker().__call__, lambda: make_cartpole()):
        told, is_found = commands(replace(SUMMARY, env=name_of(factory))), factory is make_cartpole
        assert any(command.startswith("scramjet eval") for command in told) == is_found, factory
        assert any("env=..." in command for command in told) != is_found, factory
