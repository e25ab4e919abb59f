"""A study killed at any moment goes on to the very trials of one that was never killed, and its trials end with it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import scramjet
from tests.helpers.forked_commands import finish, start

pytest.importorskip("optuna")

pytestmark = pytest.mark.faults

UPDATES, BATCH = 24, 32 * 64
TOTAL = UPDATES * BATCH
RUN = (
    f"--num-envs 32 --num-steps 64 --num-threads 1 --total-timesteps {TOTAL} --checkpoint.every 2 --eval.every 0 "
    "--eval.final-episodes 4 --entropy-coef 0.01@0,0@end"
).split()
STUDY = "cartpole --learning-rate log:1e-4..1e-2 --gamma choice:0.98,0.99 --method halving --trials 3 --parallel 1"
STUDY += " --seeds 0"
WORDS = ["tune", *STUDY.split(), *RUN]


def found(study: Path) -> list[Any]:
    """The trials in study.db, by Optuna's own reader, without times."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials = optuna.load_study(study_name="scramjet", storage=f"sqlite:///{study / 'study.db'}").trials
    return [(each.number, each.state.name, each.params, each.values, each.intermediate_values) for each in trials]


def weights(study: Path) -> dict[str, bytes]:
    """The newest weights of every run."""
    runs = sorted((study / "runs").iterdir())
    return {run.name: (run / "checkpoints" / "latest" / "model.safetensors").read_bytes() for run in runs}


def kill_when(process: BaseProcess, has_come: Callable[[], bool], delay: float) -> None:
    """Kill a process some time after something has come; it must not have ended before."""
    deadline = time.monotonic() + 120
    while not has_come() and time.monotonic() < deadline:
        assert process.exitcode is None
        time.sleep(0.005)
    time.sleep(delay)
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def trials_alive(study: Path) -> list[str]:
    """The processes whose errors go into a study's folder, by the system's own list."""
    alive = []
    for errors in Path("/proc").glob("[0-9]*/fd/2"):
        with contextlib.suppress(OSError):
            if os.readlink(errors).startswith(str(study)):
                alive.append(errors.parts[2])
    return alive


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="it looks for processes as Linux shows them")
def test_a_study_killed_twice_ends_as_one_that_was_not_and_its_paused_winner_as_a_run_of_its_own(
    tmp_path: Path,
) -> None:
    delays = random.Random(str(tmp_path))
    place, output = ["--studies-dir", tmp_path], tmp_path / "output"
    finish(*WORDS, *place, "--study-name", "whole", output=output)
    killed = tmp_path / "killed"
    process = start(*WORDS, *place, "--study-name", "killed", output=output)
    kill_when(process, (killed / "runs" / "trial-0001").is_dir, delays.uniform(0, 0.3))
    deadline = time.monotonic() + 30
    while trials_alive(killed) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not trials_alive(killed), "a trial goes on without its study"
    process = start("tune", "--resume", killed, output=output)
    kill_when(process, (killed / "runs" / "trial-0002").is_dir, delays.uniform(0, 0.6))
    told = finish("tune", "--resume", killed, output=output)
    assert "trial 2" in told
    assert found(killed) == found(tmp_path / "whole")
    assert weights(killed) == weights(tmp_path / "whole")

    states = [state for _, state, *_ in found(killed)]
    assert sorted(states) == ["COMPLETE", "PRUNED", "PRUNED"]
    winner = states.index("COMPLETE")
    config = killed / "trials" / f"trial-{winner:04}.toml"
    alone = scramjet.train(config, runs_dir=tmp_path / "alone", run_name="alone", display="quiet")
    model = alone.run_path / "checkpoints" / "latest" / "model.safetensors"
    assert model.read_bytes() == weights(killed)[f"trial-{winner:04}"]
