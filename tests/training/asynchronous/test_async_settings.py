"""Settings of asynchronous training: what follows from the mode, and what cannot be."""

import sys
from dataclasses import replace

import cloudpickle
import pytest

from scramjet import cli
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import ConfigError
from scramjet.training.config.resolution import resolve, with_open_choices
from tests.helpers.async_runs import (
    settings,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_policy_lag": 0}, "--mode sync"),
        ({"num_actors": 16}, "16 actors are more than num_envs=8; try --num-actors 8"),
        ({"num_actors": 3}, "do not evenly divide num_envs=8; try --num-actors 2"),
        ({"env": "envpool:CartPole-v1"}, "steps all envs at once; use --mode sync"),
        ({"env": "vec:CartPole-v1"}, "use --mode sync"),
        ({"env_device": "cuda", "device": "cuda"}, "--env-device cpu"),
        ({"mode": "sync", "num_actors": 1, "record_schedule": True}, "add --mode async"),
        ({"record_schedule": True, "replay_schedule": "s.jsonl"}, "is recorded already; leave one out"),
        ({"mode": "sync"}, "num_actors=2 are actors beside the learner; add --mode async"),
        ({"env": "gym:CartPole-v1", "frame_stack": 2}, "--frame-stack 1"),
    ],
)
def test_what_cannot_be_is_named_with_the_fix(changes, words):
    with pytest.raises(ConfigError, match=words):
        settings(**changes)


def test_the_mode_decides_what_is_left_open():
    resolved = resolve(settings(num_actors="auto"))
    assert resolved.ppo.advantage == "vtrace"
    assert resolved.on_env_error == "restart"
    assert 8 % resolved.num_actors == 0
    games = [resolve(settings("ale:Breakout", num_envs=n, num_actors="auto")) for n in (8, 6, 1)]
    assert [config.num_actors for config in games] == [4, 3, 1]
    resolved = resolve(settings(mode="sync", num_actors="auto"))
    assert resolved.ppo.advantage == "gae"
    assert resolved.on_env_error == "fail"


def test_what_followed_from_the_mode_is_decided_again_by_a_fork():
    asynchronous = with_open_choices(resolve(settings(record_schedule=True)))
    assert resolve(replace(asynchronous, mode="sync", num_actors=1)).ppo.advantage == "gae"
    assert not asynchronous.record_schedule
    synchronous = with_open_choices(resolve(replace(settings(num_actors="auto"), mode="sync")))
    forked = resolve(replace(synchronous, mode="async"))
    assert (forked.ppo.advantage, forked.on_env_error) == ("vtrace", "restart")
    chosen = with_open_choices(resolve(settings(ppo=PPOConfig(advantage="gae"), on_env_error="fail")))
    assert (chosen.ppo.advantage, chosen.on_env_error) == ("gae", "fail")


def test_the_command_line_trains_and_tells(tmp_path, capsys):
    words = [
        "train",
        "cartpole",
        "--mode",
        "async",
        "--num-envs",
        "16",
        "--num-steps",
        "16",
        "--total-timesteps",
        "1024",
    ]
    assert cli.run([*words, "--num-actors", "2", "--runs-dir", str(tmp_path), "--eval.final-episodes", "4"]) == 0
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--num-actors", "32", "--runs-dir", str(tmp_path)])
    assert ended.value.code == 2
    assert "32 actors are more than num_envs=16" in capsys.readouterr().err
