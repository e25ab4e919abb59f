"""Config files and keywords of `scramjet.train`: strict, over presets, the same in each form; and frozen configs."""

import json
import re
import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import ConfigError, TrustError, WorldError
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
from scramjet.training.config.keywords import TABLES, with_keywords
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
eval: {every: 0}
checkpoint: {keep_last_n: null}
"""

SAME = RunConfig(
    env="bandit", seed=7, total_timesteps=1_000_000, num_envs=16, num_steps=32,
    ppo=replace(
        starting_config("bandit").ppo, learning_rate="0.001@0,0@end", gamma=1.0, adam_eps=1e-6, max_grad_norm=None,
        normalize_rewards=True,
    ),
    policy=PolicyConfig(hidden=(32, 16), activation="relu"), eval=EvaluationConfig(every=0),
    checkpoint=CheckpointConfig(keep_last_n=None),
)  # fmt: skip


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_means_what_the_same_values_mean_in_python(tmp_path):
    for name, text in (("run.toml", TOML), ("run.yaml", YAML), ("run.yml", YAML)):
        assert load_config(write(tmp_path, name, text)) == SAME, name
    for name in ("run.toml", "run.yaml"):
        assert load_config(write(tmp_path, name, "")) == starting_config("cartpole"), "an empty file is the preset"


def test_numbers_dates_and_keys_of_yaml_are_what_a_person_means(tmp_path):
    for text in ("1e-3", "1e6", "2.5e-4"):  # YAML 1.1 reads 1e-3 as text
        for name, line in (("run.toml", f"target_kl = {text}"), ("run.yaml", f"target_kl: {text}")):
            assert load_config(write(tmp_path, name, line)).ppo.target_kl == float(text)
    with pytest.raises(ConfigError, match="seed='7' must be a whole number"):
        load_config(write(tmp_path, "run.yaml", "seed: '7'"))
    for date in ("2020-01-01", "2020-99-99", "2020-01-01T10:00:00"):
        with pytest.raises(ConfigError, match=rf"seed='{date}' must be a whole number"):
            load_config(write(tmp_path, "run.yaml", f"seed: {date}"))
    for text in ("1: 2", "on: 2", "policy: {1: 2}", "env: {name: bandit, 1: 2}", "null: 3"):
        with pytest.raises(ConfigError, match=r"unknown key|has no parameter"):
            load_config(write(tmp_path, "run.yaml", text))


def test_a_mistake_in_a_file_is_told_with_the_file_the_key_and_the_fix(tmp_path):
    for text, message in (
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
        ("gamma = 0.5\n[ppo]\ngamma = 0.5", "gamma is given twice, at the top and in"),
        ("num_envs = 6\nnum_steps = 10\nnum_minibatches = 7", "num_minibatches=7 does not split"),
        ("config_version = 99", "config_version 99; this scramjet reads up to 1: upgrade scramjet"),
        ("config_version = 'new'", "config_version 'new'"),
    ):
        path = write(tmp_path, "run.toml", text)
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            load_config(path)
        assert str(caught.value).count(str(path)) == 1, text
    with pytest.raises(WorldError, match=r"unknown world 'cartpoel'.*Did you mean 'cartpole'"):
        load_config(write(tmp_path, "run.toml", 'env = "cartpoel"'))


def test_a_file_that_is_no_config_is_refused_in_one_line(tmp_path):
    for name, text, message in (
        ("run.toml", "seed = = 1", "is not valid"),
        ("run.yaml", "seed: [1", "is not valid"),
        ("run.yaml", "seed: !!timestamp 2020-01-01", "is not valid: line 1 has the tag"),
        ("run.yaml", "seed: &a 1\ngamma: *a", "is not valid: line 2: write out what *a stands for"),
        ("run.yaml", "seed: 1\nseed: 2", "line 2 gives 'seed' again, which stands in line 1"),
        ("run.yaml", "- 1\n- 2", "must hold key = value pairs, not list"),
        ("run.json", "{}", "must end in .toml, .yaml or .yml"),
        ("binary.toml", b"\xff\xfe\x00", "is not text"),
        ("nowhere.toml", None, "cannot read the config file"),
    ):
        path = tmp_path / name
        if text is not None:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            read_file(path)
        assert str(path) in str(caught.value), name
        assert "\n" not in str(caught.value), name


# --- presets and precedence --------------------------------------------------------------------------------


def test_every_preset_loads_names_its_own_world_and_can_be_run():
    paths = sorted(CONFIGS.glob("*.toml"))
    assert CONFIGS / "cartpole.toml" in paths
    shared = {"atari": "ale:Pong", "classic": "cartpole"}  # presets of many worlds, which name none
    for path in paths:
        written = tomllib.loads(path.read_text())
        table = written["env"] if path.stem not in shared else shared[path.stem]
        name = table["name"] if isinstance(table, dict) else table
        if path.stem != "classic":
            assert path.stem.startswith(preset_path(name).stem), "a second preset of a world begins with the first's"
        config = starting_config(name, preset=path.stem)
        assert resolve(config).env == name, path
        flat = config_files.to_dict(config)
        for key, value in written.items():
            written_there = flat[key]
            if isinstance(value, dict):  # a table
                written_there = {name: written_there[name] for name in value}
                value = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
            if key != "env":
                assert written_there == (None if value == "none" else value), (path, key)


def test_a_world_without_a_preset_starts_from_the_defaults_and_an_alias_has_that_of_its_world(tmp_path):
    assert preset_path("probe_constant") is None
    assert starting_config("probe_constant") == RunConfig(env="probe_constant")
    config = load_config(write(tmp_path, "run.toml", 'env = "probe_action"'))  # and not with cartpole's preset
    assert config == RunConfig(env="probe_action")
    assert starting_config("CartPole-v1").num_steps == starting_config("cartpole").num_steps
    assert preset_path("CartPole-v1") == preset_path("cartpole")
    world = write(tmp_path, "world.py", "")
    write(tmp_path, "world.py.toml", "seed = 5")  # beside a user's world: no preset
    assert preset_path(str(world)) is None


def test_a_file_lies_over_the_preset_which_lies_over_the_defaults(tmp_path):
    preset = tomllib.loads((CONFIGS / "cartpole.toml").read_text())
    config = load_config(write(tmp_path, "run.toml", "num_steps = 256\nseed = 9\n[policy]\nactivation = 'relu'"))
    assert config.num_steps == 256 != preset["num_steps"]  # the file's
    assert config.num_envs == preset["num_envs"] != RunConfig().num_envs  # the preset's
    assert config.ppo.learning_rate == preset["learning_rate"] != PPOConfig().learning_rate
    assert "value_coef" not in preset
    assert config.ppo.value_coef == PPOConfig().value_coef  # the default
    assert config.policy == PolicyConfig(activation="relu")


def test_world_parameters_are_kept_for_the_same_world_and_dropped_for_another():
    config = RunConfig(env="bandit", env_parameters={"arms": 6})
    assert apply(config, {"env": {"noise": 0.5}}, "test").env_parameters == {"arms": 6, "noise": 0.5}
    assert apply(config, {"env": "probe_delay"}, "test").env_parameters == {}
    assert apply(config, {"seed": 2}, "test").env_parameters == {"arms": 6}


# --- frozen configs ----------------------------------------------------------------------------------------


def test_a_frozen_config_comes_back_equal_and_writes_every_value(tmp_path):
    off = PPOConfig(max_grad_norm=None, normalize_advantages="off", target_kl=None, minibatch_size=None)
    on = PPOConfig(value_clip=0.2, target_kl=0.02, minibatch_size=64, learning_rate=1e-7)
    for config in (
        RunConfig(), resolve(RunConfig()), replace(SAME, time_limit="1h30m", env_parameters={"arms": 5, "noise": 0.25}),
        RunConfig(env="cartpole", env_parameters={"max_episode_steps": None}), RunConfig(ppo=off), RunConfig(ppo=on),
    ):  # fmt: skip
        text = to_toml(config)
        assert load_frozen(write(tmp_path, "config.toml", text)) == config
        written = tomllib.loads(text)
        assert written["config_version"] == 1
        for part, table in ((config.ppo, written), (config.policy, written["policy"]), (config.eval, written["eval"])):
            assert {field.name for field in fields(part)} <= set(table), config


PPO_CONFIGS = st.builds(
    PPOConfig, gamma=st.floats(0, 1), adam_eps=st.floats(1e-12, 1), value_clip=st.none() | st.floats(1e-6, 10),
    normalize_rewards=st.booleans(),
)  # fmt: skip
HIDDEN = st.lists(st.integers(1, 512), min_size=1, max_size=4)
POLICY_CONFIGS = st.builds(PolicyConfig, hidden=HIDDEN, shared_trunk=st.booleans())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=st.builds(RunConfig, seed=st.integers(0, 2**62 - 1), ppo=PPO_CONFIGS, policy=POLICY_CONFIGS))
def test_any_config_comes_back_exactly_from_its_frozen_file(tmp_path, config):
    assert load_frozen(write(tmp_path, "config.toml", to_toml(config))) == config


def test_a_frozen_config_takes_nothing_from_todays_preset_and_none_of_a_newer_scramjet_is_read(tmp_path):
    text = to_toml(RunConfig(env="cartpole", num_envs=3, num_steps=4))
    assert load_frozen(write(tmp_path, "config.toml", text)).ppo.learning_rate == PPOConfig().learning_rate
    text = text.replace("config_version = 1", "config_version = 2")
    with pytest.raises(ConfigError, match="config_version 2; this scramjet reads up to 1: upgrade scramjet"):
        load_frozen(write(tmp_path, "config.toml", text))


def test_the_list_of_fields_names_every_field_once():
    names = [name for name, _, _ in field_docs()]
    assert len(names) == len(set(names))
    assert {"gamma", "seed", "policy.hidden", "eval.every", "checkpoint.every"} <= set(names)
    assert set(names) >= {field.name for field in fields(PPOConfig)}


def test_toml_is_read_whatever_dots_its_strings_and_comments_hold(tmp_path):
    dots = "." * 500
    (tmp_path / "a.toml").write_text(
        f"# it's {dots}\nseed = 7 # \"{dots}\nreplay_schedule = \"{dots}\"\n[env]\nname = '{dots}'\n"
        f'x = """{dots}\n"\\"{dots}"""\ny = [{"0.5, " * 500}]\n[eval]\nevery = 1\n'
    )
    data = read_file(tmp_path / "a.toml")
    assert (data["seed"], data["env"]["name"], len(data["env"]["y"]), data["eval"]) == (7, dots, 500, {"every": 1})


def test_a_value_that_could_not_be_read_back_is_refused_before_the_run_begins():
    too_large = RunConfig(env="gym:CartPole-v1", env_parameters={"render_mode": "x" * 2_000_000})
    with pytest.raises(ConfigError, match=r"has 2,00.* characters, and a run keeps at most"):
        to_toml(too_large)
    for value in ("\x1b[2J", "\ud800", "a\0", 1 << 2_000, json.loads("[" * 150 + "]" * 150)):
        with pytest.raises(ConfigError, match=r"control character|at most 63 bits|holds too much"):
            to_toml(RunConfig(env="gym:CartPole-v1", env_parameters={"x": [value]}))


# --- keywords --------------------------------------------------------------------------------------------------------

TINY = {
    "num_envs": 4, "num_steps": 4, "total_timesteps": 32, "policy": {"hidden": [8]},
    "eval": {"every": 0, "final_episodes": 0}, "display": "quiet",
}  # fmt: skip
DEFAULT = starting_config("cartpole")


def frozen(result):
    return load_frozen(result.run_path / "config.toml")


def test_settings_in_every_form_reach_the_run_over_the_preset(tmp_path):
    keywords = {"seed": 2, "learning_rate": 1e-3, "checkpoint": scramjet.CheckpointConfig(every=7)}
    dotted = {"policy.activation": "relu"}
    config = frozen(scramjet.train("cartpole", runs_dir=tmp_path, **keywords, **dotted, **TINY))
    assert (config.seed, config.ppo.learning_rate, config.num_envs, config.total_timesteps) == (2, 1e-3, 4, 32)
    assert (config.policy.hidden, config.policy.activation) == ((8,), "relu")
    assert config.checkpoint == scramjet.CheckpointConfig(every=7)
    assert config.ppo.gamma == DEFAULT.ppo.gamma  # of the preset
    of_env = with_keywords(DEFAULT, {"env_parameters": {"gravity": 12.0}, "env.force": 9.0}).env_parameters
    assert (of_env["gravity"], of_env["force"]) == (12.0, 9.0)


def test_they_lie_over_a_run_config_a_file_and_a_fork_and_a_resumed_run_takes_only_its_length(tmp_path):
    given = scramjet.RunConfig(env="bandit", seed=5, ppo=scramjet.PPOConfig(gamma=0.5))
    first = scramjet.train(given, runs_dir=tmp_path, gae_lambda=0.9, **TINY)
    assert (frozen(first).seed, frozen(first).ppo.gamma, frozen(first).ppo.gae_lambda) == (5, 0.5, 0.9)
    file = tmp_path / "mine.toml"
    file.write_text('env = "bandit"\nseed = 7\n[ppo]\ngamma = 0.25\n')
    second = scramjet.train(file, runs_dir=tmp_path, learning_rate=1e-3, **TINY)
    assert (frozen(second).seed, frozen(second).ppo.gamma, frozen(second).ppo.learning_rate) == (7, 0.25, 1e-3)
    fork = scramjet.train(fork=first.run_path, runs_dir=tmp_path, entropy_coef=0.5, total_timesteps=64, display="quiet")
    assert (frozen(fork).ppo.gamma, frozen(fork).ppo.entropy_coef) == (0.5, 0.5)
    with pytest.raises(ConfigError, match=r"seed cannot change when a run is resumed.*fork="):
        scramjet.train(resume=first.run_path, seed=6)
    resumed = scramjet.train(resume=first.run_path, total_timesteps="0.064K", display="quiet")
    assert resumed.step == 64


def test_a_wrong_one_is_told_by_name_with_the_fix():
    for given_, message in (
        ({"lerning_rate": 1e-3}, "no setting 'lerning_rate'. Did you mean 'learning_rate'"),
        ({"callback": []}, "Did you mean 'callbacks'"),
        ({"learning_rate": lambda left: 1e-3 * left}, "text: '0.001@0,0@end' falls from 0.001 to 0"),
        ({"policy": "MlpPolicy"}, "the network follows from the observation"),
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
    ):
        with pytest.raises(ConfigError, match=message):
            with_keywords(DEFAULT, given_)


def test_a_config_object_replaces_a_table_and_what_is_given_beside_it_changes_that():
    for table, kind in TABLES.items():  # and their classes are in the package
        given_ = getattr(scramjet, kind.__name__)()
        assert getattr(with_keywords(DEFAULT, {table: given_}), table) == given_, table
    policy = {"policy": scramjet.PolicyConfig(memory="gru"), "policy.hidden": [8]}
    config = with_keywords(DEFAULT, {**policy, "ppo": scramjet.PPOConfig(), "gamma": 0.5})
    assert config.policy == scramjet.PolicyConfig(memory="gru", hidden=(8,))
    assert config.ppo == scramjet.PPOConfig(gamma=0.5)
    sized = replace(DEFAULT, ppo=replace(DEFAULT.ppo, minibatch_size=64))
    assert with_keywords(sized, {"num_minibatches": 2}).ppo.minibatch_size == "auto"  # as the flag does


def test_a_file_may_group_what_is_of_ppo_in_a_table(tmp_path):
    for name, text in (("mine.yaml", "ppo:\n  gamma: 0.5\nseed: 3\n"), ("mine.toml", "seed = 3\n[ppo]\ngamma = 0.5\n")):
        (tmp_path / name).write_text(text)
        config = load_config(tmp_path / name)
        assert (config.ppo.gamma, config.seed) == (0.5, 3), name


def test_keywords_do_not_let_a_strangers_file_name_code(tmp_path):
    (tmp_path / "world.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "mine.toml").write_text(f'env = "{tmp_path}/world.py"')
    with pytest.raises(TrustError, match=r"world\.py"):
        scramjet.train(tmp_path / "mine.toml", runs_dir=tmp_path, env_parameters={"length": 3}, **TINY)
