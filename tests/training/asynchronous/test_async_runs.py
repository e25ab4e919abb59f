"""Asynchronous runs of every kind of policy and world: replayed bit for bit, resumed, forked, and what may fail."""

import contextlib
import os
import signal
import sys
import time
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

import scramjet
from scramjet.adapters.gymnasium import guard
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import ConfigError, ScramjetError
from scramjet.policies.config import PolicyConfig
from scramjet.training import start
from scramjet.training.config.resolution import resolve, with_open_choices
from scramjet.training.config.run_config import CheckpointConfig
from tests.helpers import forked_commands
from tests.helpers.async_runs import CASES, UPDATE, Corridor, of_case, processes, settings, weights_of
from tests.helpers.processes import wait_until
from tests.helpers.run_files import lines_of, train

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


def test_what_cannot_be_is_named_with_the_fix():
    for changes, words in (
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
        # Of remote actors, which step what local ones cannot.
        ({"ray_address": "auto"}, "add --mode async --actors ray"),
        ({"actors": "ray", "mode": "sync", "num_actors": 1}, "add --mode async"),
        ({"actors": "ray", "ray_address": ""}, "ray_address is empty"),
        ({"actors": "ray", "record_schedule": True}, "record_schedule is for actors of this process"),
        ({"actors": "ray", "num_actors": 3}, "do not evenly divide num_envs=8; try --num-actors 2"),
    ):
        with pytest.raises(ConfigError, match=words):
            settings(**changes)
    assert resolve(settings("vec:CartPole-v1", actors="ray")).num_actors == 2
    assert settings("gym:CartPole-v1", actors="ray", frame_stack=2).frame_stack == 2


def test_the_mode_decides_what_is_left_open_and_a_fork_decides_it_again():
    resolved = resolve(settings(num_actors="auto"))
    assert (resolved.ppo.advantage, resolved.on_env_error) == ("vtrace", "restart")
    assert 8 % resolved.num_actors == 0
    games = [resolve(settings("ale:Breakout", num_envs=n, num_actors="auto")) for n in (8, 6, 1)]
    assert [config.num_actors for config in games] == [4, 3, 1]
    resolved = resolve(settings(mode="sync", num_actors="auto"))
    assert (resolved.ppo.advantage, resolved.on_env_error) == ("gae", "fail")
    asynchronous = with_open_choices(resolve(settings(record_schedule=True)))
    assert resolve(replace(asynchronous, mode="sync", num_actors=1)).ppo.advantage == "gae"
    assert not asynchronous.record_schedule
    forked = resolve(replace(with_open_choices(resolved), mode="async"))
    assert (forked.ppo.advantage, forked.on_env_error) == ("vtrace", "restart")
    chosen = with_open_choices(resolve(settings(ppo=PPOConfig(advantage="gae"), on_env_error="fail")))
    assert (chosen.ppo.advantage, chosen.on_env_error) == ("gae", "fail")


FEW = ("a choice", "seats", "processes, memory")


def record_and_replay(case, tmp_path, near=2e-5, **changes):
    """What the two runs told, and their weights; checks what the learner found in the first."""
    config, options = of_case(case, record_schedule=True, **changes)
    first = train(config, tmp_path, run_name="first", **options)
    told = lines_of(first.run_path)
    # Before the first update the learner's weights are the actors': every ratio must be 1, whatever the policy is.
    assert told[0]["async/policy_lag_max"] == 0
    assert told[0]["async/ratio_max"] == pytest.approx(1.0, abs=10 * near)
    assert told[0]["async/ratio_mean"] == pytest.approx(1.0, abs=near)
    assert all(0 <= line["async/policy_lag_mean"] <= line["async/policy_lag_max"] <= 8 for line in told)
    assert first.step == config.total_timesteps
    again = replace(config, record_schedule=False, replay_schedule=str(first.run_path / "schedule.jsonl"))
    second = train(again, tmp_path, run_name="second", **options)
    kept = ("policy_loss", "value_loss", "grad_norm", "return_100", "async/ratio_mean", "async/policy_lag_mean")
    return [
        ([[line[name] for name in kept] for line in lines_of(path)], weights_of(path)["model.safetensors"])
        for path in (first.run_path, second.run_path)
    ]


@pytest.mark.parametrize("case", [c if c in FEW else pytest.param(c, marks=pytest.mark.rest) for c in CASES])
def test_what_actors_stored_is_what_the_learner_finds_and_a_recorded_run_is_replayed_bit_for_bit(case, tmp_path):
    (told, weights), (told_again, weights_again) = record_and_replay(case, tmp_path)
    assert told == told_again
    assert all(np.array_equal(weights[name], weights_again[name]) for name in weights)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_the_same_on_the_gpu(case, tmp_path, capsys):
    on_gpu = {"device": "cuda", "precision": "float32", "total_timesteps": 12 * UPDATE}
    (told, weights), (told_again, weights_again) = record_and_replay(case, tmp_path, near=1e-3, **on_gpu)
    assert "cannot be recorded" not in capsys.readouterr().out  # actors are at work while the update is
    for mine, its in zip(told_again, told, strict=True):
        mine, its = ([number or 0.0 for number in numbers] for numbers in (mine, its))
        assert mine == pytest.approx(its, rel=1e-2, abs=1e-3)
    for name, kept in weights.items():
        np.testing.assert_allclose(weights_again[name], kept, rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("env", "loss"), [("cartpole", "ppo"), ("gym:CartPole-v1", "ppo"), ("gym:CartPole-v1", "impala")]
)
def test_actors_beside_a_learner_on_the_gpu_learn_and_a_resumed_run_goes_on(env, loss, tmp_path):
    ppo = PPOConfig(learning_rate="0.001", loss=loss, num_epochs=4 if loss == "ppo" else 1)
    config = settings(env, num_envs=16, num_steps=64, total_timesteps=60_000, device="cuda", ppo=ppo)
    half = train(config, tmp_path, run_name="run")
    whole = scramjet.train(resume=half.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=120_000)
    assert whole.step >= 120_000
    assert lines_of(whole.run_path)[-1]["return_100"] > 100


@pytest.mark.parametrize("case", ["a choice", pytest.param("processes, memory", marks=pytest.mark.rest)])
def test_a_resumed_run_goes_on_with_weights_counters_and_schedules(case, tmp_path):
    config, options = of_case(case, checkpoint=CheckpointConfig(every=1))
    config = replace(config, ppo=replace(config.ppo, learning_rate="0.001@0,0@end"))
    half = train(config, tmp_path, run_name="run", total_timesteps=3 * UPDATE, **options)
    before = weights_of(half.run_path)
    whole = train(None, tmp_path, resume=half.run_path, total_timesteps=6 * UPDATE, **options)
    told = lines_of(whole.run_path)
    assert [line["step"] for line in told] == [UPDATE * (i + 1) for i in range(6)]
    assert told[3]["learning_rate"] == pytest.approx(0.0005)
    assert before["trainer.safetensors"].keys() == weights_of(whole.run_path)["trainer.safetensors"].keys()


@pytest.mark.parametrize("env", ["cartpole", pytest.param("snake", marks=pytest.mark.rest)])
def test_a_resumed_run_begins_with_what_its_fresh_episodes_show_and_a_fork_may_be_synchronous(env, tmp_path):
    result = train(settings(env, policy=PolicyConfig(hidden=(16,))), tmp_path, run_name="run")
    session = start.resume_run(str(result.run_path), tmp_path, None, {"total_timesteps": 2 * result.step})
    with session.run, contextlib.closing(session):
        shown = session.pool.shown.obs.copy()
        rollout = session.collector.collect()
        first = session.collector._taken[0].actor  # what was done first; the other's may come later
        mine, its = rollout.obs[0].chunk(2)[0].numpy(), np.split(shown, 2)[first]
        np.testing.assert_array_equal(mine, its)
    assert "fresh episodes" in session.note
    changes = {"policy": PolicyConfig(hidden=(16,)), "total_timesteps": 2 * result.step}
    config = settings(env, mode="sync", num_actors=1, **changes)
    second = train(config, tmp_path, fork=result.run_path, run_name="second")
    changes["total_timesteps"] = 3 * result.step
    third = train(settings(env, **changes), tmp_path, fork=second.run_path, run_name="third")
    assert third.step == 3 * result.step


# --- envs and processes that fail, hang or are killed ----------------------------------------------------------------


class Failing(Corridor):
    def step(self, action):
        if self.np_random.random() < 0.02:
            raise KeyError("the door is missing")
        return super().step(action)


@pytest.mark.faults
def test_envs_that_fail_are_made_anew_and_the_run_goes_on(tmp_path, capsys):
    config = settings(total_timesteps=8 * UPDATE)
    result = scramjet.train(config, runs_dir=tmp_path, display="plain", env=Failing)
    assert result.step == 8 * UPDATE
    told = capsys.readouterr().out
    assert "restarted: " in told
    assert "raised in its step(): KeyError: 'the door is missing' (restart 1)" in told
    with pytest.raises(ScramjetError, match="the door is missing"):
        train(settings(total_timesteps=40 * UPDATE, on_env_error="fail"), tmp_path, env=Failing)


def workers_of(learner):
    """Not what compiles ahead."""
    return [pid for pid, (parent, command) in processes().items() if parent == learner and guard.__name__ in command]


@pytest.mark.faults
@pytest.mark.rest
@pytest.mark.parametrize("victim", ["worker", "learner"])
def test_kill_9_of_anyone_leaves_nobody_behind(victim, tmp_path):
    words = "train gym:CartPole-v1 --mode async --num-envs 4 --num-actors 2 --num-steps 16 --eval.every 0"
    place = ["--display", "plain", "--runs-dir", tmp_path, "--run-name", "r"]
    process = forked_commands.start(*words.split(), *place, output=tmp_path / "output")
    try:
        metrics = tmp_path / "r" / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0)
        workers = workers_of(process.pid)
        assert len(workers) >= 2
        if victim == "worker":
            lines = metrics.read_text().count("\n")
            os.kill(workers[0], signal.SIGKILL)
            wait_until(lambda: metrics.read_text().count("\n") > lines + 20)
            os.kill(process.pid, signal.SIGINT)
            process.join(60)
            assert "restarted" in (tmp_path / "output").read_text()
        else:
            process.kill()
            process.join(60)
        wait_until(lambda: not processes().keys() & set(workers))
    finally:
        process.kill()


SLOW = """
import time, gymnasium
class Slow(gymnasium.Wrapper):
    steps = 0
    def step(self, action):
        self.steps += 1
        if self.steps > 100: time.sleep(1000)
        return self.env.step(action)
def make(): return Slow(gymnasium.make('CartPole-v1'))
"""


@pytest.mark.faults
@pytest.mark.rest
def test_a_signal_does_not_wait_for_an_env_that_hangs(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    words = (
        "--mode async --num-envs 2 --num-actors 1 --num-steps 16 --num-minibatches 1 --eval.every 0 "
        "--eval.final-episodes 0 --env-timeout 300 --display plain --run-name r"
    )
    env, place = f"factory:{tmp_path / 'slow.py'}:make", ("--runs-dir", tmp_path)
    process = forked_commands.start(
        "train", env, *words.split(), *place, output=tmp_path / "output", first=forked_commands.close_envs_quickly
    )
    try:
        metrics = tmp_path / "r" / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 5)  # then all envs hang
        time.sleep(1.0)
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
        assert process.exitcode == 130
        assert "stopping after this update" in (tmp_path / "output").read_text()
        assert list((tmp_path / "r" / "checkpoints").glob("step_*"))
    finally:
        process.kill()
