"""Envs and processes of asynchronous runs that fail, hang or are killed."""

import os
import signal
import subprocess
import sys
import time

import cloudpickle
import pytest

import scramjet
from scramjet.adapters.gymnasium.workers import guard
from scramjet.errors import ScramjetError
from tests.helpers.async_runs import Corridor, settings
from tests.helpers.forked_commands import close_envs_quickly, start
from tests.helpers.run_files import train

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not import the test, and torch with it


class Failing(Corridor):
    """Raises now and then."""

    def step(self, action):
        if self.np_random.random() < 0.02:
            raise KeyError("the door is missing")
        return super().step(action)


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
    return [int(line.split()[0]) for line in lines if guard.__name__ in line]


@pytest.mark.faults
@pytest.mark.parametrize("victim", ["worker", "learner"])
def test_kill_9_of_anyone_leaves_nobody_behind(victim, tmp_path):
    words = "train gym:CartPole-v1 --mode async --num-envs 4 --num-actors 2 --num-steps 16 --eval.every 0"
    place = ["--display", "plain", "--runs-dir", tmp_path, "--run-name", "r"]
    process = start(*words.split(), *place, output=tmp_path / "output")
    try:
        metrics = tmp_path / "r" / "metrics.jsonl"
        _wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0)
        workers = workers_of(process.pid)
        assert len(workers) >= 2
        if victim == "worker":
            lines = metrics.read_text().count("\n")
            os.kill(workers[0], signal.SIGKILL)
            _wait_until(lambda: metrics.read_text().count("\n") > lines + 20)
            os.kill(process.pid, signal.SIGINT)
            process.join(60)
            assert "restarted" in (tmp_path / "output").read_text()
        else:
            process.kill()
            process.join(60)
        _wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))
    finally:
        process.kill()


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
    words = [
        "train", f"factory:{tmp_path / 'slow.py'}:make", "--mode", "async", "--num-envs", "2", "--num-actors", "1",
        "--num-steps", "16", "--num-minibatches", "1", "--eval.every", "0", "--eval.final-episodes", "0",
        "--env-timeout", "300", "--display", "plain", "--runs-dir", tmp_path, "--run-name", "r",
    ]  # fmt: skip
    process = start(*words, output=tmp_path / "output", first=close_envs_quickly)
    metrics = tmp_path / "r" / "metrics.jsonl"
    _wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 5)  # then all envs hang
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130
    assert "stopping after this update" in (tmp_path / "output").read_text()
    assert list((tmp_path / "r" / "checkpoints").glob("step_*"))


def _wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
