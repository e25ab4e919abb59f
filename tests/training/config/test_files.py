"""Config files: TOML and YAML mean the same, keys are strict, presets lie under files, a frozen config comes back."""

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import ConfigError, WorldError
from scramjet.policies import PolicyConfig
from scramjet.training.config import files as config_files
from scramjet.training.config.files import (
    apply,
    field_docs,
    load_config,
    load_frozen,
    preset_path,
    read_file,
    starting_config,
    to_toml,
)
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers import ROOT

CONFIGS = ROOT / "configs"

TOML = """
env = "bandit"
seed = 7
total_timesteps = "1M"
num_envs = 16
num_steps = 32
time_limit = "none"
learning_rate = "0.001@0,0@end"
gamma = 1
adam_eps = 1e-6
max_grad_norm = "none"
normalize_rewards = true
[policy]
hidden = [32, 16]
activation = "relu"
[eval]
every = 0
[checkpoint]
keep_last_n = "none"
"""

YAML = """
env: bandit
seed: 7
total_timesteps: 1M
num_envs: 16
num_steps: 32
time_limit: null
learning_rate: 0.001@0,0@end
gamma: 1
adam_eps: 1.0e-6
max_grad_norm: null
normalize_rewards: true
policy:
  hidden: [32, 16]
  activation: relu
eval:
  every: 0
checkpoint:
  keep_last_n: null
"""

SAME = RunConfig(
    env="bandit",
    seed=7,
    total_timesteps=1_000_000,
    num_envs=16,
    num_steps=32,
    ppo=replace(
        starting_config("bandit").ppo,
        learning_rate="0.001@0,0@end",
        gamma=1.0,
        adam_eps=1e-6,
        max_grad_norm=None,
        normalize_rewards=True,
    ),
    policy=PolicyConfig(hidden=(32, 16), activation="relu"),
    eval=EvaluationConfig(every=0),
    checkpoint=CheckpointConfig(keep_last_n=None),
)


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_toml_file_means_what_the_same_values_mean_in_python(tmp_path):
    assert load_config(write(tmp_path, "run.toml", TOML)) == SAME


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_a_yaml_file_means_what_the_same_values_mean_in_python(tmp_path, suffix):
    assert load_config(write(tmp_path, f"run.{suffix}", YAML)) == SAME


@pytest.mark.parametrize("text", ["1e-3", "1e6", "2.5e-4"])
def test_a_number_with_an_exponent_means_the_same_in_yaml_and_in_toml(tmp_path, text):
    """YAML 1.1 reads 1e-3 as text; a person means a number."""
    in_toml = load_config(write(tmp_path, "run.toml", f"target_kl = {text}"))
    in_yaml = load_config(write(tmp_path, "run.yaml", f"target_kl: {text}"))
    assert in_yaml.ppo.target_kl == in_toml.ppo.target_kl == float(text)


def test_an_empty_file_is_the_preset(tmp_path):
    for name in ("run.toml", "run.yaml"):
        assert load_config(write(tmp_path, name, "")) == starting_config("cartpole")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat = 0.1", "unknown key 'learning_rat'. Did you mean 'learning_rate'?"),
        ("zzz = 1", "unknown key 'zzz'."),
        ("[ppo]\ngama = 0.9", "unknown key 'gama' in [ppo]. Did you mean 'gamma'?"),
        ("[ppo]\nlr = 0.9", "unknown key 'lr' in [ppo]. It is called 'learning_rate' here."),
        ("[policy]\nhiden = [1]", "unknown key 'hiden' in [policy]. Did you mean 'hidden'?"),
        ("[eval]\nepisode = 5", "unknown key 'episode' in [eval]. Did you mean 'episodes'?"),
        ("policy = 5", "[policy] must be a table of values, not 5"),
        ("[env]\nname = 'bandit'\narm = 5", "bandit has no parameter 'arm'. Did you mean 'arms'?"),
        ("env = 5", "env must be a name, or a table"),
        ("[env]\nname = 5", "env must be a name, or a table"),
        ("gamma = 1.5", "gamma=1.5 must be from 0 to 1"),
        ("gamma = 'high'", "gamma='high' must be a number"),
        ("num_envs = 6\nnum_steps = 10\nnum_minibatches = 7", "num_minibatches=7 does not split"),
        ("config_version = 99", "config_version 99; this scramjet reads up to 1: upgrade scramjet"),
        ("config_version = 'new'", "config_version 'new'"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_the_file_the_key_and_the_fix(tmp_path, text, message):
    path = write(tmp_path, "run.toml", text)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        load_config(path)
    assert str(caught.value).count(str(path)) == 1


@pytest.mark.parametrize("text", ["1: 2", "on: 2", "policy: {1: 2}", "env: {name: bandit, 1: 2}", "null: 3"])
def test_a_yaml_key_that_is_no_text_is_an_unknown_key_not_a_crash(tmp_path, text):
    with pytest.raises(ConfigError, match=r"unknown key|has no parameter"):
        load_config(write(tmp_path, "run.yaml", text))


@pytest.mark.parametrize("date", ["2020-01-01", "2020-99-99", "2020-01-01T10:00:00"])
def test_a_date_in_yaml_is_text_and_no_number(tmp_path, date):
    with pytest.raises(ConfigError, match=rf"seed='{date}' must be a whole number"):
        load_config(write(tmp_path, "run.yaml", f"seed: {date}"))


def test_an_unknown_world_in_a_file_is_named_with_the_nearest_name(tmp_path):
    with pytest.raises(WorldError, match=r"unknown world 'cartpoel'.*Did you mean 'cartpole'"):
        load_config(write(tmp_path, "run.toml", 'env = "cartpoel"'))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("run.toml", "seed = = 1", "is not valid"),
        ("run.yaml", "seed: [1", "is not valid"),
        ("run.yaml", "seed: !!timestamp 2020-01-01", "is not valid: line 1 has the tag"),
        ("run.yaml", "seed: &a 1\ngamma: *a", "is not valid: line 2: write out what *a stands for"),
        ("run.yaml", "- 1\n- 2", "must hold key = value pairs, not list"),
        ("run.json", "{}", "must end in .toml, .yaml or .yml"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_line(tmp_path, name, text, message):
    path = write(tmp_path, name, text)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_refused_by_path(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the config file .*nowhere\.toml"):
        load_config(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not text"):
        load_config(tmp_path / "binary.toml")


# --- presets and precedence --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_preset_loads_names_its_own_world_and_can_be_run(path):
    written = tomllib.loads(path.read_text())
    shared = {"atari": "ale:Pong", "classic": "cartpole"}  # presets of many worlds, which name none
    table = written["env"] if path.stem not in shared else shared[path.stem]
    name = table["name"] if isinstance(table, dict) else table
    if path.stem != "classic":
        assert path.stem.startswith(preset_path(name).stem), "a second preset of a world begins with the first's name"
    config = starting_config(name, preset=path.stem)
    assert resolve(config).env == name
    flat = config_files.to_dict(config)
    for key, value in written.items():
        written_there = flat[key]
        if isinstance(value, dict):  # a table
            written_there = {name: written_there[name] for name in value}
            value = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
        if key != "env":
            assert written_there == (None if value == "none" else value)


def test_there_is_a_preset_for_cartpole():
    assert (CONFIGS / "cartpole.toml").is_file()


def test_a_world_without_a_preset_starts_from_the_defaults():
    assert preset_path("probe_constant") is None
    assert starting_config("probe_constant") == RunConfig(env="probe_constant")


def test_an_alias_has_the_preset_of_its_world():
    assert starting_config("CartPole-v1").num_steps == starting_config("cartpole").num_steps
    assert preset_path("CartPole-v1") == preset_path("cartpole")


def test_a_file_lies_over_the_preset_which_lies_over_the_defaults(tmp_path):
    preset = tomllib.loads((CONFIGS / "cartpole.toml").read_text())
    config = load_config(write(tmp_path, "run.toml", "num_steps = 256\nseed = 9\n[policy]\nactivation = 'relu'"))
    assert config.num_steps == 256 != preset["num_steps"]  # the file's
    assert config.num_envs == preset["num_envs"] != RunConfig().num_envs  # the preset's
    assert config.ppo.learning_rate == preset["learning_rate"] != PPOConfig().learning_rate
    assert "value_coef" not in preset
    assert config.ppo.value_coef == PPOConfig().value_coef  # the default
    assert config.policy == PolicyConfig(activation="relu")


def test_a_file_for_another_world_does_not_get_cartpoles_preset(tmp_path):
    config = load_config(write(tmp_path, "run.toml", 'env = "probe_action"'))
    assert config == RunConfig(env="probe_action")


def test_a_toml_file_beside_a_users_world_is_no_preset(tmp_path):
    world = write(tmp_path, "world.py", "")
    write(tmp_path, "world.py.toml", "seed = 5")
    assert preset_path(str(world)) is None


def test_world_parameters_are_kept_for_the_same_world_and_dropped_for_another():
    config = RunConfig(env="bandit", env_parameters={"arms": 6})
    assert apply(config, {"env": {"noise": 0.5}}, "test").env_parameters == {"arms": 6, "noise": 0.5}
    assert apply(config, {"env": "probe_delay"}, "test").env_parameters == {}
    assert apply(config, {"seed": 2}, "test").env_parameters == {"arms": 6}


# --- frozen configs ----------------------------------------------------------------------------------------

CHANGED = {
    "defaults": RunConfig(),
    "resolved": resolve(RunConfig()),
    "every kind of value": replace(SAME, time_limit="1h30m", env_parameters={"arms": 5, "noise": 0.25}),
    "no limit on episodes": RunConfig(env="cartpole", env_parameters={"max_episode_steps": None}),
    "everything off": RunConfig(
        ppo=PPOConfig(max_grad_norm=None, normalize_advantages="off", target_kl=None, minibatch_size=None)
    ),
    "everything on": RunConfig(ppo=PPOConfig(value_clip=0.2, target_kl=0.02, minibatch_size=64, learning_rate=1e-7)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_frozen_config_comes_back_equal_and_writes_every_value(name, tmp_path):
    config = CHANGED[name]
    text = to_toml(config)
    assert load_frozen(write(tmp_path, "config.toml", text)) == config
    written = tomllib.loads(text)
    assert written["config_version"] == 1
    for part, table in ((config.ppo, written), (config.policy, written["policy"]), (config.eval, written["eval"])):
        assert {field.name for field in fields(part)} <= set(table)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**62 - 1),
    gamma=st.floats(0, 1),
    adam_eps=st.floats(1e-12, 1),
    hidden=st.lists(st.integers(1, 512), min_size=1, max_size=4),
    value_clip=st.none() | st.floats(1e-6, 10),
    switch=st.booleans(),
)
def test_any_config_comes_back_exactly_from_its_frozen_file(
    tmp_path, seed, gamma, adam_eps, hidden, value_clip, switch
):
    config = RunConfig(
        seed=seed,
        ppo=PPOConfig(gamma=gamma, adam_eps=adam_eps, value_clip=value_clip, normalize_rewards=switch),
        policy=PolicyConfig(hidden=hidden, shared_trunk=switch),
    )
    assert load_frozen(write(tmp_path, "config.toml", to_toml(config))) == config


def test_a_frozen_config_does_not_take_values_from_todays_preset(tmp_path):
    config = RunConfig(env="cartpole", num_envs=3, num_steps=4)
    assert load_frozen(write(tmp_path, "config.toml", to_toml(config))).ppo.learning_rate == PPOConfig().learning_rate


def test_a_frozen_config_of_a_newer_scramjet_is_refused(tmp_path):
    text = to_toml(RunConfig()).replace("config_version = 1", "config_version = 2")
    with pytest.raises(ConfigError, match="config_version 2; this scramjet reads up to 1: upgrade scramjet"):
        load_frozen(write(tmp_path, "config.toml", text))


def test_the_list_of_fields_names_every_field_once():
    names = [name for name, _, _ in field_docs()]
    assert len(names) == len(set(names))
    assert {"gamma", "seed", "policy.hidden", "eval.every", "checkpoint.every"} <= set(names)
    assert set(names) >= {field.name for field in fields(PPOConfig)}


def nested_lists(depth: int) -> list:
    return [nested_lists(depth - 1)] if depth else []


def test_toml_is_read_whatever_dots_its_strings_and_comments_hold(tmp_path: Path) -> None:
    dots = "." * 500
    (tmp_path / "a.toml").write_text(
        f"# it's {dots}\nseed = 7 # \"{dots}\nreplay_schedule = \"{dots}\"\n[env]\nname = '{dots}'\n"
        f'x = """{dots}\n"\\"{dots}"""\ny = [{"0.5, " * 500}]\n[eval]\nevery = 1\n'
    )
    data = read_file(tmp_path / "a.toml")
    assert (data["seed"], data["env"]["name"], len(data["env"]["y"]), data["eval"]) == (7, dots, 500, {"every": 1})


def test_a_config_too_large_to_be_read_back_is_refused_before_the_run_begins() -> None:
    config = RunConfig(env="gym:CartPole-v1", env_parameters={"render_mode": "x" * 2_000_000})
    with pytest.raises(ConfigError, match=r"has 2,00.* characters, and a run keeps at most"):
        to_toml(config)


@pytest.mark.parametrize("value", ["\x1b[2J", "\ud800", "a\0", 1 << 2_000, nested_lists(150)])
def test_a_value_that_could_not_be_read_back_is_refused_before_the_run_begins(value: object) -> None:
    with pytest.raises(ConfigError, match=r"control character|at most 63 bits|holds too much"):
        to_toml(RunConfig(env="gym:CartPole-v1", env_parameters={"x": [value]}))
