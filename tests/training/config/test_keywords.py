"""Settings as keywords of `scramjet.train`: they mean what flags and files mean, and get the same messages."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.errors import ConfigError, TrustError
from scramjet.training.config.files import apply, load_config, load_frozen, starting_config
from scramjet.training.config.keywords import TABLES, with_keywords

TINY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 4,
    "total_timesteps": 32,
    "policy": {"hidden": [8]},
    "eval": {"every": 0, "final_episodes": 0},
    "display": "quiet",
}
DEFAULT = starting_config("cartpole")


def frozen(result: scramjet.TrainResult) -> scramjet.RunConfig:
    return load_frozen(result.run_path / "config.toml")


def test_settings_in_every_form_reach_the_run_over_the_preset(tmp_path: Path):
    result = scramjet.train(
        "cartpole",
        runs_dir=tmp_path,
        seed=2,
        learning_rate=1e-3,
        env_parameters={"gravity": 12.0},
        checkpoint=scramjet.CheckpointConfig(every=7),
        **{"policy.activation": "relu", "env.force": 9.0},
        **TINY,
    )
    config = frozen(result)
    assert (config.seed, config.ppo.learning_rate, config.num_envs, config.total_timesteps) == (2, 1e-3, 4, 32)
    assert (config.policy.hidden, config.policy.activation) == ((8,), "relu")
    assert config.checkpoint == scramjet.CheckpointConfig(every=7)
    assert (config.env_parameters["gravity"], config.env_parameters["force"]) == (12.0, 9.0)
    assert config.ppo.gamma == DEFAULT.ppo.gamma  # of the preset


@pytest.mark.parametrize(("table", "kind"), TABLES.items())
def test_the_class_of_each_table_is_in_the_package_and_replaces_it(table: str, kind: type):
    given = getattr(scramjet, kind.__name__)()
    assert getattr(with_keywords(DEFAULT, {table: given}), table) == given


def test_they_lie_over_a_run_config_a_file_and_a_fork_and_a_resumed_run_takes_only_its_length(tmp_path: Path):
    given = scramjet.RunConfig(env="bandit", seed=5, ppo=scramjet.PPOConfig(gamma=0.5))
    first = scramjet.train(given, runs_dir=tmp_path, gae_lambda=0.9, **TINY)
    assert (frozen(first).seed, frozen(first).ppo.gamma, frozen(first).ppo.gae_lambda) == (5, 0.5, 0.9)
    file = tmp_path / "mine.toml"
    file.write_text('env = "bandit"\nseed = 7\n[ppo]\ngamma = 0.25\n')
    second = scramjet.train(file, runs_dir=tmp_path, learning_rate=1e-3, **TINY)
    assert (frozen(second).seed, frozen(second).ppo.gamma, frozen(second).ppo.learning_rate) == (7, 0.25, 1e-3)
    forked = scramjet.train(
        fork=first.run_path, runs_dir=tmp_path, entropy_coef=0.5, total_timesteps=64, display="quiet"
    )
    assert (frozen(forked).ppo.gamma, frozen(forked).ppo.entropy_coef) == (0.5, 0.5)
    with pytest.raises(ConfigError, match=r"seed cannot change when a run is resumed.*fork="):
        scramjet.train(resume=first.run_path, seed=6)
    resumed = scramjet.train(resume=first.run_path, total_timesteps="0.064K", display="quiet")
    assert resumed.step == 64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lerning_rate": 1e-3}, "no setting 'lerning_rate'. Did you mean 'learning_rate'"),
        ({"callback": []}, "Did you mean 'callbacks'"),
        ({"policy": {"hiden": [8]}}, r"unknown key 'hiden' in \[policy\]. Did you mean 'hidden'"),
        ({"policy.hiden": [8]}, r"unknown key 'hiden' in \[policy\]. Did you mean 'hidden'"),
        ({"polcy.hidden": [8]}, "no setting 'polcy.hidden'"),
        ({"seed": "x"}, "seed='x' must be a whole number"),
        ({"num_envs": 0}, "num_envs=0 must be at least 1"),
        ({"learning_rate": "fast"}, "learning_rate='fast' is no schedule"),
        ({"policy": 8}, "must be a table of values"),
        ({"policy": 8, "policy.hidden": [8]}, "policy=8 is none"),
        ({"policy": scramjet.PPOConfig()}, "policy must be a dict or a PolicyConfig, not a PPOConfig"),
        ({"seed": scramjet.PPOConfig()}, "seed must be a plain value"),
        ({"policy": {"hidden": [8]}, "policy.hidden": [9]}, "policy.hidden is given twice"),
        ({"ppo": {"gama": 0.9}}, r"unknown key 'gama' in \[ppo\]. Did you mean 'gamma'"),
        ({"ppo": 3}, r"\[ppo\] must be a table"),
        ({"ppo": {"gamma": 0.9}, "gamma": 0.8}, "gamma is given twice"),
        ({"num_minibatches": 2, "minibatch_size": 8}, "say the same in two ways"),
        ({"env_parameters": {"gravty": 3}}, "cartpole has no parameter 'gravty'. Did you mean 'gravity'"),
        ({"env_parameters": 3}, "env_parameters must be a dict"),
    ],
)
def test_a_wrong_one_is_told_by_name_with_the_fix(settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        with_keywords(DEFAULT, settings)


def test_a_config_object_replaces_a_table_and_what_is_given_beside_it_changes_that():
    config = with_keywords(
        DEFAULT,
        {
            "policy": scramjet.PolicyConfig(memory="gru"),
            "policy.hidden": [8],
            "ppo": scramjet.PPOConfig(),
            "gamma": 0.5,
        },
    )
    assert config.policy == scramjet.PolicyConfig(memory="gru", hidden=(8,))
    assert config.ppo == scramjet.PPOConfig(gamma=0.5)


def test_choosing_the_number_of_minibatches_opens_their_size_as_the_flag_does():
    sized = replace(DEFAULT, ppo=replace(DEFAULT.ppo, minibatch_size=64))
    assert with_keywords(sized, {"num_minibatches": 2}).ppo.minibatch_size == "auto"


@pytest.mark.parametrize("text", ["ppo:\n  gamma: 0.5\nseed: 3\n", "seed = 3\n[ppo]\ngamma = 0.5\n"])
def test_a_file_may_group_what_is_of_ppo_in_a_table(tmp_path: Path, text: str):
    file = tmp_path / ("mine.yaml" if text.startswith("ppo:") else "mine.toml")
    file.write_text(text)
    config = load_config(file)
    assert (config.ppo.gamma, config.seed) == (0.5, 3)
    with pytest.raises(ConfigError, match="gamma is given twice, at the top and in"):
        apply(config, {"ppo": {"gamma": 0.5}, "gamma": 0.5}, "mine")


def test_keywords_do_not_let_a_strangers_file_name_code(tmp_path: Path):
    (tmp_path / "world.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "mine.toml").write_text(f'env = "{tmp_path}/world.py"')
    with pytest.raises(TrustError, match=r"world\.py"):
        scramjet.train(tmp_path / "mine.toml", runs_dir=tmp_path, env_parameters={"length": 3}, **TINY)
