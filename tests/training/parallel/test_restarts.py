"""What the same command becomes when a launcher has started all ranks again."""

from __future__ import annotations

from pathlib import Path

import pytest

from scramjet.runtime.ranks.interface import Alone
from scramjet.training.config.run_config import RunConfig
from scramjet.training.loop import train
from scramjet.training.parallel.restarts import FinishedBeforeError, after_restart
from scramjet.training.start import StartRequest

STEPS = 8 * 16
TINY = {"num_envs": 8, "num_steps": 16, "total_timesteps": STEPS, "num_threads": 1}


def request_after(run: Path | None, **changes: object) -> StartRequest:
    ranks = Alone()
    ranks.earlier_run = run
    config = RunConfig(time_limit="1h", **TINY)
    return StartRequest(**{"config": config, "run_name": "a", "ranks": ranks, **changes})


def test_a_first_attempt_and_a_resume_stay_as_they_are(tmp_path: Path) -> None:
    for request in (request_after(None), request_after(tmp_path, config=None, resume=tmp_path)):
        assert after_restart(request) is request


def test_a_run_that_never_came_to_be_is_begun_again(tmp_path: Path) -> None:
    request = request_after(tmp_path / "a")
    assert after_restart(request) is request


def test_a_run_that_was_begun_is_resumed_and_one_that_is_done_is_left_alone(tmp_path: Path) -> None:
    run = train("cartpole", runs_dir=tmp_path, run_name="a", display="quiet", **TINY).run_path
    with pytest.raises(FinishedBeforeError, match="run 'a' had finished") as caught:
        after_restart(request_after(run))
    assert caught.value.exit_code == 0
    config = run / "config.toml"
    config.write_text(config.read_text().replace(f"total_timesteps = {STEPS}", f"total_timesteps = {2 * STEPS}"))
    resumed = after_restart(request_after(run))
    assert (resumed.resume, resumed.config, resumed.run_name, resumed.time_limit) == (run, None, None, "1h")
