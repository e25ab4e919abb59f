"""A native world whose compiled rules never return: signals end the process all the same, and name the rule."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import scramjet

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


def line_of(rule: str) -> int:
    return next(i for i, line in enumerate(SNAIL.splitlines(), 1) if line.endswith(f"# in {rule}"))


def start(*words: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scramjet", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 90
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("flag", ["--normalize-observations", "--no-normalize-observations"])
def test_a_second_signal_ends_a_compiled_endless_loop_and_names_it(flag: str, snail: Path) -> None:
    """Without normalized observations a whole rollout is one compiled function."""
    runs = snail.parent / "runs"
    flags = "--env.where 1 --num-envs 4 --num-steps 16 --checkpoint.every 1 --eval.every 0 --device cpu --display plain"
    training = start("train", snail, *flags.split(), flag, "--num-threads", 1, "--runs-dir", runs)
    try:
        wait_for_lines(runs / "snail-1" / "metrics.jsonl", 3)
        time.sleep(1.0)  # until it hangs
        training.send_signal(signal.SIGINT)
        time.sleep(1.5)
        assert training.poll() is None
        training.send_signal(signal.SIGTERM)
        out, errors = training.communicate(timeout=10)
    finally:
        training.kill()
    assert training.returncode == 128 + signal.SIGTERM
    assert "stopping after this update" in out
    assert f"scramjet: left at the second signal: Snail.step ({snail} line " in errors
    assert "does not come to an end" in errors
    assert "Traceback" not in errors
    scramjet.load_policy(runs / "snail-1")


IMPATIENT = """
import os, signal, sys, threading, time
from scramjet import cli
from scramjet.commands import check
from scramjet.engine.worlds.hanging import what_hangs

def press_twice():
    while "does not come to an end" not in what_hangs():
        time.sleep(0.1)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)

check.CALL_SECONDS = 2.0
if sys.argv[1] == "bench":
    threading.Thread(target=press_twice, daemon=True).start()
cli.main(sys.argv[1:])
"""


def run_impatiently(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IMPATIENT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_second_ctrl_c_ends_any_command(snail: Path) -> None:
    """Here one whose steps are on threads of Numba's."""
    snail.write_text(SNAIL.replace("where: int = 0", "where: int = 1"))
    done = run_impatiently("bench", snail, "--num-envs", 1024, "--num-threads", 2)
    assert done.returncode == 130
    assert f"scramjet: left at the second signal: Snail.step ({snail} line " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("where", [1, 3])
def test_check_finds_an_endless_loop(where: int, snail: Path) -> None:
    snail.write_text(SNAIL.replace("where: int = 0", f"where: int = {where}"))
    done = run_impatiently("check", snail)
    assert done.returncode == 2
    rule = {1: "step", 3: "reset"}[where]
    assert f"WRONG  Snail.{rule} ({snail} line " in done.stdout
    assert "does not come to an end" in done.stdout


FINDING = """
import os, sys, threading, time
import numpy as np
from scramjet.engine.worlds import hanging
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import load_env

for where in (1, 2, 3):
    pool = NativePool(load_env(sys.argv[1], where=where, patience=5), 3, num_threads=1)
    pool.reset(0)
    steps = threading.Thread(target=lambda: [pool.step(np.zeros(3, np.int64)) for _ in range(10)], daemon=True)
    steps.start()
    found = ""
    while "does not come to an end" not in found:
        time.sleep(0.1)
        frame = sys._current_frames()[steps.ident]
        call = hanging._kernel_call(frame)
        found = "" if call is None else hanging._described(call, frame)
    print(found, flush=True)
os._exit(0)
"""


def test_the_rule_that_hangs_is_found_while_it_runs_compiled(snail: Path) -> None:
    command = [sys.executable, "-c", FINDING, str(snail)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for rule, found in zip(("step", "observe", "reset"), done.stdout.splitlines(), strict=True):
        places = [f"Snail.{rule} ({snail} line {line})" for line in (line_of(rule) - 1, line_of(rule))]
        assert found.partition(" does not")[0] in places
