"""MLflow, where its own settings say (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME), by default a local database.

Every row ends with the metric `step`, by which MLflow says how far it is: a resumed run goes on in the same MLflow run.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from scramjet.telemetry.tracking.tracker import (
    DEFAULT_PROJECT,
    Place,
    Point,
    RunFacts,
    Sent,
    Tracker,
    Value,
    run_id_beside,
)

_mlflow: Any = import_module("mlflow")
_entities: Any = import_module("mlflow.entities")
_errors: Any = import_module("mlflow.exceptions")

_MOST_METRICS, _MOST_PARAMS = 1000, 100  # that MLflow takes at once
_FORBIDDEN = re.compile(r"[^\w\-. :/]")  # in MLflow's names


class MLflowTracker(Tracker):
    """Writes one MLflow run."""

    def open(self, facts: RunFacts, sent: Sent, goes_on_from: int | None) -> Place:
        """Begin an MLflow run, or take up the one that this run has."""
        self._client = _mlflow.MlflowClient()
        run = self._existing(sent.run_id) if sent.run_id else None
        if run is None:
            run = self._begin(facts)
        else:
            self._client.update_run(run.info.run_id, status="RUNNING")
        self._run_id = run.info.run_id
        return Place(self._run_id, int(run.data.metrics.get("step", -1)))

    def write(self, points: Sequence[Point]) -> None:
        """Log the numbers of all points, as many at once as MLflow takes."""
        batch: list[Any] = []
        for point in points:
            row = list(_metrics(point))
            if len(batch) + len(row) > _MOST_METRICS:
                self._client.log_batch(self._run_id, metrics=batch)
                batch = []
            batch += row
        self._client.log_batch(self._run_id, metrics=batch)

    def video(self, path: Path, step: int) -> None:
        """Keep a video or picture among the run's artifacts."""
        self._client.log_artifact(self._run_id, str(path), artifact_path="videos")

    def close(self, summary: Mapping[str, Value]) -> None:
        """Set the summary as tags and end the run."""
        tags = [_entities.RunTag(_name(f"final/{name}"), str(value)) for name, value in summary.items()]
        self._client.log_batch(self._run_id, tags=tags)
        if summary["state"] != "running":
            self._client.set_terminated(self._run_id, "FINISHED" if summary["state"] == "finished" else "KILLED")

    def _existing(self, run_id: str) -> Any:
        """A run by its id; None if it was deleted."""
        try:
            run = self._client.get_run(run_id)
        except _errors.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def _begin(self, facts: RunFacts) -> Any:
        """A new run with its parameters and tags; a fork lies under its parent."""
        own = {"tags": ", ".join(facts.own_tags)} if facts.own_tags else {}
        tags = {**facts.tags, **own, "group": facts.group, **facts.fork_notes}
        if parent := run_id_beside(facts.path, facts.parent or "", "mlflow"):
            tags["mlflow.parentRunId"] = parent
        run = self._client.create_run(self._experiment(facts), tags=tags, run_name=facts.name)
        params = [_entities.Param(_name(key), str(value)) for key, value in facts.flat_config.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(run.info.run_id, params=params[start : start + _MOST_PARAMS])
        return run

    def _experiment(self, facts: RunFacts) -> str:
        """The id of the experiment for a run, which is made if it is missing."""
        if facts.project is None and os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return os.environ["MLFLOW_EXPERIMENT_ID"]
        name = facts.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_PROJECT
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except _errors.MlflowException:  # another run may have made it meanwhile
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


def make() -> Tracker:
    """A tracker for one run."""
    return MLflowTracker()


def _metrics(point: Point) -> Iterator[Any]:
    """The numbers of a point for MLflow; the step comes last, and says that all of them are there."""
    milliseconds = int((point.wall_time or time.time()) * 1000)
    for name, value in (*point.values.items(), ("step", point.step)):
        yield _entities.Metric(_name(name), float(value), milliseconds, point.step)


def _name(name: str) -> str:
    return _FORBIDDEN.sub("_", name)[:250]
