"""Spaces: what is written becomes distributions and settings. Objectives: scores of written metrics by closed forms."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from scramjet.errors import ConfigError, RunError
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.tuning.objective import Objective
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import Space, is_dimension, parse_dimension

BASE = RunConfig(env="cartpole", num_steps=64)


def test_each_form_is_the_distribution_that_optuna_has_for_it():
    for name, written, expected in (
        ("learning_rate", "log:1e-4..1e-2", FloatDistribution(1e-4, 1e-2, log=True)),
        ("gamma", "0.9..0.999", FloatDistribution(0.9, 0.999)),
        ("num_epochs", "int:1..8", IntDistribution(1, 8)),
        ("num_envs", "logint:64..4096", IntDistribution(64, 4096, log=True)),
        ("num_envs", "choice:64,256", CategoricalDistribution([64, 256])),
        ("num_envs", [64, 256], CategoricalDistribution([64, 256])),
        ("normalize_observations", "choice:true,false", CategoricalDistribution([True, False])),
        ("target_kl", "choice:none,0.02", CategoricalDistribution([None, 0.02])),
        ("policy.hidden", "choice:64x64,128", CategoricalDistribution(["64x64", 128])),
        ("env.gravity", "9..10", FloatDistribution(9.0, 10.0)),
    ):
        space = Space({name: written}, BASE)
        assert space.distributions() == {name: expected}, written
        assert Space(space.as_table(), BASE).distributions() == {name: expected}, "study.toml reads back as the same"


def test_the_values_of_a_trial_are_laid_over_the_config():
    space = Space({"policy.hidden": [[32], [64, 64]], "learning-rate": "log:1e-4..1e-2", "env.gravity": "9..11"}, BASE)
    config = space.config(BASE, {"policy.hidden": "64x64", "learning_rate": 0.002, "env.gravity": 10.5})
    assert config.policy.hidden == (64, 64)
    assert config.ppo.learning_rate == 0.002
    assert config.env_parameters == {"gravity": 10.5}
    assert space.config(BASE, {"policy.hidden": "32"}).policy.hidden == (32,)


def test_a_mistake_is_named_with_its_setting_and_the_fix():
    for name, written, message in (
        ("learning_rate", "log:0..1", "begin above 0"),
        ("learning_rate", "log:1e-2..1e-4", "must go up"),
        ("gamma", "0.9..0.9", "must go up"),
        ("gamma", "0.9..", "no range of two numbers"),
        ("gamma", "log:0.9", "no range of two numbers"),
        ("num_epochs", "int:1..2.5", "write whole ends"),
        ("num_epochs", "it:1..2", "Did you mean 'int'?"),
        ("num_envs", "choice:", "empty choice"),
        ("num_envs", [], "no values to choose from"),
        ("num_envs", "choice:64,64", "64 twice"),
        ("num_envs", "choice:64,many", "num_envs='many' must be a whole number"),
        ("gamma", "0.9..1.5", "gamma=1.5"),
        ("learning_rat", "log:1e-4..1e-2", "Did you mean 'learning_rate'?"),
        ("env.gravty", "9..10", "Did you mean 'gravity'?"),
        ("env", "choice:cartpole,acrobot", "all trials of a study share"),
        ("seed", "int:1..5", "all trials of a study share"),
        ("eval.every", "int:1..5", "all trials of a study share"),
        ("resume", "choice:a,b", "all trials of a study share"),
        ("gamma", 0.9, "write log:"),
    ):
        with pytest.raises(ConfigError) as raised:
            Space({name: written}, BASE)
        assert message in str(raised.value), (name, written)
        assert name.partition(".")[0] in str(raised.value), (name, written)
    with pytest.raises(ConfigError, match="--learning-rate log:1e-4"):
        Space({}, BASE)
    with pytest.raises(ConfigError, match="no range of two numbers"):
        parse_dimension("gamma", "0.9..nan")


def test_what_has_the_form_of_a_dimension_is_one_and_plain_values_paths_and_worlds_are_none():
    dimensions = "log:1e-4..1e-2 0.9..0.999 int:1..8 choice:a logg:1..2 log:5 1...2"
    others = "0.9 ../space.toml .. a/.. 0.001@0,0@end gym:Acrobot-v1 x.py:Maze"
    assert [text for text in f"{dimensions} {others}".split() if is_dimension(text)] == dimensions.split()


def test_a_value_that_fits_only_beside_another_dimension_is_allowed():
    base = RunConfig(num_envs=8, num_steps=16)
    with pytest.raises(ConfigError, match="larger than the batch"):
        Space({"minibatch_size": [64, 1024]}, base)
    assert len(Space({"minibatch_size": [64, 1024], "num_envs": [8, 64]}, base).dimensions) == 2


def objective(text: str, **settings: Any) -> Objective:
    return Objective.parse(StudySettings(objective=text, **settings), RunConfig())


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


def test_each_objective_has_its_score_and_its_direction(run):
    for text, score, minimizes in (
        ("final", 42.0, False),  # the last evaluation
        ("area", 10 * 1000 / 2 / 1100, False),  # 0 until 100, then a triangle of height 10 over 1,000 steps, of 1,100
        ("time_to:7", 14.0, True),  # where the curve first reaches it
        ("steps_to:7", 800.0, True),
        ("steps_to:11", math.inf, True),
        ("metric:stat/win", 1.0, False),  # its last value
        ("metric:time.elapsed_seconds", 20.0, False),
    ):
        assert objective(text).score(run) == pytest.approx(score), text
        assert objective(text).minimizes == minimizes, text
    assert objective("metric:stat/win", minimize=True).minimizes
    assert objective("final").cost_of(run) == 20.0
    assert objective("final", cost="steps").cost_of(run) == 1100.0


def test_an_unfinished_run_is_compared_in_the_direction_of_its_objective(run):
    for text, score in (("final", 10.0), ("steps_to:50", -10.0), ("metric:stat/win", 1.0), ("metric:stat/loss", None)):
        assert objective(text).score_so_far(run) == score, text


def test_an_objective_that_cannot_be_is_refused(run):
    with pytest.raises(RunError, match=r"'stat/wins' is not among .* Did you mean 'stat/win'\? Its metrics: step, re"):
        objective("metric:stat/wins").score(run)
    for text, message in (
        ("finl", "Did you mean 'final'?"),
        ("time_to", "needs a return to reach, such as time_to:475"),
        ("steps_to:soon", "needs a return to reach"),
        ("metric:", "metric:NAME"),
        ("area:5", "is unknown"),
    ):
        with pytest.raises(ConfigError) as raised:
            objective(text)
        assert message in str(raised.value), text
    with pytest.raises(ConfigError, match="final_episodes is 0"):
        Objective.parse(StudySettings(), RunConfig(eval=EvaluationConfig(final_episodes=0)))
    with pytest.raises(ConfigError, match="leave it out"):
        StudySettings(objective="area", minimize=True)
