"""What a study seeks: a score, and a cost, read from the metrics of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from scramjet.errors import ConfigError, RunError, did_you_mean, shortened
from scramjet.reports.metrics_table import STEP, TIME, Curve, MetricsTable
from scramjet.telemetry.metrics import VERSUS_RANDOM
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.settings import StudySettings

FINAL, TRAINING_RETURN = "eval/mean_return", "return_100"
"""The metrics of the final evaluation, and of the episodes played in training."""
KINDS = ("final", "area", "time_to", "steps_to", "metric", "rating")
_MOST_NAMES = 40


@dataclass(frozen=True, slots=True)
class Objective:
    """How a run is judged."""

    kind: Literal["final", "area", "time_to", "steps_to", "metric", "rating"]
    metric: str
    """The metric that is read."""
    target: float = math.nan
    """The return to reach, for time_to and steps_to."""
    minimizes: bool = False
    """Whether a lower score is better."""
    cost: Literal["seconds", "steps"] = "seconds"

    @classmethod
    def parse(cls, settings: StudySettings, base: RunConfig) -> Objective:
        """The objective of a study; a ConfigError for one that is unknown, or that no trial could have."""
        kind, colon, rest = settings.objective.partition(":")
        if kind == "metric" and rest:
            return cls("metric", rest, minimizes=settings.minimize, cost=settings.cost)
        if kind in ("time_to", "steps_to"):
            return cls(kind, TRAINING_RETURN, _number(settings.objective, rest), True, settings.cost)  # type: ignore[arg-type]
        if kind == "area" and not colon:
            return cls("area", TRAINING_RETURN, cost=settings.cost)
        if kind == "rating" and not colon:
            if settings.method != "pbt":
                raise ConfigError("objective='rating' is by matches of a population's members; add --method pbt")
            return cls("rating", "rating", cost=settings.cost)
        if kind != "final" or colon:
            raise ConfigError(
                f"objective={shortened(settings.objective)} is unknown.{did_you_mean(kind, KINDS)} It is final, area, "
                f"time_to:RETURN, steps_to:RETURN, metric:NAME or rating"
            )
        if base.eval.final_episodes == 0:
            raise ConfigError("objective='final' needs a final evaluation, and eval.final_episodes is 0; raise it")
        return cls("final", FINAL, cost=settings.cost)

    def score(self, run: Path) -> float:
        """The score of a run that has ended; infinite for a return never reached. A RunError if it has none."""
        table = _table(run)
        metric = self._told_by(table, self.metric)
        curve = table.curve(metric)
        if len(curve.y) == 0:
            raise RunError(self._missing(table))
        if self.kind == "area":
            return area(curve)
        if self.kind in ("time_to", "steps_to"):
            return first_reaching(table.curve(metric, TIME if self.kind == "time_to" else STEP), self.target)
        return float(curve.y[-1])

    def score_so_far(self, run: Path) -> float | None:
        """A score to compare unfinished runs of equal length by, of the same direction; None if there is none yet.

        The final evaluation and the way to a return are judged by the training return so far.
        """
        table = _table(run)
        metric = TRAINING_RETURN if self.kind != "metric" else self.metric
        curve = table.curve(self._told_by(table, metric))
        if len(curve.y) == 0:
            return None
        if self.kind == "area":
            return area(curve)
        return -float(curve.y[-1]) if self.kind in ("time_to", "steps_to") else float(curve.y[-1])

    def _told_by(self, table: MetricsTable, metric: str) -> str:
        """The metric to read in place of a return: in games for several, where it says nothing, the win rate."""
        return VERSUS_RANDOM if self.kind != "metric" and len(table.curve(VERSUS_RANDOM).y) else metric

    def cost_of(self, run: Path) -> float:
        """What a run has cost so far: seconds of training, or env steps."""
        last = _table(run).last()
        return last.get(TIME if self.cost == "seconds" else STEP, 0.0)

    def _missing(self, table: MetricsTable) -> str:
        names = table.names
        shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
        return (
            f"the objective {shortened(self.metric)} is not among the run's metrics."
            f"{did_you_mean(self.metric, names)} Its metrics: {shown or 'none'}"
        )


def area(curve: Curve) -> float:
    """The mean of a curve over its steps, by trapezoids; before its first point it is taken as flat."""
    x, y = np.concatenate([[0.0], curve.x]), np.concatenate([curve.y[:1], curve.y])
    return float(np.trapezoid(y, x) / x[-1]) if x[-1] > 0 else float(y[-1])


def first_reaching(curve: Curve, target: float) -> float:
    """Where a curve first reaches a value; infinite if it never does."""
    reached = np.flatnonzero(curve.y >= target)
    return float(curve.x[reached[0]]) if len(reached) else math.inf


def _table(run: Path) -> MetricsTable:
    table = MetricsTable(run / "metrics.jsonl")
    table.update()
    return table


def _number(objective: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        kind = objective.partition(":")[0]
        raise ConfigError(f"objective={shortened(objective)} needs a return to reach, such as {kind}:475")
    return number
