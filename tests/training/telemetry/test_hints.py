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

ON_CURIOSITY = "no reward yet: --curiosity noveld or rnd pays for what is new"
ON_COUNTS = "no observation comes twice: try --curiosity e3b or rnd"
ON_EPISODIC = "no observation comes twice: try --bonus.episodic elliptical"


class Heard(QuietDisplay):
    """The hints of a session that has just begun, and what is said of them; `update` ends episodes of 10 steps."""

    def __init__(self, *, revisited: float | None = None, played_by: PlayedBy = PlayedBy.ONE, **settings: Any) -> None:
        config = RunConfig(env="cartpole", num_envs=4, num_steps=8, **settings)
        self.curiosity = None if config.curiosity is None else SimpleNamespace(revisited=revisited)
        self.progress = Progress(num_envs=4)
        session: Any = SimpleNamespace(
            config=config,
            progress=self.progress,
            pool=SimpleNamespace(played_by=played_by),
            curiosity=self.curiosity,
        )
        self.said: list[str] = []
        self.hints = Hints(session, self)

    def event(self, text: str) -> None:
        self.said.append(text)

    def update(self, returns: list[float], evaluation: Evaluation | None = None, times: int = 1) -> list[str]:
        count = len(returns)
        numbers = np.zeros(count, np.int32)
        for _ in range(times):
            ended = Episodes(count, np.array(returns), np.full(count, 10), numbers, numbers, {})
            self.hints.give(self.progress.add(ended), evaluation)
        return self.said


def greedy(mean: float, length: float) -> Evaluation:
    return Evaluation(mean_return=mean, std_return=0.1, mean_length=length, episodes=32, stats={})


def test_greedy_play_that_returns_far_less_in_longer_episodes_is_told_once_of_drawn_actions() -> None:
    said = Heard().update([1.0] * 20, greedy(0.0, 12.0), times=3)
    assert said == ["greedy returns 0.0, drawn actions 1.00: try --eval.samples"]
    for why, num_episodes, evaluation, settings in [
        ("as good", 20, greedy(1.0, 12.0), {}),
        ("no longer: nothing goes in circles", 20, greedy(0.0, 10.0), {}),
        ("drawn already", 20, greedy(0.0, 12.0), {"eval": EvaluationConfig(samples=True)}),
        ("fewer episodes than play at once", 3, greedy(0.0, 12.0), {}),
        ("no evaluation", 20, None, {}),
    ]:
        assert Heard(**settings).update([1.0] * num_episodes, evaluation) == [], why


def test_where_no_episode_earns_anything_for_long_curiosity_is_named_once() -> None:
    long = UPDATES_WITHOUT_REWARD
    assert Heard().update([0.0] * 4, times=long - 1) == []
    assert Heard().update([0.0] * 4, times=3 * long) == [ON_CURIOSITY]
    assert Heard().update([0.0, -0.01, 0.0, -0.02], times=long) == [ON_CURIOSITY]  # costs are no reward
    for returns, settings in [
        ([0.0, 0.0, 1.0, 0.0], {}),
        ([-0.1] * 4, {}),
        ([-0.1, -0.2, -0.1, -0.3], {}),
        ([0.0] * 4, {"curiosity": "rnd"}),
        ([0.0] * 4, {"algorithm": "spo"}),
        ([0.0] * 4, {"played_by": PlayedBy.SEATS}),
    ]:
        assert Heard(**settings).update(returns, times=3 * long) == [], (returns, settings)


def test_where_no_observation_comes_twice_bonuses_that_count_visits_are_told() -> None:
    few = STEPS_OF_NEW // (4 * 8)
    for revisited, settings, said in [
        (0.0, {"curiosity": "counts"}, [ON_COUNTS]),
        (0.0, {"curiosity": "rnd", "bonus": BonusConfig(episodic="first")}, [ON_EPISODIC]),
        (0.01, {"curiosity": "counts"}, []),
        (None, {"curiosity": "rnd"}, []),  # which counts nothing
        (0.0, {"curiosity": "noveld"}, []),  # which does not live by counts alone
    ]:
        assert Heard(revisited=revisited, **settings).update([1.0] * 4, times=few) == []
        assert Heard(revisited=revisited, **settings).update([1.0] * 4, times=3 * few) == said, settings


def test_a_hint_is_for_the_summary_as_long_as_it_holds() -> None:
    heard = Heard()
    heard.update([0.0] * 20, times=UPDATES_WITHOUT_REWARD)
    assert heard.hints.holding == (Hint("no reward yet", "curiosity", "noveld"),)
    heard.update([1.0] * 100, greedy(0.0, 12.0))
    assert heard.hints.holding == (Hint("greedy returns 0.0, drawn actions 1.00", "eval.samples"),)
    heard.update([1.0] * 100)
    assert len(heard.hints.holding) == 1
    heard.update([1.0] * 100, greedy(1.0, 10.0))
    assert heard.hints.holding == ()
    assert len(heard.said) == 2
    counts = Heard(curiosity="counts", revisited=0.0)
    for counts.curiosity.revisited in (0.0, 0.01):
        counts.update([1.0] * 4, times=STEPS_OF_NEW)
        assert len(counts.hints.holding) == (counts.curiosity.revisited == 0.0)


METHODS: dict[str, dict[str, Any]] = {
    "counts": {"curiosity": "counts"},
    "first visits": {"curiosity": "counts", "bonus": BonusConfig(first_visits=True)},
    "times counts": {"curiosity": "rnd", "bonus": BonusConfig(features=8, episodic="counts")},
    "actors": {"curiosity": "counts", "mode": "async", "num_actors": 2},
}


@pytest.mark.parametrize("method", ["counts", *(pytest.param(name, marks=pytest.mark.rest) for name in [*METHODS][1:])])
def test_a_run_in_cartpole_is_told_soon_that_nothing_comes_twice(method, tmp_path, capsys):
    config = replace(SMALL, **METHODS[method], num_steps=128, total_timesteps=3 * 4 * 128)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    said = capsys.readouterr().out
    assert said.count(ON_EPISODIC if method == "times counts" else ON_COUNTS) == 1
    assert "hint: no observation comes twice; try another setting in a new run" in said
    command = next(line for line in said.splitlines() if "--config" in line)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main([*shlex.split(command)[1:], "--total-timesteps", "512", "--runs-dir", str(tmp_path)])


@pytest.mark.rest
def test_a_run_in_a_maze_is_not_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = PolicyConfig(hidden=(8,), ignore=("step_count",))
    config = replace(SMALL, env="maze", curiosity="counts", num_steps=128, total_timesteps=1536, policy=network)
    scramjet.train(config, runs_dir=tmp_path, display="plain")
    assert "comes twice" not in capsys.readouterr().out
