"""W&B offline: the rows in the files that it leaves, read with W&B's own records, hold each step once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scramjet.errors import ConfigError
from tests.helpers.late_imports import skip_without
from tests.helpers.tracked_runs import STEPS, fed, feed_twice, fork_of, send
from tests.helpers.written_runs import write_run

skip_without("wandb")

_BLOCK = 32768
_HEADER = 7


def chunks(data: bytes) -> Iterator[bytes]:
    """The entries of a log in LevelDB's format, which .wandb files have: blocks of pieces, after a header."""
    position, entry = _HEADER, b""
    while position + 7 <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < 7:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        entry += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole entry, or the last piece of one
            yield entry
            entry = b""


def records(folder: Path, run_id: str) -> Iterator[Any]:
    """All records of a run's offline files, oldest first."""
    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb")):
        for chunk in chunks(file.read_bytes()):
            record = Record()
            record.ParseFromString(chunk)
            yield record


def rows(folder: Path, run_id: str) -> list[dict[str, Any]]:
    """The rows of a run's history."""
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records(folder, run_id)
        if record.WhichOneof("record_type") == "history"
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "boards")
    return tmp_path


def run_id(run: Path) -> str:
    return str(json.loads((run / "tracking/wandb/state.json").read_text())["run_id"])


def test_wandb_has_each_step_of_a_resumed_run_once_with_config_group_and_summary_and_its_fork(folder: Path):
    first = feed_twice("wandb", folder / "runs")
    second = fork_of(folder / "runs")
    with fed("wandb", second) as feed:
        feed.video(Path(__file__).with_name("dot.gif"), 3000)
        feed.close("stopped")
    history = rows(folder, run_id(first))
    assert [(row["_step"], row["update"]) for row in history] == list(zip(STEPS, range(1, 6), strict=True))
    assert [row["_step"] for row in history if "eval/mean_return" in row] == [2000, 4000]
    assert all("value_loss" not in row and "time/elapsed_seconds" in row for row in history)
    begun = [record.run for record in records(folder, run_id(first)) if record.WhichOneof("record_type") == "run"]
    assert {(run.project, run.display_name, run.run_group) for run in begun} == {("boards", "first", "cartpole ppo")}
    config = {item.key: json.loads(item.value_json) for item in begun[0].config.update}
    assert config["env"]["name"] == "cartpole"
    summaries = [record.summary for record in records(folder, run_id(first)) if record.HasField("summary")]
    final = {item.key or "/".join(item.nested_key): item.value_json for each in summaries for item in each.update}
    assert (final["final/state"], final["final/step"]) == ('"finished"', "5000")
    (forked, *_) = (record.run for record in records(folder, run_id(second)) if record.HasField("run"))
    lineage = {item.key: json.loads(item.value_json) for item in forked.config.update}["lineage"]
    assert (lineage["parent_run"], lineage["parent_id"]) == ("first", run_id(first))
    assert any("video/path" in row for row in rows(folder, run_id(second)))


def test_without_an_account_w_and_b_asks_nothing_and_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch):
    import wandb

    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
    wandb.teardown()  # it has read its settings once
    with pytest.raises(ConfigError, match="run `wandb login`, or set WANDB_MODE=offline"):
        send("wandb", write_run(folder / "runs", "run"))
