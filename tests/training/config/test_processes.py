"""Several processes: which settings fit them, and how sizes left open are decided for them."""

from dataclasses import replace

import pytest

from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig
from scramjet.training.config.resolution import resolve, with_open_choices
from scramjet.training.config.run_config import RunConfig
from scramjet.training.self_play.config import SelfPlayConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_processes": 0}, "num_processes=0 must be from 1 to 1024"),
        ({"num_envs": 64, "num_processes": 3}, "does not divide num_envs=64.* try --num-envs 63"),
        ({"num_envs": 1, "num_processes": 2}, "does not divide num_envs=1,.* try --num-envs 2"),
        (
            {"num_envs": 4, "num_steps": 9, "num_processes": 4, "ppo": PPOConfig(num_minibatches=6)},
            r"does not divide the 6 samples of a minibatch \(num_minibatches=6\); try --num-minibatches 3",
        ),
        (
            {"num_envs": 4, "num_steps": 9, "num_processes": 4, "ppo": PPOConfig(minibatch_size=6)},
            r"does not divide the 6 samples of a minibatch \(minibatch_size=6\); try --minibatch-size 12",
        ),
        (
            {
                "num_envs": 4,
                "num_steps": 8,
                "num_processes": 2,
                "policy": PolicyConfig(memory="gru"),
                "ppo": PPOConfig(num_minibatches=4),
            },
            r"does not divide the 1 sequences of 8 steps of a minibatch .* try --num-minibatches 2",
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
    ],
)
def test_what_several_processes_cannot_train_is_refused_with_the_fix(settings, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(**settings)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 7, 64, 1000])
@pytest.mark.parametrize("memory", [None, "gru"])
def test_sizes_left_open_are_divided_evenly_by_any_number_of_processes(number, memory):
    config = resolve(RunConfig(num_processes=number, policy=PolicyConfig(memory=memory)))
    num_units = config.batch_size // config.sequence_length
    each = num_units // config.ppo.num_minibatches_for(config.batch_size, config.sequence_length)
    assert config.num_envs % number == 0
    assert each % number == 0


@pytest.mark.parametrize("number", [2, 4])
def test_processes_that_divide_the_usual_sizes_train_the_same_experiment_as_one(number):
    alone, together = resolve(RunConfig(num_threads=1)), resolve(RunConfig(num_threads=1, num_processes=number))
    assert replace(together, num_processes=1) == alone


def test_a_fork_is_not_bound_to_the_processes_of_its_parent():
    assert with_open_choices(resolve(RunConfig(num_processes=2))).num_processes == 1
