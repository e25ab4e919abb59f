"""Asynchronous training: actors apart from the learner, for every kind of policy and world; replayed bit for bit."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import scramjet
from scramjet import cli
from scramjet.algorithms.impala import policy_gradient
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool
from scramjet.errors import ConfigError, ScramjetError
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.training import start
from scramjet.training.asynchronous.central_actors import CentralActors
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.session import make_pool

NO_EVALUATION = EvaluationConfig(every=0, final_episodes=0)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


class Corridor(gymnasium.Env):
    """Says at the start which way to turn at its end; a user's own env."""

    observation_space = gymnasium.spaces.Dict(
        {"sign": gymnasium.spaces.Box(-1, 1, (1,), np.float32), "at": gymnasium.spaces.Discrete(4)}
    )
    action_space = gymnasium.spaces.Discrete(2)
    fails_at = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.way, self.at = int(self.np_random.integers(2)), 0
        return self.seen(2 * self.way - 1), {}

    def seen(self, sign=0):
        return {"sign": np.array([sign], np.float32), "at": self.at}

    def step(self, action):
        self.at += 1
        is_over = self.at == 3
        return self.seen(), float(is_over and action == self.way), is_over, False, {}


class Failing(Corridor):
    """Raises now and then."""

    def step(self, action):
        if self.np_random.random() < 0.02:
            raise KeyError("the door is missing")
        return super().step(action)


def settings(env="cartpole", **changes):
    given = {
        "num_envs": 8, "num_steps": 16, "total_timesteps": 8 * 16 * 6, "eval": NO_EVALUATION, "device": "cpu",
        "mode": "async", "num_actors": 2, "ppo": PPOConfig(num_epochs=2),
    }  # fmt: skip
    return RunConfig(env=env, **{**given, **changes})


def train(config, tmp_path, **options):
    return scramjet.train(config, runs_dir=tmp_path, display="quiet", **options)


def lines_of(run_path):
    return [json.loads(line) for line in (run_path / "metrics.jsonl").read_text().splitlines()]


def weights_of(run_path):
    [newest] = sorted((run_path / "checkpoints").glob("step_*"))[-1:]
    return {path.name: load_file(path) for path in newest.glob("*.safetensors")}


RECURRENT = {"policy": PolicyConfig(memory="lstm", memory_size=8, hidden=(16,)), "ppo": PPOConfig(bptt_horizon=8)}
CASES = {
    "a choice": ("cartpole", {}),
    "numbers": ("pendulum", {"ppo": PPOConfig(normalize_observations=True, normalize_rewards=True)}),
    "masks": ("maze", {"policy": PolicyConfig(hidden=(16,))}),
    "agents": ("snake", {"policy": PolicyConfig(hidden=(16,))}),
    "seats": ("connect_four", {"policy": PolicyConfig(hidden=(16,))}),
    "memory": ("tmaze", RECURRENT),
    "memory and masks": ("maze", RECURRENT),
    "memory and agents": ("snake", RECURRENT),
    "one trunk": ("cartpole", {"policy": PolicyConfig(shared_trunk=True)}),
    "torch's operators": ("cartpole", {"fused": False}),
    "frames": ("masked_cartpole", {"frame_stack": 3}),
    "impala": ("cartpole", {"ppo": PPOConfig(loss="impala", num_epochs=1, num_minibatches=1)}),
    "games": (
        "ale:Pong",
        {
            "policy": PolicyConfig(encoder="nature_cnn", hidden=(8,)),
            "total_timesteps": 8 * 16 * 3,
            "env_parameters": {"img_height": 36, "img_width": 36, "stack_num": 2},
        },
    ),
    "processes": (Corridor, {}),
    "processes, memory": (Corridor, RECURRENT),
    "processes, one trunk": (Corridor, {"policy": PolicyConfig(shared_trunk=True)}),
    "processes, normalized": (Corridor, {"ppo": PPOConfig(normalize_observations=True, normalize_rewards=True)}),
}


def of_case(case, **changes):
    """A config, and the factory that goes with it."""
    env, given = CASES[case]
    if env == "ale:Pong":
        pytest.importorskip("ale_py")
    if isinstance(env, str):
        return settings(env, **{**given, **changes}), {}
    return settings(**{**given, **changes}), {"env": env}


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


@pytest.mark.parametrize("case", CASES)
def test_what_actors_stored_is_what_the_learner_finds_and_a_recorded_run_is_replayed_bit_for_bit(case, tmp_path):
    (told, weights), (told_again, weights_again) = record_and_replay(case, tmp_path)
    assert told == told_again
    assert all(np.array_equal(weights[name], weights_again[name]) for name in weights)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_the_same_on_the_gpu(case, tmp_path, capsys):
    on_gpu = {"device": "cuda", "precision": "float32", "total_timesteps": 8 * 16 * 12}
    (told, weights), (told_again, weights_again) = record_and_replay(case, tmp_path, near=1e-3, **on_gpu)
    assert "cannot be recorded" not in capsys.readouterr().out  # actors are at work while the update is
    for mine, its in zip(told_again, told, strict=True):
        assert [number or 0.0 for number in mine] == pytest.approx(
            [number or 0.0 for number in its], rel=1e-2, abs=1e-3
        )
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


def test_a_schedule_names_only_actors_that_had_leave_to_play():
    """Two are idle and one more may begin: a replay would let both."""
    config = settings("gym:CartPole-v1", num_workers=1)
    pools = [make_pool(config, num_envs=1, num_threads=1, learns=True) for _ in range(2)]
    with contextlib.closing(ConcatenatedPool(pools)) as pool:
        pool.reset(1)
        network = default_network(pool.observation_space, pool.action_space, PolicyConfig(hidden=(8,)))
        policy = Policy(network, pool.observation_space, pool.action_space)
        actors = CentralActors(pool, policy, max_lag=1, num_steps=4, horizon=None, seed=1, fused=False)
        events = []
        actors.exchange.record = events.append
        actors.begin()
        for _ in range(3):  # of the four that may begin before the first update
            actors.exchange.begin(0)
        actors.do({"round": [0, 1]})
    assert events == [{"round": [0], "version": 0}]


def lagging_schedule(path, num_updates, num_actors, lag):
    """Everybody plays with weights that are `lag` updates old when they are learned from."""
    plays = [{"play": actor, "version": 0} for actor in range(num_actors)]
    with path.open("w") as file:
        for update in range(num_updates + lag):
            for play in plays:
                print(json.dumps({**play, "version": max(0, update - lag)}), file=file)
            if update >= lag:
                print(json.dumps({"learn": list(range(num_actors))}), file=file)
    return str(path)


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_a_schedule_sets_the_lag(lag, tmp_path):
    schedule = lagging_schedule(tmp_path / "lag.jsonl", 10, 2, lag)
    config = settings(total_timesteps=8 * 16 * 10, replay_schedule=schedule)
    told = lines_of(train(config, tmp_path).run_path)
    assert [line["async/policy_lag_max"] for line in told] == [min(i, lag) for i in range(10)]
    assert (told[-1]["async/ratio_max"] > 1.001) == (lag > 0)


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


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "has no update in it"),
        (['{"play": 0, "version": 0}'], "has no update in it"),
        (["{}"], "line 1: an event has one of play, learn and drop"),
        (['{"play": 0, "version": 0}', "what"], "line 2"),
        (["[" * 200_000], "line 1"),
        (['{"play": 0, "version": ' + "9" * 5000 + "}"], "line 1"),
        (['{"round": [0], "version": 0}'], "recorded with an env of another library"),
        (['{"play": 2, "version": 0}'], "numbers from 0 to 1; was it recorded with another --num-actors"),
        (['{"play": -1, "version": 0}'], "numbers from 0 to 1"),
        (['{"play": "zero", "version": 0}'], "numbers from 0 to 1"),
        (['{"play": 0}'], "its version must be a number"),
        (['{"learn": [0]}'], "learns from 2 trajectories, and it lists 1"),
        (['{"learn": 0}'], "numbers from 0 to 1"),
        (['{"learn": [0, 1]}'], "line 1: it takes what actor 0 has done, which is nothing yet"),
        (['{"drop": 1}', '{"learn": [0, 1]}'], "line 1: it takes what actor 1 has done, which is nothing yet"),
        (['{"play": 0, "version": 3}', '{"learn": [0, 1]}'], "line 1: it plays with the weights of update 3"),
        (['{"run": {"seed": 7}}'], "was recorded with --seed 7, and seed is 1; use --seed 7"),
        (
            ['{"run": {"env.gravity": 5.0}}'],
            "with --env.gravity 5.0, and env.gravity is 9.8; use --env.gravity",
        ),
        (['{"run": {"env.wind": 2}}'], "was recorded with --env.wind 2, and there is no env.wind"),
        (['{"run": {"env": "acrobot"}}'], "was recorded with acrobot, and env is cartpole; use acrobot"),
        (['{"play": 0, "version": 0}'] * 40 + ['{"learn": [0, 0]}'], "line 19: actor 0 may not run further ahead"),
    ],
)
def test_a_schedule_that_cannot_be_replayed_is_refused(lines, words, tmp_path):
    (tmp_path / "bad.jsonl").write_text("".join(line + "\n" for line in lines))
    with pytest.raises(ScramjetError, match=words):
        train(settings(replay_schedule=str(tmp_path / "bad.jsonl")), tmp_path)


def test_a_replay_is_not_resumed(tmp_path):
    schedule = lagging_schedule(tmp_path / "short.jsonl", 3, 2, 0)
    train(settings(total_timesteps=8 * 16 * 2, replay_schedule=schedule), tmp_path, run_name="r")
    with pytest.raises(ConfigError, match="which has no middle to go on from"):
        scramjet.train(resume=tmp_path / "r", runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 3)


def test_a_run_that_begins_again_is_recorded_again(tmp_path):
    config = settings(record_schedule=True)
    first = train(config, tmp_path, run_name="r")
    shutil.rmtree(first.run_path / "checkpoints")
    (first.run_path / "schedule.jsonl").write_text('{"drop": 0}\n')  # of the attempt that was lost
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet")
    told = (first.run_path / "schedule.jsonl").read_text()
    assert '"drop"' not in told.splitlines()[0]
    assert told.count("learn") == 6


def test_the_schedule_of_updates_that_were_lost_is_cut(tmp_path):
    config = settings(record_schedule=True, checkpoint=CheckpointConfig(every=2))
    first = train(config, tmp_path, run_name="r")
    shutil.rmtree(first.run_path / "checkpoints" / "step_00000768")
    with (first.run_path / "schedule.jsonl").open("a") as file:
        file.write('{"play": 0, "vers')  # as when it was killed
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet")
    told = [json.loads(line) for line in (first.run_path / "schedule.jsonl").read_text().splitlines()]
    assert sum("learn" in event for event in told) == 4  # actors may have begun to play once more since the last one


def test_a_resumed_run_is_not_recorded_from_its_middle(tmp_path):
    first = train(settings(record_schedule=True), tmp_path, run_name="r")
    (first.run_path / "schedule.jsonl").unlink()
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 8)
    assert not (first.run_path / "schedule.jsonl").exists()


def test_a_folder_in_the_place_of_a_schedule_is_left_alone(tmp_path):
    first = train(settings(record_schedule=True), tmp_path, run_name="r")
    (first.run_path / "schedule.jsonl").unlink()
    (first.run_path / "schedule.jsonl").mkdir()
    scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 8)
    shutil.rmtree(first.run_path / "checkpoints")
    with pytest.raises(ScramjetError, match=r"schedule\.jsonl"):
        scramjet.train(resume=first.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 9)


def test_empty_lines_of_a_schedule_are_passed_over(tmp_path):
    path = tmp_path / "gaps.jsonl"
    lines = Path(lagging_schedule(path, 3, 2, 0)).read_text().splitlines()
    path.write_text("\n\n".join(lines) + "\n \n")
    assert train(settings(replay_schedule=str(path)), tmp_path).step == 8 * 16 * 3
    path.write_text("\n\n".join([*lines, '{"learn": [0, 1]}']))
    with pytest.raises(ScramjetError, match=f"line {2 * len(lines) + 1}: "):
        train(settings(replay_schedule=str(path)), tmp_path)


def test_a_replay_ends_with_its_schedule(tmp_path):
    schedule = lagging_schedule(tmp_path / "short.jsonl", 3, 2, 0)
    result = train(settings(total_timesteps=8 * 16 * 10, replay_schedule=schedule), tmp_path)
    assert result.step == 8 * 16 * 3
    assert list((result.run_path / "checkpoints").glob("step_*"))


def test_a_schedule_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="cannot be read"):
        train(settings(replay_schedule=str(tmp_path / "bad.jsonl")), tmp_path)
    assert not list(tmp_path.glob("cartpole*"))


def test_the_gradient_of_impala_weighs_by_the_clipped_ratio_alone():
    log_prob = torch.tensor([-0.5, -1.0, -2.0], requires_grad=True)
    log_ratio, advantage = torch.tensor([0.5, -0.5, 0.0]), torch.tensor([2.0, 3.0, -1.0])
    policy_gradient(log_prob, log_ratio + 0 * log_prob, advantage, rho_clip=1.0).backward()
    expected = -torch.tensor([1.0, float(np.exp(-0.5)), 1.0]) * advantage / 3
    torch.testing.assert_close(log_prob.grad, expected, rtol=1e-6, atol=0)


def test_the_mode_decides_what_is_left_open():
    resolved = settings(num_actors="auto").resolved()
    assert resolved.ppo.advantage == "vtrace"
    assert resolved.on_env_error == "restart"
    assert 8 % resolved.num_actors == 0
    games = [settings("ale:Breakout", num_envs=n, num_actors="auto").resolved() for n in (8, 6, 1)]
    assert [config.num_actors for config in games] == [4, 3, 1]
    resolved = settings(mode="sync", num_actors="auto").resolved()
    assert resolved.ppo.advantage == "gae"
    assert resolved.on_env_error == "fail"


@pytest.mark.parametrize("case", ["a choice", "processes, memory"])
def test_a_resumed_run_goes_on_with_weights_counters_and_schedules(case, tmp_path):
    config, options = of_case(case, checkpoint=CheckpointConfig(every=1))
    config = replace(config, ppo=replace(config.ppo, learning_rate="0.001@0,0@end"))
    half = train(config, tmp_path, run_name="run", total_timesteps=8 * 16 * 3, **options)
    before = weights_of(half.run_path)
    whole = scramjet.train(
        resume=half.run_path, runs_dir=tmp_path, display="quiet", total_timesteps=8 * 16 * 6, **options
    )
    told = lines_of(whole.run_path)
    assert [line["step"] for line in told] == [8 * 16 * (i + 1) for i in range(6)]
    assert told[3]["learning_rate"] == pytest.approx(0.0005)
    assert before["trainer.safetensors"].keys() == weights_of(whole.run_path)["trainer.safetensors"].keys()


def test_an_asynchronous_run_is_forked_into_a_synchronous_one_and_back(tmp_path):
    first = train(settings(), tmp_path, run_name="first")
    config = settings(mode="sync", num_actors=1, total_timesteps=2 * first.step)
    second = train(config, tmp_path, fork=first.run_path, run_name="second")
    third = train(settings(total_timesteps=3 * first.step), tmp_path, fork=second.run_path, run_name="third")
    assert third.step == 3 * first.step


def test_what_followed_from_the_mode_is_decided_again_by_a_fork():
    asynchronous = settings(record_schedule=True).resolved().with_open_choices()
    assert replace(asynchronous, mode="sync", num_actors=1).resolved().ppo.advantage == "gae"
    assert not asynchronous.record_schedule
    synchronous = replace(settings(num_actors="auto"), mode="sync").resolved().with_open_choices()
    forked = replace(synchronous, mode="async").resolved()
    assert (forked.ppo.advantage, forked.on_env_error) == ("vtrace", "restart")
    chosen = settings(ppo=PPOConfig(advantage="gae"), on_env_error="fail").resolved().with_open_choices()
    assert (chosen.ppo.advantage, chosen.on_env_error) == ("gae", "fail")


@pytest.mark.faults
def test_envs_that_fail_are_made_anew_and_the_run_goes_on(tmp_path, capsys):
    config = settings(total_timesteps=8 * 16 * 8)
    result = scramjet.train(config, runs_dir=tmp_path, display="plain", env=Failing)
    assert result.step == 8 * 16 * 8
    told = capsys.readouterr().out
    assert "restarted: " in told
    assert "raised in its step(): KeyError: 'the door is missing' (restart 1)" in told
    with pytest.raises(ScramjetError, match="the door is missing"):
        train(settings(total_timesteps=8 * 16 * 40, on_env_error="fail"), tmp_path, env=Failing)


def workers_of(pid):
    """Not what compiles ahead."""
    words = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)]
    lines = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "scramjet.adapters.gymnasium.workers.guard" in line]


@pytest.mark.faults
@pytest.mark.parametrize("victim", ["worker", "learner"])
def test_kill_9_of_anyone_leaves_nobody_behind(victim, tmp_path):
    command = [
        sys.executable, "-m", "scramjet", "train", "gym:CartPole-v1", "--mode", "async", "--num-envs", "4",
        "--num-actors", "2", "--num-steps", "16", "--eval.every", "0", "--display", "plain",
        "--runs-dir", str(tmp_path), "--run-name", "r",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = tmp_path / "r" / "metrics.jsonl"
    _wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0)
    workers = workers_of(process.pid)
    assert len(workers) >= 2
    if victim == "worker":
        lines = metrics.read_text().count("\n")
        os.kill(workers[0], signal.SIGKILL)
        _wait_until(lambda: metrics.read_text().count("\n") > lines + 20)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert "restarted" in output
    else:
        process.kill()
        process.wait()
    _wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))


@pytest.mark.faults
def test_a_signal_does_not_wait_for_an_env_that_hangs(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time, gymnasium\n"
        "class Slow(gymnasium.Wrapper):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        self.steps += 1\n"
        "        if self.steps > 100: time.sleep(1000)\n"
        "        return self.env.step(action)\n"
        "def make(): return Slow(gymnasium.make('CartPole-v1'))\n"
    )
    command = [
        sys.executable, "-m", "scramjet", "train", f"factory:{tmp_path / 'slow.py'}:make", "--mode", "async",
        "--num-envs", "2", "--num-actors", "1", "--num-steps", "16", "--num-minibatches", "1", "--eval.every", "0",
        "--eval.final-episodes", "0", "--env-timeout", "300", "--display", "plain", "--runs-dir", str(tmp_path),
        "--run-name", "r",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = tmp_path / "r" / "metrics.jsonl"
    _wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 5)  # then all envs hang
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopping after this update" in output
    assert list((tmp_path / "r" / "checkpoints").glob("step_*"))


def _wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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


@pytest.mark.parametrize("env", ["cartpole", "snake"])
def test_a_resumed_run_begins_with_what_its_fresh_episodes_show(env, tmp_path):
    result = train(settings(env, policy=PolicyConfig(hidden=(16,))), tmp_path, run_name="run")
    session = start.resume_run(str(result.run_path), tmp_path, None, 2 * result.step, None)
    with session.run, contextlib.closing(session):
        shown = session.pool.shown.obs.copy()
        rollout = session.collector.collect()
        order = [trajectory.actor for trajectory in session.collector._taken]
        first = order[0]  # what was done first; the other's may come later
        mine, its = rollout.obs[0].chunk(2)[0].numpy(), np.split(shown, 2)[first]
        np.testing.assert_array_equal(mine, its)
    assert "fresh episodes" in session.note
