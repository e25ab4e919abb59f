"""What a study has found: its trials as plain records, the best of them, and the front of score against cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scramjet.tuning.storage import ASSIGNMENT, REASON, RUN, SECONDS
from scramjet.tuning.study import Study

TrialState = Literal["complete", "running", "paused", "pruned", "failed"]
_STATES: dict[str, TrialState] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial of a study."""

    number: int
    state: TrialState
    settings: Mapping[str, Any]
    """The values of the settings that vary, as a config takes them."""
    score: float | None
    """The objective; of a trial that was not finished the score at its last rung, or None."""
    cost: float | None
    """Its cost, where the method seeks a front."""
    steps: int
    """Env steps of its run."""
    seconds: float
    """Seconds of training of its run."""
    run_path: Path | None
    """Its run's folder; None for one that never began."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, repr=False)
class TuneResult:
    """A study that has ended, or was stopped."""

    study_path: Path
    trials: list[TrialResult]
    best: TrialResult | None
    """The finished trial with the best score in the search; None if none has finished."""
    winner: TrialResult | None
    """The trial whose settings have the best mean over fresh seeds; `best` where no seeds were repeated."""
    front: list[TrialResult]
    """Finished trials that no other beats in both score and cost, cheapest first; without costs the best alone."""
    exit_code: int = 0
    """130 after Ctrl-C; else 0."""

    def __repr__(self) -> str:
        winner = "none" if self.winner is None else f"trial {self.winner.number} with {self.winner.score:g}"
        return f"TuneResult({str(self.study_path)!r}, {len(self.trials)} trials, winner: {winner})"


def trial_results(study: Study) -> list[TrialResult]:
    """The trials of a study, by number."""
    return [_result(study, trial) for trial in study.trials()]


def ranked(trials: list[TrialResult], *, minimizes: bool) -> list[TrialResult]:
    """The finished trials, the best first; of equal ones the cheaper, then the older."""
    sign = 1 if minimizes else -1
    finished = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    return sorted(finished, key=lambda trial: (sign * (trial.score or 0.0), trial.cost or 0.0, trial.number))


def front_of(trials: list[TrialResult], *, minimizes: bool) -> list[TrialResult]:
    """The finished trials that no other beats in both score and cost, cheapest first."""
    front: list[TrialResult] = []
    lowest = math.inf
    for trial in ranked(trials, minimizes=minimizes):
        cost = 0.0 if trial.cost is None else trial.cost
        if cost < lowest:
            front.append(trial)
            lowest = cost
    return front[::-1]


def result_of(study: Study, exit_code: int = 0, winner: int | None = None) -> TuneResult:
    """What a study has found so far; `winner` is the number of the trial whose settings are best over fresh seeds."""
    trials, minimizes = trial_results(study), study.objective.minimizes
    best = next(iter(ranked(trials, minimizes=minimizes)), None)
    chosen = best if winner is None else trials[winner]
    return TuneResult(study.path, trials, best, chosen, front_of(trials, minimizes=minimizes), exit_code)


def _result(study: Study, trial: Any) -> TrialResult:
    attributes, values = trial.user_attrs, trial.values or []
    is_idle = attributes.get(ASSIGNMENT) is None and bool(trial.intermediate_values)
    state = _STATES.get(trial.state.name, "paused" if is_idle else "running")
    rungs = trial.intermediate_values
    score = values[0] if values else rungs[max(rungs)] if rungs else None
    run, seconds = attributes.get(RUN), attributes.get(SECONDS, 0.0)
    return TrialResult(
        number=trial.number,
        state=state,
        settings=study.space.settings(trial.params),
        score=score,
        cost=values[1] if len(values) > 1 else None,
        steps=study.steps_of(trial),
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        run_path=study.runs_path / run if isinstance(run, str) else None,
        reason=str(attributes.get(REASON, "")),
    )
