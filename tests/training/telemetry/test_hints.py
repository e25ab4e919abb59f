"""Hints while a run trains: said once, where their cause is there, and not elsewhere."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import scramjet
from scramjet import cli
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Episodes
from scramjet.policies.config import PolicyConfig
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.display import QuietDisplay
from scramjet.training.display.interface import Hint
from scramjet.training.evaluation.results import Evaluation
from scramjet.training.telemetry.hints import STEPS_OF_NEW, UPDATES_WITHOUT_REWARD, Hints
from scramjet.training.telemetry.progress import Progress
from tests.helpers.sessions import SMALL

ON_SAMPLES = "try --eval.samples"
ON_CURIOSITY = "no reward yet: --curiosity noveld or rnd pays for what is new"
ON_COUNTS = "no observation comes twice: try --curiosity e3b or rnd"
ON_EPISODIC = "no observation comes twice: try --bonus.episodic elliptical"


class Heard(QuietDisplay):
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, text: str) -> None:
        self.events.append(text)


def episodes_of(returns: list[float], length: int) -> Episodes:
    count = len(returns)
    numbers = np.zeros(count, np.int32)
    return Episodes(count, np.array(returns), np.full(count, length), numbers, numbers, {})


def hear(returns: list[float], *, evaluation: Evaluation | None = None, updates: int = 1, **given: Any) -> list[str]:
    """What is said in so many updates in each of which episodes of 10 steps end with these returns."""
    hints, display, session = hints_of(**given)
    for _ in range(updates):
        hints.give(session.progress.add(episodes_of(returns, 10)), evaluation)
    return display.events


def hints_of(
    *, revisited: float | None = None, played_by: PlayedBy = PlayedBy.ONE, **settings: Any
) -> tuple[Hints, Heard, Any]:
    """The hints of a session that has just begun, where they are heard, and the session."""
    config = RunConfig(env="cartpole", num_envs=4, num_steps=8, **settings)
    session: Any = SimpleNamespace(
        config=config,
        progress=Progress(num_envs=4),
        pool=SimpleNamespace(played_by=played_by),
        curiosity=None if config.curiosity is None else SimpleNamespace(revisited=revisited),
    )
    display = Heard()
    return Hints(session, display), display, session


def greedy(mean: float, length: float) -> Evaluation:
    return Evaluation(mean_return=mean, std_return=0.1, mean_length=length, episodes=32, stats={})


def test_greedy_play_that_returns_far_less_in_longer_episodes_is_told_once_of_drawn_actions() -> None:
    assert hear([1.0] * 20, evaluation=greedy(0.0, 12.0), updates=3) == [
        "greedy returns 0.0, drawn actions 1.00: try --eval.samples"
    ]


@pytest.mark.parametrize(
    ("returns", "evaluation", "settings"),
    [
        ([1.0] * 20, greedy(1.0, 12.0), {}),  # as good
        ([1.0] * 20, greedy(0.0, 10.0), {}),  # no longer: nothing goes in circles
        ([1.0] * 20, greedy(0.0, 12.0), {"eval": EvaluationConfig(samples=True)}),
        ([1.0] * 3, greedy(0.0, 12.0), {}),  # fewer episodes than play at once
        ([1.0] * 20, None, {}),
    ],
)
def test_elsewhere_drawn_actions_are_not_mentioned(
    returns: list[float], evaluation: Evaluation | None, settings: dict[str, Any]
) -> None:
    assert hear(returns, evaluation=evaluation, **settings) == []


def test_where_no_episode_earns_anything_for_long_curiosity_is_named_once() -> None:
    assert hear([0.0] * 4, updates=UPDATES_WITHOUT_REWARD - 1) == []
    assert hear([0.0] * 4, updates=3 * UPDATES_WITHOUT_REWARD) == [ON_CURIOSITY]
    assert hear([0.0, -0.01, 0.0, -0.02], updates=UPDATES_WITHOUT_REWARD) == [ON_CURIOSITY]  # costs are no reward


@pytest.mark.parametrize(
    ("returns", "settings"),
    [
        ([0.0, 0.0, 1.0, 0.0], {}),
        ([-0.1] * 4, {}),
        ([0.0] * 4, {"curiosity": "rnd"}),
        ([0.0] * 4, {"algorithm": "spo"}),
        ([0.0] * 4, {"played_by": PlayedBy.SEATS}),
        ([-0.1, -0.2, -0.1, -0.3], {}),
    ],
)
def test_elsewhere_curiosity_is_not_mentioned(returns: list[float], settings: dict[str, Any]) -> None:
    assert hear(returns, updates=3 * UPDATES_WITHOUT_REWARD, **settings) == []


def test_a_hint_is_for_the_summary_as_long_as_it_holds() -> None:
    hints, display, session = hints_of()
    for _ in range(UPDATES_WITHOUT_REWARD):
        hints.give(session.progress.add(episodes_of([0.0] * 20, 10)), None)
    assert hints.holding == (Hint("no reward yet", "curiosity", "noveld"),)
    hints.give(session.progress.add(episodes_of([1.0] * 100, 10)), greedy(0.0, 12.0))
    assert hints.holding == (Hint("greedy returns 0.0, drawn actions 1.00", "eval.samples"),)
    hints.give(session.progress.add(episodes_of([1.0] * 100, 10)), None)
    assert len(hints.holding) == 1
    hints.give(session.progress.add(episodes_of([1.0] * 100, 10)), greedy(1.0, 10.0))
    assert hints.holding == ()
    assert len(display.events) == 2


def test_a_hint_that_observations_never_repeat_goes_once_they_do() -> None:
    hints, _, session = hints_of(curiosity="counts", revisited=0.0)
    for revisited in (0.0, 0.01):
        session.curiosity.revisited = revisited
        for _ in range(STEPS_OF_NEW):
            hints.give(session.progress.add(episodes_of([1.0] * 4, 10)), None)
        assert len(hints.holding) == (revisited == 0.0)


@pytest.mark.parametrize(
    ("revisited", "settings", "said"),
    [
        (0.0, {"curiosity": "counts"}, [ON_COUNTS]),
        (0.0, {"curiosity": "rnd", "bonus": BonusConfig(episodic="first")}, [ON_EPISODIC]),
        (0.01, {"curiosity": "counts"}, []),
        (None, {"curiosity": "rnd"}, []),  # which counts nothing
        (0.0, {"curiosity": "noveld"}, []),  # which does not live by counts alone
    ],
)
def test_where_no_observation_comes_twice_bonuses_that_count_visits_are_told(
    revisited: float | None, settings: dict[str, Any], said: list[str]
) -> None:
    few = STEPS_OF_NEW // (4 * 8)
    assert hear([1.0] * 4, updates=few, revisited=revisited, **settings) == []
    assert hear([1.0] * 4, updates=3 * few, revisited=revisited, **settings) == said


METHODS: dict[str, dict[str, Any]] = {
    "counts": {"curiosity": "counts"},
    "first visits": {"curiosity": "counts", "bonus": BonusConfig(first_visits=True)},
    "times counts": {"curiosity": "rnd", "bonus": BonusConfig(features=8, episodic="counts")},
    "actors": {"curiosity": "counts", "mode": "async", "num_actors": 2},
}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_in_cartpole_is_told_soon_that_nothing_comes_twice(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(SMALL, **METHODS[method], num_steps=128, total_timesteps=3 * 4 * 128)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    said = capsys.readouterr().out
    assert said.count(ON_EPISODIC if method == "times counts" else ON_COUNTS) == 1
    assert "hint: no observation comes twice; try another setting in a new run" in said
    command = next(line for line in said.splitlines() if "--config" in line)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main([*shlex.split(command)[1:], "--total-timesteps", "512", "--runs-dir", str(tmp_path)])


def test_a_run_in_a_maze_is_not_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = PolicyConfig(hidden=(8,), ignore=("step_count",))
    config = replace(SMALL, env="maze", curiosity="counts", num_steps=128, total_timesteps=1536, policy=network)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    assert "comes twice" not in capsys.readouterr().out
