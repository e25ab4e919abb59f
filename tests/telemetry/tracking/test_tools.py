"""Trackers of others: what a run sends is what each tool's own reader finds, each step once."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.runtime.runs import Run
from scramjet.telemetry.tracking.background import ProcessFeed
from tests.helpers.tracked_runs import STEPS, fed, feed_twice, fork_of, records, send
from tests.helpers.written_runs import append_records, write_run

pytestmark = pytest.mark.rest

PICTURE = Path(__file__).with_name("dot.gif")


@dataclass
class Held:
    history: dict[str, list[tuple[int, float]]]  # (step, value) by the name of the metric
    env: str
    parent: tuple[Any, ...] = ()  # name and step
    parent_id: Any = None
    state: Any = None
    has_video: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    """What not every tool has."""


def held_by_aim(folder: Path) -> dict[str, Held]:
    """The runs of a repository by name, indexed first, as `aim up` does; waits until it has found two."""
    import aim
    from aim.sdk.index_manager import RepoIndexManager
    from aim.storage.context import Context

    runs: dict[str, Any] = {}
    deadline = time.monotonic() + 20
    while len(runs) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
        repo = aim.Repo(str(folder))
        index = RepoIndexManager(repo)
        for run_hash in repo.list_all_runs():
            index.index(run_hash)
        runs = {run.name: run for run in repo.iter_runs()}
    held = {}
    for name, run in runs.items():
        columns = {metric.name: metric.data.items_list() for metric in run.metrics()}
        images, lineage = run.get_image_sequence("video", Context({})), run.get("lineage") or {}
        held[name] = Held(
            history={metric: list(zip(steps, values[0], strict=True)) for metric, (steps, values) in columns.items()},
            env=run["config", "env.name"], parent=(lineage.get("parent_run"), lineage.get("parent_step")),
            parent_id=lineage.get("parent_hash"), state=run["summary", "state"],
            has_video=images is not None and images.last_step() == 3000,
            more={"id": run.hash, "tags": set(run.tags), "experiment": run.experiment, "active": run.active},
        )  # fmt: skip
    return held


def held_by_mlflow(folder: Path) -> dict[str, Held]:
    import mlflow

    client, held = mlflow.MlflowClient(), {}
    for run in client.search_runs([client.get_experiment_by_name("boards").experiment_id]):
        run_id, tags = run.info.run_id, run.data.tags
        points = {metric: client.get_metric_history(run_id, metric) for metric in run.data.metrics}
        held[run.info.run_name] = Held(
            history={metric: [(each.step, each.value) for each in found] for metric, found in points.items()},
            env=run.data.params["env.name"],
            parent=(tags.get("parent_run"), int(tags.get("parent_step", 0))),
            parent_id=tags.get("mlflow.parentRunId"),
            state=tags.get("final/state"),
            has_video=[file.path for file in client.list_artifacts(run_id, "videos")] == ["videos/dot.gif"],
            more={
                "id": run_id, "status": run.info.status, "seed": tags["seed"],
                "milliseconds": [each.timestamp - points["update"][0].timestamp for each in points["update"][:2]],
            },
        )  # fmt: skip
    return held


def held_by_trackio(folder: Path) -> dict[str, Held]:
    from trackio.sqlite_storage import SQLiteStorage

    held = {}
    for name in SQLiteStorage.get_runs("scramjet"):
        history: dict[str, list[tuple[int, float]]] = {}
        for row in SQLiteStorage.get_logs("scramjet", name):
            for metric, value in row.items():
                history.setdefault(metric, []).append((row["step"], value))
        config = SQLiteStorage.get_run_config("scramjet", name)
        held[name] = Held(history, config["env.name"], (config.get("parent_run"), config.get("parent_step")))
    return held


def wandb_records(folder: Path) -> Iterator[tuple[str, Any]]:
    """All records in the files that offline runs leave, with the run's id, oldest first.

    They are logs in LevelDB's format: blocks of 32 KiB, after a header of 7 bytes, of pieces of entries.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        data, position, entry = file.read_bytes(), 7, b""
        while position + 7 <= len(data):
            left = 32768 - position % 32768
            if left < 7:
                position += left
                continue
            length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
            entry += data[position + 7 : position + 7 + length]
            position += 7 + length
            if kind in (1, 4):  # a whole entry, or the last piece of one
                record = Record()
                record.ParseFromString(entry)
                yield file.stem.removeprefix("run-"), record
                entry = b""


def held_by_wandb(folder: Path) -> dict[str, Held]:
    def values_of(items: Any) -> dict[str, Any]:
        return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}

    held: dict[str, Held] = {}  # by id
    names: dict[str, str] = {}
    for run_id, record in wandb_records(folder):
        if record.HasField("run") and run_id not in held:
            config = values_of(record.run.config.update)
            lineage, names[record.run.display_name] = config.get("lineage", {}), run_id
            more = {"id": run_id, "project": record.run.project, "group": record.run.run_group}
            parent = (lineage.get("parent_run"), lineage.get("parent_step"))
            held[run_id] = Held({}, config["env"]["name"], parent, lineage.get("parent_id"), more=more)
        elif record.HasField("history"):
            row = values_of(record.history.item)
            held[run_id].has_video |= "video/path" in row
            for metric, value in row.items():
                held[run_id].history.setdefault(metric, []).append((row["_step"], value))
        elif record.HasField("summary"):
            held[run_id].state = values_of(record.summary.update).get("final/state", held[run_id].state)
    return {name: held[run_id] for name, run_id in names.items()}


TOOLS: dict[str, tuple[Callable[[Path], dict[str, Held]], dict[str, Any]]] = {
    "aim": (
        held_by_aim,
        {"tags": {"env cartpole", "algorithm ppo", "seed 3"}, "experiment": "scramjet", "active": False},
    ),
    "mlflow": (held_by_mlflow, {"status": "FINISHED", "seed": "3", "milliseconds": pytest.approx([0, 500], abs=2)}),
    "trackio": (held_by_trackio, {}),  # has neither videos nor states
    "wandb": (held_by_wandb, {"project": "boards", "group": "cartpole ppo"}),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_EXPERIMENT_NAME": "boards",
        "TRACKIO_DIR": str(tmp_path / "trackio"),  # read when it is imported, here for the first time
        "WANDB_DIR": str(tmp_path),
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": "boards",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_holds_each_step_of_a_resumed_run_once_with_its_config_and_end_and_a_fork_with_its_parent(
    tool: str, folder: Path, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip(tool)
    find, more = TOOLS[tool]
    feed_twice(tool, folder / "runs")
    if tool == "trackio":  # another run of the same name stands apart
        feed_twice(tool, folder / "elsewhere")
    with fed(tool, fork_of(folder / "runs")) as feed:
        if more:
            feed.video(PICTURE, 3000)
        feed.close("stopped")
    expected, deadline = 3 if tool == "trackio" else 2, time.monotonic() + 20
    while len(held := find(folder)) < expected and time.monotonic() < deadline:
        time.sleep(0.2)  # tools have threads of their own
    assert len(held) == expected
    second = held.pop("second")
    assert second.parent == ("first", 2000)
    for name, run in held.items():
        assert name.startswith("first")
        assert run.history["update"] == list(zip(STEPS, range(1, 6), strict=True))
        assert run.history["return_100"] == list(zip(STEPS, (0.5, 1.0, 1.5, 2.0, 2.5), strict=True))
        assert run.history["eval/mean_return"] == [(2000, 7.5), (4000, 7.5)]
        assert "value_loss" not in run.history  # it was null
        assert [value for _, value in run.history["time/elapsed_seconds"]] == [0.5, 1.0, 1.5, 2.0, 2.5]
        assert run.env == "cartpole"
    if more:
        first = held["first"]
        assert (first.state, second.state) == ("finished", "stopped")
        assert (second.parent_id, second.has_video) == (first.more["id"], True)
        assert {name: first.more[name] for name in more} == more


@pytest.mark.parametrize("is_told", [True, False], ids=["ended", "parent killed"])
def test_a_process_of_its_own_sends_what_the_run_writes_until_it_ends_or_its_parent_is_gone(folder, is_told):
    pytest.importorskip("mlflow")
    run = write_run(folder / "runs", "run", records(1, 2), total_timesteps=4000)
    feed = ProcessFeed("mlflow", Run.open(run))
    feed.open(goes_on_from=0)
    append_records(run, records(3, 4))
    feed.video(PICTURE, 3000)
    if is_told:
        feed.close("finished")
    feed.release()
    assert feed._process is not None
    assert feed._process.wait(60) == 0
    found = held_by_mlflow(folder)["run"]
    assert [step for step, _ in found.history["update"]] == [1000, 2000, 3000, 4000]
    assert found.more["status"] == ("FINISHED" if is_told else "KILLED")
    assert found.has_video


def test_what_fails_in_a_process_of_its_own_is_raised_here(folder: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nosuch://place")
    feed = ProcessFeed("mlflow", Run.open(write_run(folder / "runs", "run")))
    with pytest.raises(RunError, match="nosuch"):
        feed.open(goes_on_from=0)
    feed.release()


def test_a_run_that_was_deleted_in_mlflow_is_sent_anew(folder: Path):
    mlflow = pytest.importorskip("mlflow")
    run = write_run(folder / "runs", "run", records(1, 2))
    send("mlflow", run)
    mlflow.MlflowClient().delete_run(held_by_mlflow(folder)["run"].more["id"])
    send("mlflow", run)
    assert [step for step, _ in held_by_mlflow(folder)["run"].history["update"]] == [1000, 2000]


def test_without_an_account_w_and_b_asks_nothing_and_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
    wandb.teardown()  # it has read its settings once
    with pytest.raises(ConfigError, match="run `wandb login`, or set WANDB_MODE=offline"):
        send("wandb", write_run(folder / "runs", "run"))
