"""Sinks: every one gets the record of every update, in order, and is closed when the run ends."""

from __future__ import annotations

from typing import Any

import pytest

import scramjet
from scramjet.runtime.metrics_log import read_metrics
from scramjet.training.config.run_config import EvaluationConfig, RunConfig


class Collecting:
    """A sink that keeps what it is given, and what metrics.jsonl held at that moment."""

    def __init__(self, run_path: Any) -> None:
        self.path = run_path / "metrics.jsonl"
        self.records: list[dict[str, Any]] = []
        self.lines_before: list[int] = []
        self.num_closed = 0

    def record(self, record: dict[str, Any]) -> None:
        self.records.append(dict(record))
        self.lines_before.append(len(read_metrics(self.path)))

    def close(self) -> None:
        self.num_closed += 1


class AddsASink(scramjet.Callback):
    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def on_start(self, session: Any) -> None:
        self.sink = Collecting(session.run.path)
        session.sinks.append(self.sink)

    def on_update(self, record: dict[str, Any], session: Any) -> dict[str, float]:
        if record["update"] == self.fails_at:
            raise ValueError("as asked")
        return {"mine": 2.0 * record["update"]}


def trained(callback: AddsASink, tmp_path: Any) -> scramjet.TrainResult:
    no_evaluation = EvaluationConfig(every=0, final_episodes=0)
    config = RunConfig(env="cartpole", num_envs=4, num_steps=8, total_timesteps=96, eval=no_evaluation, device="cpu")
    return scramjet.train(config, runs_dir=tmp_path, display="quiet", callbacks=[callback])


def test_a_sink_gets_what_metrics_jsonl_got_just_before_it(tmp_path):
    callback = AddsASink()
    result = trained(callback, tmp_path)
    assert callback.sink.records == read_metrics(result.run_path / "metrics.jsonl")
    assert [record["mine"] for record in callback.sink.records] == [2.0, 4.0, 6.0]
    assert callback.sink.lines_before == [1, 2, 3]


@pytest.mark.parametrize("fails_at", [None, 2])
def test_a_sink_is_closed_once_however_the_run_ends(fails_at, tmp_path):
    callback = AddsASink(fails_at)
    if fails_at is None:
        trained(callback, tmp_path)
    else:
        with pytest.raises(scramjet.ScramjetError, match="as asked"):
            trained(callback, tmp_path)
    assert callback.sink.num_closed == 1


class Failing:
    """A sink that loses its connection."""

    def record(self, record: dict[str, Any]) -> None:
        if record["update"] == 2:
            raise ConnectionError("gone")

    def close(self) -> None:
        pass


class AddsAFailingSink(scramjet.Callback):
    def on_start(self, session: Any) -> None:
        session.sinks.append(Failing())


def test_a_sink_that_raises_ends_the_run_once_its_update_is_saved(tmp_path):
    with pytest.raises(scramjet.ScramjetError, match=r"the sink Failing.record raised ConnectionError: gone; what was"):
        trained(AddsAFailingSink(), tmp_path)
    (run,) = tmp_path.iterdir()
    assert [record["update"] for record in read_metrics(run / "metrics.jsonl")] == [1, 2]
    assert (run / "checkpoints" / "latest").exists()
    assert scramjet.train(resume=run, runs_dir=tmp_path, display="quiet").step == 96
