"""A native world whose compiled rules never return: signals end the process all the same, and name the rule."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import scramjet
from scramjet.commands import check
from scramjet.engine.worlds import hanging
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from tests.helpers.cases import rest
from tests.helpers.children import comes_true
from tests.helpers.forked_commands import call, start

pytestmark = pytest.mark.faults

SNAIL = '''
import numpy as np
from gymnasium.spaces import Box, Discrete
from scramjet.envs import Env


class Snail(Env):
    """Waits for ever once it has crawled for a while; where says in which rule."""

    patience: int = 60
    where: int = 0
    max_episode_steps = 1000
    action_space = Discrete(2)
    observation_space = Box(-1, 1, (1,), np.float32)
    state = {"count": np.int32, "waited": np.int64, "next": np.int32}

    def reset(self, s):
        s.next = s._episode
        while self.where == 3 and s.next > 0:
            s.next += 0  # in reset
        s.count = 0

    def step(self, s, action):
        s.count += 1
        while self.where == 1 and s.count > self.patience:
            s.waited += 1  # in step
        return 1.0, s.count > self.patience

    def observe(self, s, obs):
        while self.where == 2 and s.count > self.patience - 1:
            obs[0] = 0.5  # in observe
        obs[0] = 0.0
'''


@pytest.fixture
def snail(tmp_path: Path) -> Path:
    path = tmp_path / "snail.py"
    path.write_text(SNAIL)
    return path


def places(snail: Path, rule: str) -> list[str]:
    """How the endless loop in a rule is named: by its first line or its second."""
    last = next(i for i, line in enumerate(SNAIL.splitlines(), 1) if line.endswith(f"# in {rule}"))
    return [f"Snail.{rule} ({snail} line {line})" for line in (last - 1, last)]


@pytest.mark.parametrize("flag", ["--no-normalize-observations", rest("--normalize-observations")])
def test_a_second_signal_ends_a_compiled_endless_loop_and_names_it(flag: str, snail: Path) -> None:
    """Without normalized observations a whole rollout is one compiled function."""
    runs, output = snail.parent / "runs", snail.parent / "output"
    flags = "--env.where 1 --num-envs 4 --num-steps 16 --checkpoint.every 1 --eval.every 0 --device cpu --display plain"
    training = start("train", snail, *flags.split(), flag, "--num-threads", "1", "--runs-dir", runs, output=output)
    metrics = runs / "snail-1" / "metrics.jsonl"
    assert training.pid is not None
    try:  # the fourth update hangs
        assert comes_true(lambda: metrics.exists() and len(metrics.read_text().splitlines()) == 3, 120)
        time.sleep(1.0)
        os.kill(training.pid, signal.SIGINT)
        time.sleep(0.5)
        assert training.exitcode is None
        os.kill(training.pid, signal.SIGTERM)
        training.join(60)
    finally:
        training.kill()
    told = output.read_text()
    assert training.exitcode == 128 + signal.SIGTERM, told
    assert "stopping after this update" in told
    assert any(f"scramjet: left at the second signal: {place}" in told for place in places(snail, "step"))
    assert "does not come to an end" in told
    assert "Traceback" not in told
    scramjet.load_policy(runs / "snail-1")


def lose_patience_twice() -> None:
    """Ctrl-C, and again, as soon as a rule is seen to hang."""

    def press() -> None:
        while "does not come to an end" not in hanging.what_hangs():
            time.sleep(0.1)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    threading.Thread(target=press, daemon=True).start()


@pytest.mark.rest
def test_a_second_ctrl_c_ends_any_command(snail: Path) -> None:
    """Here one whose steps are on threads of Numba's."""
    snail.write_text(SNAIL.replace("where: int = 0", "where: int = 1"))
    output = snail.parent / "output"
    bench = start("bench", snail, "--num-envs", "1024", "--num-threads", "2", output=output, first=lose_patience_twice)
    bench.join(120)
    assert bench.exitcode == 130
    assert f"scramjet: left at the second signal: Snail.step ({snail} line " in output.read_text()
    assert "Traceback" not in output.read_text()


def give_up_soon() -> None:
    check.CALL_SECONDS = 1.0


@pytest.mark.rest
@pytest.mark.parametrize(("where", "rule"), [(1, "step"), (3, "reset")])
def test_check_finds_an_endless_loop(where: int, rule: str, snail: Path) -> None:
    snail.write_text(SNAIL.replace("where: int = 0", f"where: int = {where}"))
    output = snail.parent / "output"
    checking = start("check", snail, output=output, first=give_up_soon)
    checking.join(120)
    assert checking.exitcode == 2
    assert f"WRONG  Snail.{rule} ({snail} line " in output.read_text()
    assert "does not come to an end" in output.read_text()


def find_what_hangs(world: str) -> None:
    for where in (1, 2, 3):
        pool = NativePool(load_env(world, where=where, patience=5), 3, num_threads=1)
        pool.reset(0)
        steps = threading.Thread(target=take_ten_steps, args=(pool,), daemon=True)
        steps.start()
        found = ""
        while "does not come to an end" not in found:
            time.sleep(0.1)
            frame = sys._current_frames()[steps.ident or 0]
            kernel_call = hanging._kernel_call(frame)
            found = "" if kernel_call is None else hanging._described(kernel_call, frame)
        print(found, flush=True)
    os._exit(0)  # threads are in rules that do not end


def take_ten_steps(pool: NativePool) -> None:
    for _ in range(10):
        pool.step(np.zeros(3, np.int64))


@pytest.mark.rest
def test_the_rule_that_hangs_is_found_while_it_runs_compiled(snail: Path) -> None:
    output = snail.parent / "output"
    call(find_what_hangs, str(snail), output=output)
    for rule, found in zip(("step", "observe", "reset"), output.read_text().splitlines(), strict=True):
        assert found.partition(" does not")[0] in places(snail, rule)
