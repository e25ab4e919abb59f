"""The loop: one record an update, evaluations and checkpoints when they are due, and a stop that loses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scramjet
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers.run_files import lines_of
from tests.helpers.sessions import SMALL

pytestmark = pytest.mark.usefixtures("one_thread")


def trained(config: RunConfig, tmp_path: Path, **given: Any) -> tuple[Any, list[dict[str, Any]], list[int]]:
    """The result of a run, its records and the steps of its checkpoints."""
    result = scramjet.train(config, runs_dir=tmp_path, display="quiet", **given)
    return result, lines_of(result.run_path), CheckpointStore(result.run_path / "checkpoints", None).steps()


def test_there_is_one_record_for_each_update_until_the_total_is_reached(tmp_path: Path) -> None:
    result, records, steps = trained(replace(SMALL, total_timesteps=100), tmp_path)
    assert [(record["update"], record["step"]) for record in records] == [(1, 32), (2, 64), (3, 96), (4, 128)]
    assert result.step == 128
    assert steps == [128]


def test_evaluations_and_checkpoints_come_when_they_are_due_and_at_the_end(tmp_path: Path) -> None:
    due = replace(
        SMALL,
        eval=EvaluationConfig(every=2, episodes=2, final_episodes=0),
        checkpoint=CheckpointConfig(every=3, keep_last_n=None),
    )
    _, records, steps = trained(due, tmp_path)
    assert [record["update"] for record in records if "eval/mean_return" in record] == [2, 4]
    assert {96, 160} <= set(steps)


def test_a_callback_that_stops_the_run_ends_it_after_that_update_with_a_checkpoint(tmp_path: Path) -> None:
    class Stops(scramjet.Callback):
        def on_update(self, record: dict[str, Any], session: Any) -> None:
            if record["update"] == 2:
                session.stop("enough")

    result, records, steps = trained(SMALL, tmp_path, callbacks=[Stops()])
    assert [record["update"] for record in records] == [1, 2]
    assert steps == [64]
    assert result.step == 64
