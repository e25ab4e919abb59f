"""Hints while a run trains: said once, where their cause is there, and not elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import scramjet
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Episodes
from scramjet.policies.config import PolicyConfig
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.display import QuietDisplay
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


def hear(
    returns: list[float],
    *,
    evaluation: Evaluation | None = None,
    updates: int = 1,
    revisited: float | None = None,
    played_by: PlayedBy = PlayedBy.ONE,
    **settings: Any,
) -> list[str]:
    """What is said in so many updates in each of which episodes of 10 steps end with these returns."""
    config = RunConfig(env="cartpole", num_envs=4, num_steps=8, **settings)
    session: Any = SimpleNamespace(
        config=config,
        progress=Progress(num_envs=4),
        pool=SimpleNamespace(played_by=played_by),
        curiosity=None if config.curiosity is None else SimpleNamespace(revisited=revisited),
    )
    display = Heard()
    hints = Hints(session, display)
    for _ in range(updates):
        hints.give(session.progress.add(episodes_of(returns, 10)), evaluation)
    return display.events


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


@pytest.mark.parametrize(
    ("returns", "settings"),
    [
        ([0.0, 0.0, 1.0, 0.0], {}),
        ([-0.1] * 4, {}),
        ([0.0] * 4, {"curiosity": "rnd"}),
        ([0.0] * 4, {"algorithm": "spo"}),
        ([0.0] * 4, {"played_by": PlayedBy.SEATS}),
    ],
)
def test_elsewhere_curiosity_is_not_mentioned(returns: list[float], settings: dict[str, Any]) -> None:
    assert hear(returns, updates=3 * UPDATES_WITHOUT_REWARD, **settings) == []


@pytest.mark.parametrize(
    ("revisited", "settings", "said"),
    [
        (0.0, {"curiosity": "counts"}, [ON_COUNTS]),
        (0.0, {"curiosity": "noveld"}, [ON_COUNTS]),
        (0.0, {"curiosity": "rnd", "bonus": BonusConfig(episodic="first")}, [ON_EPISODIC]),
        (0.01, {"curiosity": "counts"}, []),
        (None, {"curiosity": "rnd"}, []),  # which counts nothing
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
    "noveld": {"curiosity": "noveld", "bonus": BonusConfig(features=8)},
    "times counts": {"curiosity": "rnd", "bonus": BonusConfig(features=8, episodic="counts")},
    "actors": {"curiosity": "counts", "mode": "async", "num_actors": 2},
}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_in_cartpole_is_told_soon_that_nothing_comes_twice(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(SMALL, **METHODS[method], num_steps=128, total_timesteps=3 * 4 * 128)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    hint = ON_EPISODIC if method == "times counts" else ON_COUNTS
    assert capsys.readouterr().out.count(hint) == 1


def test_a_run_in_a_maze_is_not_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = PolicyConfig(hidden=(8,), ignore=("step_count",))
    config = replace(SMALL, env="maze", curiosity="counts", num_steps=128, total_timesteps=1536, policy=network)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    assert "comes twice" not in capsys.readouterr().out
