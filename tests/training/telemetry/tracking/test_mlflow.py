"""MLflow: what a run sends is what MLflow's own client finds in a file store, each step once, in one MLflow run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scramjet.errors import RunError
from scramjet.runtime.runs import Run
from scramjet.training.telemetry.tracking.process import ProcessFeed
from tests.helpers.late_imports import skip_without
from tests.helpers.tracked_runs import STEPS, fed, feed_twice, fork_of, records, send
from tests.helpers.written_runs import append_records, write_run

skip_without("mlflow")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "boards")
    return mlflow.MlflowClient()


def runs(client: Any) -> dict[str, Any]:
    found = client.search_runs([client.get_experiment_by_name("boards").experiment_id])
    return {run.info.run_name: run for run in found}


def test_mlflow_holds_each_step_of_a_resumed_run_once_with_parameters_tags_and_summary_and_its_fork(
    tmp_path: Path, client: Any
):
    feed_twice("mlflow", tmp_path / "runs")
    with fed("mlflow", fork_of(tmp_path / "runs")) as feed:
        feed.video(Path(__file__).with_name("dot.gif"), 3000)
        feed.close("stopped")
    found = runs(client)
    first, second = found["first"], found["second"]
    history = {name: client.get_metric_history(first.info.run_id, name) for name in ("update", "eval/mean_return")}
    assert [(each.step, each.value) for each in history["update"]] == list(zip(STEPS, range(1, 6), strict=True))
    assert [each.step for each in history["eval/mean_return"]] == [2000, 4000]
    assert history["update"][1].timestamp - history["update"][0].timestamp == pytest.approx(500, abs=2)
    assert "value_loss" not in first.data.metrics  # it was null
    assert first.data.params["env.name"] == "cartpole"
    tags = first.data.tags
    assert (tags["env"], tags["seed"], tags["final/state"], tags["final/step"]) == ("cartpole", "3", "finished", "5000")
    assert (first.info.status, second.info.status) == ("FINISHED", "KILLED")
    assert second.data.tags["mlflow.parentRunId"] == first.info.run_id
    assert second.data.tags["parent_step"] == "2000"
    assert [file.path for file in client.list_artifacts(second.info.run_id, "videos")] == ["videos/dot.gif"]


@pytest.mark.parametrize("is_told", [True, False], ids=["ended", "parent killed"])
def test_a_process_of_its_own_sends_what_the_run_writes_until_it_ends_or_its_parent_is_gone(
    tmp_path: Path, client: Any, is_told: bool
):
    run = write_run(tmp_path / "runs", "run", records(1, 2), total_timesteps=4000)
    feed = ProcessFeed("mlflow", Run.open(run))
    feed.open(goes_on_from=0)
    append_records(run, records(3, 4))
    feed.video(Path(__file__).with_name("dot.gif"), 3000)
    if is_told:
        feed.close("finished")
    feed.release()
    assert feed._process is not None
    assert feed._process.wait(60) == 0
    (found,) = runs(client).values()
    history = client.get_metric_history(found.info.run_id, "update")
    assert [each.step for each in history] == [1000, 2000, 3000, 4000]
    assert found.info.status == ("FINISHED" if is_told else "KILLED")
    assert [file.path for file in client.list_artifacts(found.info.run_id, "videos")] == ["videos/dot.gif"]


def test_what_fails_in_a_process_of_its_own_is_raised_here(tmp_path: Path, client: Any, monkeypatch: Any):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nosuch://place")
    feed = ProcessFeed("mlflow", Run.open(write_run(tmp_path / "runs", "run")))
    with pytest.raises(RunError, match="nosuch"):
        feed.open(goes_on_from=0)
    feed.release()


def test_a_run_that_was_deleted_in_mlflow_is_sent_anew(tmp_path: Path, client: Any):
    run = write_run(tmp_path / "runs", "run", records(1, 2))
    send("mlflow", run)
    client.delete_run(runs(client)["run"].info.run_id)
    send("mlflow", run)
    history = client.get_metric_history(runs(client)["run"].info.run_id, "update")
    assert [each.step for each in history] == [1000, 2000]
