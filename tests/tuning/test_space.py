"""Spaces: what is written becomes Optuna's distributions and settings of a config; mistakes are named with the fix."""

from __future__ import annotations

from typing import Any

import pytest

from scramjet.errors import ConfigError
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.space import Space, is_dimension, parse_dimension

optuna = pytest.importorskip("optuna")

BASE = RunConfig(env="cartpole", num_steps=64)


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("learning_rate", "log:1e-4..1e-2", optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)),
        ("gamma", "0.9..0.999", optuna.distributions.FloatDistribution(0.9, 0.999)),
        ("num_epochs", "int:1..8", optuna.distributions.IntDistribution(1, 8)),
        ("num_envs", "logint:64..4096", optuna.distributions.IntDistribution(64, 4096, log=True)),
        ("num_envs", "choice:64,256", optuna.distributions.CategoricalDistribution([64, 256])),
        ("num_envs", [64, 256], optuna.distributions.CategoricalDistribution([64, 256])),
        ("normalize_observations", "choice:true,false", optuna.distributions.CategoricalDistribution([True, False])),
        ("target_kl", "choice:none,0.02", optuna.distributions.CategoricalDistribution([None, 0.02])),
        ("policy.hidden", "choice:64x64,128", optuna.distributions.CategoricalDistribution(["64x64", 128])),
        ("env.gravity", "9..10", optuna.distributions.FloatDistribution(9.0, 10.0)),
    ],
)
def test_each_form_is_the_distribution_that_optuna_has_for_it(name: str, written: Any, expected: Any) -> None:
    space = Space({name: written}, BASE)
    assert space.distributions() == {name: expected}
    assert Space(space.as_table(), BASE).distributions() == {name: expected}, "study.toml reads back as the same"


def test_the_values_of_a_trial_are_laid_over_the_config() -> None:
    space = Space({"policy.hidden": [[32], [64, 64]], "learning-rate": "log:1e-4..1e-2", "env.gravity": "9..11"}, BASE)
    config = space.config(BASE, {"policy.hidden": "64x64", "learning_rate": 0.002, "env.gravity": 10.5})
    assert config.policy.hidden == (64, 64)
    assert config.ppo.learning_rate == 0.002
    assert config.env_parameters == {"gravity": 10.5}
    assert space.config(BASE, {"policy.hidden": "32"}).policy.hidden == (32,)


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
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
    ],
)
def test_a_mistake_is_named_with_its_setting_and_the_fix(name: str, written: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Space({name: written}, BASE)
    assert message in str(raised.value)
    assert name.partition(".")[0] in str(raised.value)


def test_a_study_without_a_space_is_told_how_to_write_one() -> None:
    with pytest.raises(ConfigError, match="--learning-rate log:1e-4"):
        Space({}, BASE)


@pytest.mark.parametrize(
    "text", ["log:1e-4..1e-2", "0.9..0.999", "int:1..8", "choice:a", "logg:1..2", "log:5", "1...2"]
)
def test_what_has_the_form_of_a_dimension_is_one(text: str) -> None:
    assert is_dimension(text)


@pytest.mark.parametrize("text", ["0.9", "../space.toml", "..", "a/..", "0.001@0,0@end", "gym:Acrobot-v1", "x.py:Maze"])
def test_plain_values_paths_and_worlds_are_no_dimensions(text: str) -> None:
    assert not is_dimension(text)


def test_a_range_that_ends_in_a_word_is_no_range() -> None:
    with pytest.raises(ConfigError, match="no range of two numbers"):
        parse_dimension("gamma", "0.9..nan")


def test_a_value_that_fits_only_beside_another_dimension_is_allowed() -> None:
    base = RunConfig(num_envs=8, num_steps=16)
    with pytest.raises(ConfigError, match="larger than the batch"):
        Space({"minibatch_size": [64, 1024]}, base)
    assert len(Space({"minibatch_size": [64, 1024], "num_envs": [8, 64]}, base).dimensions) == 2
