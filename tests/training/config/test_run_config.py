"""The run's config: values brought to their types from wherever they come, checks that name field, value and fix."""

import math
import os
import re
import time
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.algorithms.ppo import PPOConfig
from scramjet.envs.registry import load_env
from scramjet.errors import ConfigError, WorldError
from scramjet.policies import PolicyConfig
from scramjet.settings import Spelling, coerce, describe, flag, require, settle
from scramjet.training.config.changes import changes, reopened
from scramjet.training.config.resolution import resolve, with_open_choices
from scramjet.training.config.run_config import (
    CheckpointConfig,
    EvaluationConfig,
    RunConfig,
)
from scramjet.training.config.values import parse_duration


@dataclass(frozen=True)
class Everything:
    """One field of each kind a config may have."""

    count: int = 1
    share: float = 0.5
    switch: bool = False
    word: str = "a"
    maybe: int | None = None
    maybe_word: str | None = None
    kind: Literal["red", "blue"] = "red"
    auto: int | Literal["auto"] = "auto"
    sizes: tuple[int, ...] = (1,)
    table: dict = None  # type: ignore[assignment]
    rate: float | str = 0.1
    spelled: Annotated[int, Spelling(lambda text: int(text.rstrip("!")), "a loud number")] = 0

    def __post_init__(self):
        object.__setattr__(self, "table", self.table or {})
        settle(self, "part.")


@pytest.mark.parametrize(
    ("field", "given_", "settled"),
    [
        ("count", 5, 5),
        ("count", 5.0, 5),
        ("count", 2**62, 2**62),
        ("share", 1, 1.0),
        ("switch", True, True),
        ("maybe", None, None),
        ("maybe", "none", None),
        ("maybe", "None", None),
        ("maybe", 3.0, 3),
        ("maybe_word", "none", None),
        ("maybe_word", "word", "word"),
        ("kind", "blue", "blue"),
        ("auto", "auto", "auto"),
        ("auto", 4, 4),
        ("sizes", [64, 32.0], (64, 32)),
        ("sizes", (), ()),
        ("rate", 1, 1.0),
        ("rate", "0.1@0,0@end", "0.1@0,0@end"),
        ("spelled", "7!!", 7),
        ("spelled", 7, 7),
    ],
)
def test_a_fitting_value_is_brought_to_its_declared_type(field, given_, settled):
    value = getattr(Everything(**{field: given_}), field)
    assert value == settled
    assert type(value) is type(settled)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("count", 5.5, "a whole number"),
        ("count", "5", "a whole number"),
        ("count", True, "a whole number"),
        ("count", None, "a whole number"),
        ("count", math.inf, "a whole number"),
        ("count", math.nan, "a whole number"),
        ("count", 2**70, "a whole number of at most 63 bits"),
        ("share", "0.5", "a number"),
        ("share", False, "a number"),
        ("share", math.nan, "a number"),
        ("share", math.inf, "a number; numbers are from"),
        ("switch", 1, "true or false"),
        ("switch", "true", "true or false"),
        ("word", 5, "text"),
        ("maybe", "some", "a whole number or 'none'"),
        ("kind", "green", "'red' or 'blue'"),
        ("kind", None, "'red' or 'blue'"),
        ("auto", "automatic", "a whole number or 'auto'"),
        ("sizes", 64, "a list (a whole number each)"),
        ("sizes", "64", "a list (a whole number each)"),
        ("sizes", [64, "32"], "a list (a whole number each)"),
        ("spelled", "many", "a loud number"),
        ("rate", [1], "a number or text"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_name_its_value_and_what_fits(field, value, words):
    with pytest.raises(ConfigError, match=re.escape(f"part.{field}={value!r} must be {words}")):
        Everything(**{field: value})


@pytest.mark.parametrize(
    ("value", "hint", "said"),
    [
        ("rdn", Literal["rnd", "icm"], "x='rdn' must be 'rnd' or 'icm'. Did you mean 'rnd'?"),
        ("RND", Literal["rnd", "icm"], "x='RND' must be 'rnd' or 'icm'. Did you mean 'rnd'?"),
        ("NONE", int | None, "x='NONE' must be a whole number or 'none'. Did you mean 'none'?"),
        (["icm", "rdn"], tuple[Literal["rnd", "icm"], ...], "'rnd' or 'icm' each). Did you mean 'rnd'?"),
        ("atuo", int | Literal["auto"], "x='atuo' must be a whole number or 'auto'. Did you mean 'auto'?"),
    ],
)
def test_a_value_that_is_much_like_a_choice_is_answered_with_it(value: Any, hint: Any, said: str):
    with pytest.raises(ConfigError, match=re.escape(said)):
        coerce("x", value, hint)


@pytest.mark.parametrize(("value", "hint"), [("best", Literal["rnd", "icm"]), (3, Literal["rnd"]), ("rdn", int)])
def test_a_value_that_is_like_no_choice_is_answered_with_the_choices_alone(value: Any, hint: Any):
    with pytest.raises(ConfigError) as caught:
        coerce("x", value, hint)
    assert "mean" not in str(caught.value)


def test_a_flag_is_the_kebab_case_of_its_field():
    assert flag("num_minibatches") == "--num-minibatches"


def test_a_rule_names_the_field_its_value_and_the_default():
    with pytest.raises(ConfigError, match=re.escape("count=-1 must be at least 0; the default is 1")):
        require(Everything(count=-1), ("count",), lambda x: x >= 0, "must be at least 0")


def test_types_are_described_in_words():
    assert describe(int | None) == "a whole number or 'none'"
    assert describe(tuple[float, ...]) == "a list (a number each)"


# --- RunConfig ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"), [("1M", 1_000_000), ("500K", 500_000), ("1e6", 1_000_000), (1e6, 1_000_000), (7, 7)]
)
def test_total_timesteps_may_be_written_as_people_write_it(text, count):
    assert RunConfig(total_timesteps=text).total_timesteps == count


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**62}, f"seed={2**62}"),
        ({"seed": "one"}, "seed='one' must be a whole number"),
        ({"num_envs": 0}, "num_envs=0 must be at least 1 (or 'auto')"),
        ({"num_envs": "all"}, "num_envs='all' must be a whole number or 'auto'"),
        ({"num_steps": 0}, "num_steps=0 must be at least 1"),
        ({"frame_stack": 10**9}, "frame_stack=1000000000 must be from 1 to 1024"),
        ({"num_threads": 0}, "num_threads=0 must be from 1 to 1024"),
        ({"total_timesteps": 0}, "total_timesteps=0 must be at least 1"),
        ({"total_timesteps": "lots"}, "total_timesteps='lots' must be a number of steps such as 500000, 500K or 1M"),
        ({"total_timesteps": 1.5}, "total_timesteps=1.5"),
        ({"time_limit": "soon"}, "time_limit='soon' is no duration; write 30s, 5m, 2h or 1h30m"),
        ({"time_limit": "0s"}, "time_limit='0s'"),
        ({"env": 5}, "env=5 must be text"),
        ({"env_device": "gpu"}, "env_device='gpu'"),
        (
            {"device": "cpu", "env_device": "cuda"},
            "env_device='cuda' needs the networks there too, and device is 'cpu'",
        ),
        ({"frame_stack": 4, "env_device": "cuda"}, "env_device is 'cuda'; use --env-device cpu, or --frame-stack 1"),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        RunConfig(**change)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: EvaluationConfig(every=-1), "eval.every=-1"),
        (lambda: EvaluationConfig(episodes=0), "eval.episodes=0"),
        (lambda: EvaluationConfig(final_episodes="all"), "eval.final_episodes='all'"),
        (lambda: CheckpointConfig(every=-1), "checkpoint.every=-1"),
        (lambda: CheckpointConfig(keep_last_n=0), "checkpoint.keep_last_n=0"),
        (lambda: CheckpointConfig(keep_last_n="some"), "checkpoint.keep_last_n='some'"),
    ],
)
def test_a_message_about_a_table_says_which_since_two_tables_have_a_field_called_every(make, field):
    with pytest.raises(ConfigError, match=re.escape(field)):
        make()


def test_uneven_minibatches_are_refused_when_the_config_is_built_and_the_suggestion_works():
    with pytest.raises(ConfigError) as caught:
        RunConfig(num_envs=6, num_steps=10, ppo=PPOConfig(num_minibatches=7))
    suggestion = int(re.search(r"try --num-minibatches (\d+)", str(caught.value)).group(1))
    config = RunConfig(num_envs=6, num_steps=10, ppo=PPOConfig(num_minibatches=suggestion))
    assert config.batch_size % suggestion == 0
    assert "60 samples" in str(caught.value)


def test_a_minibatch_larger_than_the_batch_is_refused_and_the_suggestion_works():
    with pytest.raises(ConfigError, match="minibatch_size=100 is larger than the batch of 60 samples") as caught:
        RunConfig(num_envs=6, num_steps=10, ppo=PPOConfig(minibatch_size=100))
    suggestion = int(re.search(r"try --minibatch-size (\d+)", str(caught.value)).group(1))
    RunConfig(num_envs=6, num_steps=10, ppo=PPOConfig(minibatch_size=suggestion))


def test_uneven_minibatches_of_an_automatic_number_of_envs_are_refused_when_it_is_decided():
    config = RunConfig(num_steps=5, ppo=PPOConfig(num_minibatches=7))
    with pytest.raises(ConfigError, match="num_minibatches=7"):
        resolve(config)


@given(total=st.integers(1, 10_000), num_envs=st.integers(1, 9), num_steps=st.integers(1, 9))
def test_the_updates_are_the_fewest_that_reach_the_total(total, num_envs, num_steps):
    ppo = PPOConfig(num_minibatches=1)
    config = RunConfig(total_timesteps=total, num_envs=num_envs, num_steps=num_steps, ppo=ppo)
    assert config.num_updates * config.batch_size >= total
    assert (config.num_updates - 1) * config.batch_size < total


def test_a_resolved_config_has_no_auto_left_and_the_worlds_one_name_and_every_parameter():
    config = resolve(RunConfig(env="CartPole-v1"))
    assert config.env == "cartpole"
    assert (config.num_envs, config.num_steps, config.ppo.minibatch_size, config.ppo.num_epochs) == (64, 64, 256, 10)
    assert config.num_threads == len(os.sched_getaffinity(0))
    assert config.env_parameters == load_env("cartpole").parameters
    assert resolve(config) == config


@pytest.mark.parametrize("env", ["cartpole", "gym:CartPole-v1"])
@pytest.mark.parametrize("total", [100_000, 10_000_000])
def test_nothing_that_shapes_learning_follows_from_the_machine(monkeypatch, env, total):
    machines = set()
    for cores, has_gpu in ((1, False), (2, False), (64, False), (16, True)):
        monkeypatch.setattr("scramjet.training.config.resolution.available_cores", lambda cores=cores: cores)
        monkeypatch.setattr("scramjet.training.config.resolution.cuda_is_ready", lambda has_gpu=has_gpu: has_gpu)
        config = resolve(RunConfig(env=env, total_timesteps=total))
        machines.add((config.num_envs, config.num_steps, config.ppo, config.policy))
    assert len(machines) == 1


@pytest.mark.parametrize(
    ("settings", "num_envs", "num_steps", "minibatch_size"),
    [
        ({}, 64, 64, 256),
        ({"total_timesteps": 200_000}, 64, 32, 256),  # some hundred updates
        ({"total_timesteps": 1_000}, 64, 16, 256),
        ({"num_envs": 4096, "total_timesteps": 100_000_000}, 4096, 64, 4096),  # a pass has 64 steps at most
        ({"num_envs": 10, "num_steps": 3}, 10, 3, 30),
        ({"num_envs": 7, "num_steps": 101}, 7, 101, 707),  # no even split into more than one is near 256
        ({"env": "gym:CartPole-v1"}, 8, 256, 64),
        ({"env": "gym:CartPole-v1", "total_timesteps": 100_000}, 8, 128, 64),
        ({"policy": PolicyConfig(memory="gru")}, 64, 64, 256),  # of whole sequences
        ({"policy": PolicyConfig(memory="gru"), "env": "gym:CartPole-v1"}, 8, 256, 256),
        ({"policy": PolicyConfig(memory="gru"), "ppo": PPOConfig(bptt_horizon=24)}, 64, 48, 384),
        ({"ppo": PPOConfig(minibatch_size=512)}, 64, 64, 512),
        ({"ppo": PPOConfig(num_minibatches=8)}, 64, 64, 512),
        ({"ppo": PPOConfig(num_minibatches=8, minibatch_size=None)}, 64, 64, 512),
    ],
)
def test_sizes_that_nobody_chose_fit_the_world_and_the_training(settings, num_envs, num_steps, minibatch_size):
    config = resolve(RunConfig(**{"env": "cartpole"} | settings))
    assert (config.num_envs, config.num_steps) == (num_envs, num_steps)
    number = config.ppo.num_minibatches_for(config.batch_size, config.sequence_length)
    assert config.batch_size / number == minibatch_size
    assert resolve(config) == config


def test_a_number_of_minibatches_that_is_given_stands_in_place_of_a_size_from_below():
    preset = PPOConfig(minibatch_size=512, num_epochs=3)
    given = reopened(preset, replace(preset, num_minibatches=8), {"num_minibatches"})
    assert given.num_minibatches_for(1024) == 8
    both = reopened(
        preset, replace(preset, num_minibatches=8, minibatch_size=64), {"num_minibatches", "minibatch_size"}
    )
    assert both.num_minibatches_for(1024) == 16
    sized = reopened(PPOConfig(num_minibatches=4), PPOConfig(num_minibatches=4, minibatch_size=128), {"minibatch_size"})
    assert (sized.num_minibatches, sized.minibatch_size) == (None, 128)


def test_a_resolved_config_keeps_numbers_that_were_given():
    config = resolve(RunConfig(env="bandit", env_parameters={"arms": 7}, num_envs=8, num_threads=1))
    assert (config.num_envs, config.num_threads, config.env_parameters["arms"]) == (8, 1, 7)
    assert config.make_env().action_space.n == 7


@pytest.mark.parametrize(
    ("has_gpu", "given_", "device", "env_device"),
    [
        (False, {}, "cpu", "cpu"),
        (True, {}, "cuda", "cuda"),
        (True, {"device": "cpu"}, "cpu", "cpu"),
        (True, {"env_device": "cpu"}, "cuda", "cpu"),
        (True, {"env_device": "cuda"}, "cuda", "cuda"),
        (True, {"policy": PolicyConfig(memory="lstm"), "num_envs": 4}, "cuda", "cuda"),
        (True, {"num_envs": 4}, "cuda", "cuda"),
        (True, {"frame_stack": 3}, "cuda", "cpu"),
        (False, {"frame_stack": 3}, "cpu", "cpu"),
        (False, {"device": "cuda", "frame_stack": 3}, "cuda", "cpu"),
        (False, {"device": "cuda", "env_device": "cpu"}, "cuda", "cpu"),
    ],
)
def test_envs_run_where_networks_do_unless_told_or_stacked(monkeypatch, has_gpu, given_, device, env_device):
    monkeypatch.setattr("scramjet.training.config.resolution.cuda_is_ready", lambda: has_gpu)
    decided = resolve(RunConfig(**given_))
    assert (decided.device, decided.env_device) == (device, env_device)
    assert resolve(decided) == decided


def test_envs_on_the_gpu_without_networks_there_are_refused_when_that_is_decided(monkeypatch):
    monkeypatch.setattr("scramjet.training.config.resolution.cuda_is_ready", lambda: False)
    with pytest.raises(ConfigError, match=r"env_device='cuda'.*use --device cuda, or --env-device auto"):
        resolve(RunConfig(env_device="cuda"))


def test_with_networks_on_the_gpu_all_threads_are_the_envs(monkeypatch):
    monkeypatch.setattr("scramjet.training.config.resolution.available_cores", lambda: 6)
    small = RunConfig(num_envs=4, num_steps=8, device="cuda")
    assert resolve(small).num_threads == 1
    assert resolve(replace(small, env_device="cpu")).num_threads == 6


def test_an_unknown_world_is_named_with_the_nearest_name():
    with pytest.raises(WorldError, match=r"unknown world 'cartpol'.*Did you mean 'cartpole'"):
        RunConfig(env="cartpol").make_env()


def test_configs_cannot_be_changed_once_built():
    with pytest.raises(FrozenInstanceError):
        RunConfig().seed = 2
    with pytest.raises(FrozenInstanceError):
        PolicyConfig().hidden = (1,)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1.5h", 5400)]
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds
    assert RunConfig(time_limit=text).time_limit_seconds == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 m", "5m!", "1h-30m", "5min", "0s", "0h0m"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError, match=r"time_limit=.* (is no duration|has no unit)"):
        parse_duration(text)


def test_no_time_limit_is_none():
    assert RunConfig().time_limit_seconds is None
    assert RunConfig(time_limit="none").time_limit is None


def test_changes_between_two_configs_are_listed_by_dotted_name():
    before = {"seed": 1, "policy": {"hidden": [64], "activation": "tanh"}, "gone": 1}
    after = {"seed": 2, "policy": {"hidden": [32], "activation": "tanh"}, "new": 5}
    assert changes(before, after) == {
        "seed": [1, 2],
        "policy.hidden": [[64], [32]],
        "gone": [1, None],
        "new": [None, 5],
    }
    assert changes(before, before) == {}


def test_replacing_a_value_checks_it_again():
    with pytest.raises(ConfigError, match="num_steps=0"):
        replace(RunConfig(), num_steps=0)


def test_a_fork_may_choose_another_device():
    on_gpu = with_open_choices(RunConfig(device="cuda", env_device="cuda", precision="tf32"))
    assert resolve(replace(on_gpu, device="cpu")).precision == "float32"
    on_cpu = with_open_choices(RunConfig(device="cpu", env_device="cpu", precision="float32"))
    moved = resolve(replace(on_cpu, device="cuda"))
    assert (moved.env_device, moved.precision) == ("cuda", "tf32")
    chosen = with_open_choices(RunConfig(device="cuda", env_device="cpu", precision="bfloat16"))
    assert (chosen.env_device, chosen.precision) == ("cpu", "bfloat16")


HUGE = 2**31 - 1  # the most of any count


@pytest.mark.parametrize(
    "settings",
    [
        {"num_steps": HUGE, "ppo": PPOConfig(bptt_horizon=HUGE - 1)},
        {"num_envs": HUGE, "num_actors": 1024, "mode": "async"},
        {"num_envs": HUGE, "num_steps": 1, "ppo": PPOConfig(num_minibatches=HUGE - 1)},
        {"num_envs": HUGE, "num_steps": 1, "ppo": PPOConfig(minibatch_size=HUGE - 1)},
    ],
)
def test_a_suggestion_for_huge_numbers_is_found_at_once(settings):
    begun = time.perf_counter()
    with pytest.raises(ConfigError, match="try --"):
        RunConfig(**settings)
    assert time.perf_counter() - begun < 5
