"""Sinks: every one gets the record of every update, in order, and is closed when the run ends."""

from __future__ import annotations

from typing import Any

import pytest

import scramjet
from scramjet.runtime.metrics_log import read_metrics
from tests.helpers.sessions import SMALL


class Sink(scramjet.Callback):
    """Adds itself as a sink that keeps what it is given, and what metrics.jsonl held then; fails where it is told."""

    def __init__(self, callback_fails_at: int | None = None, sink_fails_at: int | None = None) -> None:
        self.callback_fails_at, self.sink_fails_at = callback_fails_at, sink_fails_at
        self.records: list[dict[str, Any]] = []
        self.lines_before: list[int] = []
        self.num_closed = 0

    def on_start(self, session: Any) -> None:
        self.path = session.run.path / "metrics.jsonl"
        session.sinks.append(self)

    def on_update(self, record: dict[str, Any], session: Any) -> dict[str, float]:
        if record["update"] == self.callback_fails_at:
            raise ValueError("as asked")
        return {"mine": 2.0 * record["update"]}

    def record(self, record: dict[str, Any]) -> None:
        if record["update"] == self.sink_fails_at:
            raise ConnectionError("gone")
        self.records.append(dict(record))
        self.lines_before.append(len(read_metrics(self.path)))

    def close(self) -> None:
        self.num_closed += 1


def trained(sink: Sink, tmp_path: Any) -> scramjet.TrainResult:
    return scramjet.train(SMALL, runs_dir=tmp_path, display="quiet", callbacks=[sink])


def test_a_sink_gets_what_metrics_jsonl_got_just_before_it_and_is_closed_once(tmp_path):
    sink = Sink()
    result = trained(sink, tmp_path)
    assert sink.records == read_metrics(result.run_path / "metrics.jsonl")
    assert [record["mine"] for record in sink.records] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert sink.lines_before == [1, 2, 3, 4, 5]
    assert sink.num_closed == 1


def test_a_sink_is_closed_once_where_a_callback_ends_the_run(tmp_path):
    sink = Sink(callback_fails_at=2)
    with pytest.raises(scramjet.ScramjetError, match="as asked"):
        trained(sink, tmp_path)
    assert sink.num_closed == 1


def test_a_sink_that_raises_ends_the_run_once_its_update_is_saved(tmp_path):
    with pytest.raises(scramjet.ScramjetError, match=r"the sink Sink.record raised ConnectionError: gone; what was"):
        trained(Sink(sink_fails_at=2), tmp_path)
    (run,) = tmp_path.iterdir()
    assert [record["update"] for record in read_metrics(run / "metrics.jsonl")] == [1, 2]
    assert (run / "checkpoints" / "latest").exists()
    assert scramjet.train(resume=run, runs_dir=tmp_path, display="quiet").step == SMALL.total_timesteps
