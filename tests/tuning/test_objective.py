"""Objectives: scores of written metrics, by closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.tuning.objective import Objective
from scramjet.tuning.settings import StudySettings

BASE = RunConfig()


def objective(text: str, **settings: Any) -> Objective:
    return Objective.parse(StudySettings(objective=text, **settings), BASE)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Returns grow by 1 every 100 steps and 2 seconds, from 0 at step 100; the last record has an evaluation."""
    records: list[dict[str, Any]] = [
        {"step": 100 * n + 100, "return_100": n, "stat/win": n / 10, "time": {"elapsed_seconds": 2.0 * n}}
        for n in range(11)
    ]
    records[4]["eval/mean_return"], records[-1]["eval/mean_return"] = 99.0, 42.0
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


def test_the_final_score_is_the_last_evaluation(run: Path) -> None:
    assert objective("final").score(run) == 42.0
    assert not objective("final").minimizes


def test_the_area_is_the_mean_height_of_the_curve_over_all_steps(run: Path) -> None:
    # 0 until step 100, then a triangle of height 10 over 1,000 steps, of 1,100 in all
    assert objective("area").score(run) == pytest.approx(10 * 1000 / 2 / 1100)


def test_the_way_to_a_return_is_where_the_curve_first_reaches_it(run: Path) -> None:
    assert objective("time_to:7").score(run) == 14.0
    assert objective("steps_to:7").score(run) == 800.0
    assert objective("steps_to:11").score(run) == math.inf
    assert objective("time_to:7").minimizes


def test_a_metric_by_name_is_its_last_value_and_goes_the_way_that_is_asked(run: Path) -> None:
    assert objective("metric:stat/win").score(run) == 1.0
    assert objective("metric:stat/win", minimize=True).minimizes
    assert objective("metric:time.elapsed_seconds").score(run) == 20.0


def test_an_unfinished_run_is_compared_in_the_direction_of_its_objective(run: Path) -> None:
    assert objective("final").score_so_far(run) == 10.0
    assert objective("steps_to:50").score_so_far(run) == -10.0
    assert objective("metric:stat/win").score_so_far(run) == 1.0
    assert objective("metric:stat/loss").score_so_far(run) is None


def test_the_cost_is_the_training_time_or_the_steps(run: Path) -> None:
    assert objective("final").cost_of(run) == 20.0
    assert objective("final", cost="steps").cost_of(run) == 1100.0


def test_a_metric_that_never_appears_is_named_with_the_nearest_and_all_there_are(run: Path) -> None:
    with pytest.raises(RunError, match=r"'stat/wins' is not among .* Did you mean 'stat/win'\? Its metrics: step, re"):
        objective("metric:stat/wins").score(run)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("finl", "Did you mean 'final'?"),
        ("time_to", "needs a return to reach, such as time_to:475"),
        ("steps_to:soon", "needs a return to reach"),
        ("metric:", "metric:NAME"),
        ("area:5", "is unknown"),
    ],
)
def test_an_objective_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        objective(text)
    assert message in str(raised.value)


def test_the_final_evaluation_must_not_be_turned_off() -> None:
    base = RunConfig(eval=EvaluationConfig(final_episodes=0))
    with pytest.raises(ConfigError, match="final_episodes is 0"):
        Objective.parse(StudySettings(), base)


def test_which_way_a_known_objective_goes_cannot_be_changed() -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        StudySettings(objective="area", minimize=True)
