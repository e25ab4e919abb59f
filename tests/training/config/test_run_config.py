"""The run's config: values brought to their types from wherever they come, checks that name field, value and fix."""

import itertools
import math
import os
import re
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scramjet
from scramjet.algorithms.algorithm import ALGORITHMS, SHARED_SETTINGS, Algorithm
from scramjet.algorithms.config import AlphaZeroConfig, PPOConfig, SPOConfig
from scramjet.commands.arguments.train import Place, base_config
from scramjet.envs.registry import load_env
from scramjet.errors import ConfigError, WorldError
from scramjet.policies import PolicyConfig
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.settings import Spelling, coerce, describe, flag, require, settle
from scramjet.training.config.algorithm_choice import check_algorithm, with_algorithm
from scramjet.training.config.changes import changes, reopened
from scramjet.training.config.files import load_config, starting_config
from scramjet.training.config.keywords import with_keywords
from scramjet.training.config.mode_checks import check_processes
from scramjet.training.config.presets import preset_path
from scramjet.training.config.resolution import resolve, with_open_choices
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.config.values import parse_duration
from scramjet.training.curiosity.config import check_curiosity
from scramjet.training.display.summary import _mode_note
from scramjet.training.start import _advice

GRU = PolicyConfig(memory="gru")


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
    spelled: Annotated[int, Spelling(lambda text: int(text.rstrip("!")), "a loud number", "LOUD")] = 0

    def __post_init__(self):
        object.__setattr__(self, "table", self.table or {})
        settle(self, "part.")


def test_a_fitting_value_is_brought_to_its_declared_type():
    for field, given_, settled in (
        ("count", 5, 5), ("count", 5.0, 5), ("count", 2**62, 2**62), ("share", 1, 1.0), ("switch", True, True),
        ("maybe", None, None), ("maybe", "none", None), ("maybe", "None", None), ("maybe", 3.0, 3),
        ("maybe_word", "none", None), ("maybe_word", "word", "word"), ("kind", "blue", "blue"),
        ("auto", "auto", "auto"), ("auto", 4, 4), ("sizes", [64, 32.0], (64, 32)), ("sizes", (), ()),
        ("rate", 1, 1.0), ("rate", "0.1@0,0@end", "0.1@0,0@end"), ("spelled", "7!!", 7), ("spelled", 7, 7),
    ):  # fmt: skip
        value = getattr(Everything(**{field: given_}), field)
        assert value == settled, (field, given_)
        assert type(value) is type(settled), (field, given_)


def test_a_value_of_the_wrong_type_is_refused_with_its_name_its_value_and_what_fits():
    for field, values, words in (
        ("count", (5.5, "5", True, None, math.inf, math.nan), "a whole number"),
        ("count", (2**70,), "a whole number of at most 63 bits"),
        ("share", ("0.5", False, math.nan), "a number"),
        ("share", (math.inf,), "a number; numbers are from"),
        ("switch", (1, "true"), "true or false"),
        ("word", (5,), "text"),
        ("maybe", ("some",), "a whole number or 'none'"),
        ("kind", ("green", None), "'red' or 'blue'"),
        ("auto", ("automatic",), "a whole number or 'auto'"),
        ("sizes", (64, "64", [64, "32"]), "a list (a whole number each)"),
        ("spelled", ("many",), "a loud number"),
        ("rate", ([1],), "a number or text"),
    ):
        for value in values:
            with pytest.raises(ConfigError, match=re.escape(f"part.{field}={value!r} must be {words}")):
                Everything(**{field: value})


def test_a_value_that_is_much_like_a_choice_is_answered_with_it_and_one_like_none_with_the_choices_alone():
    methods = Literal["rnd", "icm"]
    for value, hint, said in (
        ("rdn", methods, "x='rdn' must be 'rnd' or 'icm'. Did you mean 'rnd'?"),
        ("RND", methods, "x='RND' must be 'rnd' or 'icm'. Did you mean 'rnd'?"),
        ("NONE", int | None, "x='NONE' must be a whole number or 'none'. Did you mean 'none'?"),
        (["icm", "rdn"], tuple[methods, ...], "'rnd' or 'icm' each). Did you mean 'rnd'?"),
        ("atuo", int | Literal["auto"], "x='atuo' must be a whole number or 'auto'. Did you mean 'auto'?"),
        ("best", methods, "'rnd' or 'icm'"),
        (3, Literal["rnd"], "'rnd'"),
        ("rdn", int, "a whole number"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)) as caught:
            coerce("x", value, hint)
        assert ("mean" in str(caught.value)) == ("mean" in said), value


def test_a_rule_names_the_field_its_value_and_the_default_and_types_and_flags_are_in_words():
    with pytest.raises(ConfigError, match=re.escape("count=-1 must be at least 0; the default is 1")):
        require(Everything(count=-1), ("count",), lambda x: x >= 0, "must be at least 0")
    assert describe(int | None) == "a whole number or 'none'"
    assert describe(tuple[float, ...]) == "a list (a number each)"
    assert flag("num_minibatches") == "--num-minibatches"


def test_total_timesteps_and_durations_may_be_written_as_people_write_them():
    for text, count in (("1M", 1_000_000), ("500K", 500_000), ("1e6", 1_000_000), (1e6, 1_000_000), (7, 7)):
        assert RunConfig(total_timesteps=text).total_timesteps == count, text
    for text, seconds in (("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1.5h", 5400)):
        assert parse_duration(text) == RunConfig(time_limit=text).time_limit_seconds == seconds, text
    for text in ("", "5", "m", "-5m", "5 m", "5m!", "1h-30m", "5min", "0s", "0h0m"):
        with pytest.raises(ConfigError, match=r"time_limit=.* (is no duration|has no unit)"):
            parse_duration(text)
    assert RunConfig().time_limit_seconds is None
    assert RunConfig(time_limit="none").time_limit is None


REFUSED = [
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
    ({"device": "cpu", "env_device": "cuda"}, "env_device='cuda' needs the networks there too, and device is 'cpu'"),
    ({"frame_stack": 4, "env_device": "cuda"}, "env_device is 'cuda'; use --env-device cpu, or --frame-stack 1"),
    # Several processes.
    ({"num_processes": 0}, "num_processes=0 must be from 1 to 1024"),
    ({"num_envs": 64, "num_processes": 3}, "try --num-envs 63"),
    ({"num_envs": 1, "num_processes": 2}, "try --num-envs 2"),
    (
        {"num_envs": 4, "num_steps": 9, "num_processes": 4, "ppo": PPOConfig(num_minibatches=6)},
        "does not divide the 6 samples of a minibatch (num_minibatches=6); try --num-minibatches 3",
    ),
    (
        {"num_envs": 4, "num_steps": 9, "num_processes": 4, "ppo": PPOConfig(minibatch_size=6)},
        "does not divide the 6 samples of a minibatch (minibatch_size=6); try --minibatch-size 12",
    ),
    (
        {"num_envs": 4, "num_steps": 8, "num_processes": 2, "policy": GRU, "ppo": PPOConfig(num_minibatches=4)},
        "does not divide the 1 sequences of 8 steps of a minibatch (num_minibatches=4); try --num-minibatches 2",
    ),
    (
        {"num_envs": 8, "num_processes": 2, "mode": "async", "num_actors": 8},
        "8 actors do not evenly divide the 4 envs of each of num_processes=2; try --num-actors 4",
    ),
    ({"env": "squared", "algorithm": "spo", "num_processes": 2}, "algorithm='spo' learns in one process"),
    (
        {"env": "tic_tac_toe", "num_processes": 2, "self_play": SelfPlayConfig(pool_fraction=0.5)},
        "a pool of opponents is kept by one process",
    ),
    (
        {"mode": "async", "record_schedule": True, "num_processes": 2},
        "record_schedule is for one process; use --num-processes 1",
    ),
]


def test_a_run_that_cannot_be_is_refused_by_name_with_the_fix():
    for change, message in REFUSED:
        with pytest.raises(ConfigError, match=re.escape(message)):
            RunConfig(**change)
    with pytest.raises(ConfigError, match="num_steps=0"):
        replace(RunConfig(), num_steps=0)  # a value that is replaced is checked again
    with pytest.raises(WorldError, match=r"unknown world 'cartpol'.*Did you mean 'cartpole'"):
        RunConfig(env="cartpol").make_env()
    with pytest.raises(FrozenInstanceError):
        RunConfig().seed = 2
    with pytest.raises(FrozenInstanceError):
        PolicyConfig().hidden = (1,)


def test_a_message_about_a_table_says_which_since_two_tables_have_a_field_called_every():
    for kind, table in ((EvaluationConfig, "eval"), (CheckpointConfig, "checkpoint")):
        fields = {"every": -1} | ({"episodes": 0, "final_episodes": "all"} if table == "eval" else {"keep_last_n": 0})
        for name, value in fields.items():
            with pytest.raises(ConfigError, match=re.escape(f"{table}.{name}={value!r}")):
                kind(**{name: value})


def test_minibatches_that_do_not_split_the_batch_are_refused_and_the_suggestion_works():
    for given_, words, suggested in (
        ({"num_minibatches": 7}, "60 samples", "num_minibatches"),
        ({"minibatch_size": 100}, "minibatch_size=100 is larger than the batch of 60 samples", "minibatch_size"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            RunConfig(num_envs=6, num_steps=10, ppo=PPOConfig(**given_))
        number = int(re.search(rf"try {flag(suggested)} (\d+)", str(caught.value)).group(1))
        assert RunConfig(num_envs=6, num_steps=10, ppo=PPOConfig(**{suggested: number})).batch_size % number == 0
    with pytest.raises(ConfigError, match="num_minibatches=7"):  # of a number of envs that is decided only then
        resolve(RunConfig(num_steps=5, ppo=PPOConfig(num_minibatches=7)))


@given(total=st.integers(1, 10_000), num_envs=st.integers(1, 9), num_steps=st.integers(1, 9))
def test_the_updates_are_the_fewest_that_reach_the_total(total, num_envs, num_steps):
    ppo = PPOConfig(num_minibatches=1)
    config = RunConfig(total_timesteps=total, num_envs=num_envs, num_steps=num_steps, ppo=ppo)
    assert config.num_updates * config.batch_size >= total
    assert (config.num_updates - 1) * config.batch_size < total


def test_a_resolved_config_has_no_auto_left_the_worlds_one_name_every_parameter_and_what_was_given():
    config = resolve(RunConfig(env="CartPole-v1"))
    assert config.env == "cartpole"
    assert (config.num_envs, config.num_steps, config.ppo.minibatch_size, config.ppo.num_epochs) == (64, 64, 256, 10)
    assert config.num_threads == len(os.sched_getaffinity(0))
    assert config.env_parameters == load_env("cartpole").parameters
    assert resolve(config) == config
    given_ = resolve(RunConfig(env="bandit", env_parameters={"arms": 7}, num_envs=8, num_threads=1))
    assert (given_.num_envs, given_.num_threads, given_.env_parameters["arms"]) == (8, 1, 7)
    assert given_.make_env().action_space.n == 7


def test_nothing_that_shapes_learning_follows_from_the_machine(monkeypatch):
    for env, total in itertools.product(("cartpole", "gym:CartPole-v1"), (100_000, 10_000_000)):
        machines = set()
        for cores, has_gpu in ((1, False), (2, False), (64, False), (16, True)):
            monkeypatch.setattr("scramjet.training.config.resolution.available_cores", lambda cores=cores: cores)
            monkeypatch.setattr("scramjet.training.config.resolution.cuda_is_ready", lambda has_gpu=has_gpu: has_gpu)
            config = resolve(RunConfig(env=env, total_timesteps=total))
            machines.add((config.num_envs, config.num_steps, config.ppo, config.policy))
        assert len(machines) == 1, (env, total)


def test_sizes_that_nobody_chose_fit_the_world_and_the_training():
    for settings, num_envs, num_steps, minibatch_size in (
        ({}, 64, 64, 256),
        ({"total_timesteps": 200_000}, 64, 32, 256),  # some hundred updates
        ({"total_timesteps": 1_000}, 64, 16, 256),
        ({"num_envs": 4096, "total_timesteps": 100_000_000}, 4096, 64, 4096),  # a pass has 64 steps at most
        ({"num_envs": 10, "num_steps": 3}, 10, 3, 30),
        ({"num_envs": 7, "num_steps": 101}, 7, 101, 707),  # no even split into more than one is near 256
        ({"env": "gym:CartPole-v1"}, 8, 256, 64),
        ({"env": "gym:CartPole-v1", "total_timesteps": 100_000}, 8, 128, 64),
        ({"policy": GRU}, 64, 64, 256),  # of whole sequences
        ({"policy": GRU, "env": "gym:CartPole-v1"}, 8, 256, 256),
        ({"policy": GRU, "ppo": PPOConfig(bptt_horizon=24)}, 64, 48, 384),
        ({"ppo": PPOConfig(minibatch_size=512)}, 64, 64, 512),
        ({"ppo": PPOConfig(num_minibatches=8)}, 64, 64, 512),
        ({"ppo": PPOConfig(num_minibatches=8, minibatch_size=None)}, 64, 64, 512),
    ):
        config = resolve(RunConfig(**{"env": "cartpole"} | settings))
        assert (config.num_envs, config.num_steps) == (num_envs, num_steps), settings
        number = config.ppo.num_minibatches_for(config.batch_size, config.sequence_length)
        assert config.batch_size / number == minibatch_size, settings
        assert resolve(config) == config, settings


def test_sizes_left_open_are_divided_evenly_by_any_number_of_processes():
    for number, policy in itertools.product((1, 2, 3, 5, 7, 64, 1000), (PolicyConfig(), GRU)):
        config = resolve(RunConfig(num_processes=number, policy=policy))
        num_units = config.batch_size // config.sequence_length
        each = num_units // config.ppo.num_minibatches_for(config.batch_size, config.sequence_length)
        assert config.num_envs % number == 0, (number, policy)
        assert each % number == 0, (number, policy)
    for number in (2, 4):  # processes that divide the usual sizes train the same experiment as one
        alone, together = resolve(RunConfig(num_threads=1)), resolve(RunConfig(num_threads=1, num_processes=number))
        assert replace(together, num_processes=1) == alone
    assert with_open_choices(resolve(RunConfig(num_processes=2))).num_processes == 1  # a fork may have others


def test_a_number_of_minibatches_that_is_given_stands_in_place_of_a_size_from_below():
    preset = PPOConfig(minibatch_size=512, num_epochs=3)
    given = reopened(preset, replace(preset, num_minibatches=8), {"num_minibatches"})
    assert given.num_minibatches_for(1024) == 8
    two = reopened(preset, replace(preset, num_minibatches=8, minibatch_size=64), {"minibatch_size", "num_minibatches"})
    assert two.num_minibatches_for(1024) == 16
    sized = reopened(PPOConfig(num_minibatches=4), PPOConfig(num_minibatches=4, minibatch_size=128), {"minibatch_size"})
    assert (sized.num_minibatches, sized.minibatch_size) == (None, 128)


def test_envs_run_where_networks_do_unless_told_or_stacked(monkeypatch):
    lstm = PolicyConfig(memory="lstm")
    for has_gpu, settings, device, env_device in (
        (False, {}, "cpu", "cpu"), (True, {}, "cuda", "cuda"), (True, {"device": "cpu"}, "cpu", "cpu"),
        (True, {"env_device": "cpu"}, "cuda", "cpu"), (True, {"env_device": "cuda"}, "cuda", "cuda"),
        (True, {"policy": lstm, "num_envs": 4}, "cuda", "cuda"), (True, {"num_envs": 4}, "cuda", "cuda"),
        (True, {"frame_stack": 3}, "cuda", "cpu"), (False, {"frame_stack": 3}, "cpu", "cpu"),
        (False, {"device": "cuda", "frame_stack": 3}, "cuda", "cpu"),
        (False, {"device": "cuda", "env_device": "cpu"}, "cuda", "cpu"),
    ):  # fmt: skip
        monkeypatch.setattr("scramjet.training.config.resolution.cuda_is_ready", lambda has_gpu=has_gpu: has_gpu)
        decided = resolve(RunConfig(**settings))
        assert (decided.device, decided.env_device) == (device, env_device), (has_gpu, settings)
        assert resolve(decided) == decided
    with pytest.raises(ConfigError, match=r"env_device='cuda'.*use --device cuda, or --env-device auto"):
        resolve(RunConfig(env_device="cuda"))
    monkeypatch.setattr("scramjet.training.config.resolution.available_cores", lambda: 6)
    small = RunConfig(num_envs=4, num_steps=8, device="cuda")
    assert resolve(small).num_threads == 1
    assert resolve(replace(small, env_device="cpu")).num_threads == 6  # all are the envs'


def test_changes_between_two_configs_are_listed_by_dotted_name():
    first = {"seed": 1, "policy": {"hidden": [64], "activation": "tanh"}, "gone": 1}
    after = {"seed": 2, "policy": {"hidden": [32], "activation": "tanh"}, "new": 5}
    expected = {"seed": [1, 2], "policy.hidden": [[64], [32]], "gone": [1, None], "new": [None, 5]}
    assert changes(first, after) == expected
    assert changes(first, first) == {}


def test_a_fork_may_choose_another_device():
    on_gpu = with_open_choices(RunConfig(device="cuda", env_device="cuda", precision="tf32"))
    assert resolve(replace(on_gpu, device="cpu")).precision == "float32"
    on_cpu = with_open_choices(RunConfig(device="cpu", env_device="cpu", precision="float32"))
    moved = resolve(replace(on_cpu, device="cuda"))
    assert (moved.env_device, moved.precision) == ("cuda", "tf32")
    chosen = with_open_choices(RunConfig(device="cuda", env_device="cpu", precision="bfloat16"))
    assert (chosen.env_device, chosen.precision) == ("cpu", "bfloat16")


def test_a_suggestion_for_huge_numbers_is_found_without_counting_up_to_them():
    huge = 2**31 - 1  # the most of any count
    for settings in (
        {"num_steps": huge, "ppo": PPOConfig(bptt_horizon=huge - 1)},
        {"num_envs": huge, "num_actors": 1024, "mode": "async"},
        {"num_envs": huge, "num_steps": 1, "ppo": PPOConfig(num_minibatches=huge - 1)},
        {"num_envs": huge, "num_steps": 1, "ppo": PPOConfig(minibatch_size=huge - 1)},
    ):
        with pytest.raises(ConfigError, match="try --"):
            RunConfig(**settings)


# --- which algorithm learns: its preset or its defaults, over the world's own preset ---------------------------------


def test_without_a_preset_of_its_own_an_algorithm_keeps_world_and_network_and_leaves_the_rest_to_its_defaults():
    usual = starting_config("snake")
    for algorithm in ("spo", "alphazero"):
        assert preset_path("snake", algorithm) is None
        chosen = starting_config("snake", algorithm=algorithm)
        for name in ("env", "env_parameters", "policy", "total_timesteps"):
            assert getattr(chosen, name) == getattr(usual, name), name
        for name in ("gamma", "gae_lambda", "reward_clip", "normalize_observations", "normalize_rewards"):
            assert getattr(chosen.ppo, name) == getattr(usual.ppo, name), name
        for name in ("learning_rate", "num_epochs", "minibatch_size", "max_grad_norm", "entropy_coef"):
            assert getattr(chosen.ppo, name) == getattr(PPOConfig(), name), name
        assert (chosen.num_envs, chosen.num_steps) == ("auto", "auto")


def test_an_algorithm_has_sizes_of_its_own_and_a_preset_where_there_is_one():
    for algorithm, sizes in (("spo", (768, 21, 16)), ("alphazero", (256, 32, 4))):
        resolved = resolve(with_algorithm(RunConfig(device="cpu"), algorithm))
        assert (resolved.num_envs, resolved.num_steps, resolved.ppo.num_epochs) == sizes
    path = preset_path("connect_four", "alphazero")
    assert path.name == "connect_four_alphazero.toml"
    chosen = starting_config("connect_four", algorithm="alphazero")
    assert chosen.algorithm == "alphazero"
    assert chosen == load_config(path)
    assert starting_config("connect_four").algorithm == "ppo"


def test_a_file_that_names_the_algorithm_chooses_it(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('algorithm = "spo"\nenv = "cartpole"\n[spo]\nparticles = 8\n')
    for config in (load_config(file), base_config(None, Place(config=file))):
        assert (config.algorithm, config.spo.particles, config.env) == ("spo", 8, "cartpole")
        assert config.ppo.gamma == starting_config("cartpole").ppo.gamma
    # The command line wins, and what the file says for the other algorithm goes.
    assert base_config(None, Place(config=file), "alphazero").spo == SPOConfig()


def test_keywords_choose_it_beside_dicts_and_config_objects_and_back_nothing_of_the_search_is_left():
    usual = starting_config("cartpole")
    by_dict = with_keywords(usual, {"algorithm": "spo", "spo": {"particles": 8}})
    by_key = with_keywords(usual, {"algorithm": "spo", "spo.particles": 8})
    by_object = with_keywords(usual, {"algorithm": "spo", "spo": SPOConfig(particles=8)})
    assert by_dict == by_key == by_object
    assert by_object.algorithm == "spo"
    with_loss = with_keywords(usual, {"algorithm": "alphazero", "ppo": PPOConfig(learning_rate=0.5)})
    assert with_loss.ppo.learning_rate == 0.5
    searched = replace(with_algorithm(usual, "spo"), spo=SPOConfig(particles=3))
    assert with_algorithm(usual, "ppo") is usual
    assert with_algorithm(searched, "alphazero").spo == SPOConfig()
    assert with_algorithm(searched, "ppo").spo == SPOConfig()


CHANGED = {
    "gamma": 0.5, "gae_lambda": 0.5, "reward_clip": 2.0, "normalize_observations": False, "normalize_rewards": False,
    "learning_rate": 0.1, "num_epochs": 3, "num_minibatches": 2, "minibatch_size": 32, "value_coef": 0.1,
    "max_grad_norm": 0.1, "adam_eps": 1e-3, "loss": "impala", "advantage": "vtrace", "vtrace_rho_clip": 0.5,
    "vtrace_c_clip": 0.5, "bptt_horizon": 4, "clip_epsilon": 0.1, "value_clip": 0.1, "entropy_coef": 0.5,
    "normalize_advantages": "off", "target_kl": 0.1, "value_scale": "popart",
    "target_entropy": 0.5,
}  # fmt: skip


def test_every_setting_of_ppo_is_either_used_by_a_search_or_refused_by_name():
    for algorithm, name in itertools.product(("spo", "alphazero"), PPOConfig.__dataclass_fields__):
        ppo = PPOConfig(**{name: CHANGED[name]}) if name != "target_entropy_rate" else None
        if name in SHARED_SETTINGS:
            assert RunConfig(algorithm=algorithm, ppo=ppo).ppo == ppo, name
        elif ppo is not None:
            with pytest.raises(ConfigError, match=f"{name}=.* is PPO's, and algorithm='{algorithm}' does not use it"):
                RunConfig(algorithm=algorithm, ppo=ppo)
    with pytest.raises(ConfigError, match=r"entropy_rate=.* does nothing without a target; add --target-entropy"):
        RunConfig(ppo=PPOConfig(target_entropy_rate=0.1))  # PPO does not use it alone either


def test_settings_of_another_algorithm_and_an_unknown_one_are_refused_by_name():
    others = {"spo": SPOConfig(depth=2), "alphazero": AlphaZeroConfig(simulations=5)}
    for algorithm, name in itertools.product(("ppo", "spo", "alphazero"), others):
        if name != algorithm:
            with pytest.raises(ConfigError, match=rf"{name}\.(depth=2|simulations=5) is for another algorithm"):
                RunConfig(algorithm=algorithm, **{name: others[name]})
    with pytest.raises(ConfigError, match=r"algorithm='mcts' must be one of ppo, impala, spo, alphazero\.$"):
        scramjet.train("cartpole", algorithm="mcts")


def test_an_algorithm_that_is_not_ppo_and_does_not_search_is_not_taken_for_one_that_does(monkeypatch):
    """V-trace does not search, and neither would a value-based algorithm: what it cannot do is told by its own name."""
    vtrace = RunConfig(
        ppo=PPOConfig(loss="impala", advantage="vtrace"), mode="async", policy=PolicyConfig(noise_color=0.0)
    )
    assert vtrace.traits.search is None
    monkeypatch.setitem(ALGORITHMS, "pqn", Algorithm(name="pqn", summary="learns q-values", build="nowhere:make"))

    def refusal(check: Any, **settings: Any) -> str:
        config = RunConfig(**settings)
        object.__setattr__(config, "algorithm", "pqn")
        assert _mode_note(config) == _advice(config) == ""
        try:
            check(config)
        except ConfigError as error:
            return str(error)
        return ""

    assert "pqn" in refusal(check_processes, num_envs=4, num_processes=2)
    assert "pqn" in refusal(check_curiosity, curiosity="rnd")
    assert "pqn" in refusal(check_algorithm, ppo=PPOConfig(clip_epsilon=0.1))
    for settings in ({"self_play": SelfPlayConfig(pool_fraction=0.5)}, {"policy": PolicyConfig(noise_color=0.0)}, {}):
        assert refusal(check_algorithm, **settings) == "", settings  # a search refuses some of these
