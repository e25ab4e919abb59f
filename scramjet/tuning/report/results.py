"""The results of a study as data: its settings, trials and repeated seeds, ranked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from scramjet.algorithms.intervals import student_95


class TrialState(StrEnum):
    """How a trial stands."""

    FINISHED = "finished"
    STOPPED = "stopped early"
    """Its method ended it, because others did better with as many steps."""
    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that the study varies."""

    name: str
    scale: Literal["linear", "log", "choice"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The settings of a trial trained again with another seed."""

    run: str
    seed: int
    score: float | None
    """None while it trains, and where it failed."""
    seconds: float | None = None
    steps: int | None = None
    reason: str = ""
    """Why it failed; empty for one that did not."""


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """One trial: what was tried, what came of it and what it cost."""

    number: int
    settings: Mapping[str, Any]
    state: TrialState
    score: float | None = None
    """Of a trial that was stopped early: its last score."""
    seconds: float | None = None
    """Time of training."""
    steps: int | None = None
    run: str = ""
    """The name of its run's folder."""
    reason: str = ""
    """Why it failed; empty for one that did not."""
    repeats: tuple[Repeat, ...] = ()

    @property
    def repeated(self) -> Spread | None:
        """The scores of the repeated seeds, None where there is none yet."""
        scores = [repeat.score for repeat in self.repeats if repeat.score is not None]
        return Spread.of(scores) if scores else None

    @property
    def runs(self) -> tuple[str, ...]:
        """The names of its run and those of its repeated seeds."""
        return (*([self.run] if self.run else []), *(repeat.run for repeat in self.repeats))


@dataclass(frozen=True, slots=True)
class Spread:
    """Scores of one setting over several seeds."""

    mean: float
    deviation: float
    """Standard deviation over the seeds, of the sample; 0 for one seed, NaN where a score is infinite."""
    count: int

    @classmethod
    def of(cls, scores: Sequence[float]) -> Spread:
        """The spread of some scores."""
        if not all(map(math.isfinite, scores)):
            return cls(math.fsum(scores), math.nan, len(scores))
        return cls(statistics.fmean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0, len(scores))

    @property
    def half_width(self) -> float:
        """The ± of the mean: half the width of its 95 % interval by Student's t; NaN for one seed."""
        return student_95(self.count - 1) * self.error if self.count > 1 else math.nan

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(self.count)


@dataclass(frozen=True, slots=True)
class StudyResults:
    """All that a report shows of a study."""

    name: str
    world: str
    objective: str
    """The score in words."""
    metric: str
    """The key of metrics.jsonl that its learning curves are drawn of."""
    settings: tuple[Setting, ...]
    trials: tuple[TrialSummary, ...]
    higher_is_better: bool = True
    method: str = ""
    seeds: int = 0
    """Seeds that each of the best settings is to be repeated with."""
    notes: tuple[str, ...] = field(default=())
    """What could not be read, in words."""

    def ranked(self) -> list[TrialSummary]:
        """The trials that have a score, best first.

        Trials that were stopped early come after those that finished: the farther they came the better. Repeated
        seeds do not change this order, in which the search saw the trials.
        """
        scored = [trial for trial in self.trials if trial.score is not None and trial.state != TrialState.FAILED]
        return sorted(scored, key=lambda trial: (self.order(trial), trial.number))

    def order(self, trial: TrialSummary) -> tuple[bool, int, float]:
        """What trials are ranked by: less is better, equal trials are equal."""
        is_stopped = trial.state == TrialState.STOPPED
        return is_stopped, -(trial.steps or 0) if is_stopped else 0, self._loss(trial.score)

    def winner(self) -> TrialSummary | None:
        """The best settings: by the mean of the repeated seeds, or by the search where none is repeated yet.

        Only settings with as many repeated seeds as any are compared. Between equal means the better lower bound, one
        standard error below the mean, decides; then the shorter training.
        """
        repeated = {trial.number: trial.repeated for trial in self.trials if trial.repeated is not None}
        if not repeated:
            ranked = self.ranked()
            return ranked[0] if ranked and ranked[0].state == TrialState.FINISHED else None
        most = max(spread.count for spread in repeated.values())
        whole = [trial for trial in self.trials if trial.number in repeated and repeated[trial.number].count == most]
        return min(whole, key=lambda trial: self._order_of_repeats(trial, repeated[trial.number]))

    def with_repeats(self) -> list[TrialSummary]:
        """The trials whose settings were repeated, best by the mean of their seeds first."""
        repeated = [(trial, spread) for trial in self.trials if (spread := trial.repeated) is not None]
        return [trial for trial, spread in sorted(repeated, key=lambda pair: self._order_of_repeats(*pair))]

    def failed(self) -> list[TrialSummary]:
        """The trials that failed."""
        return [trial for trial in self.trials if trial.state == TrialState.FAILED]

    def count(self, state: TrialState) -> int:
        """How many trials stand so."""
        return sum(trial.state == state for trial in self.trials)

    def pareto_front(self) -> list[TrialSummary]:
        """The finished trials that no other beats in both score and time, cheapest first."""
        finished = [trial for trial in self.trials if trial.state == TrialState.FINISHED]
        priced = [trial for trial in finished if trial.score is not None and trial.seconds is not None]
        front: list[TrialSummary] = []
        for trial in sorted(priced, key=lambda trial: (trial.seconds, self._loss(trial.score))):
            if not front or self._loss(trial.score) < self._loss(front[-1].score):
                front.append(trial)
        return front

    def _loss(self, score: float | None) -> float:
        """A score as a number of which less is better."""
        return math.inf if score is None else -score if self.higher_is_better else score

    def _order_of_repeats(self, trial: TrialSummary, spread: Spread) -> tuple[float, float, float, int]:
        mean = float(f"{self._loss(spread.mean):.9g}")  # sums of the same numbers in another order are a tie
        return mean, spread.error, trial.seconds or math.inf, trial.number
