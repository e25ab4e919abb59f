"""What a study has found: its trials as plain records, the best of them, and what fresh seeds say of those.

`result_of` tells of a study that this process holds; `read_results` reads one from its folder, running, killed or
finished, and without its lock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from scramjet.algorithms.intervals import student_95
from scramjet.errors import RunError
from scramjet.reports.aggregate import FEWEST_DEGREES
from scramjet.reports.run_files import world_label
from scramjet.runtime.files import is_folder
from scramjet.runtime.locks import FolderLock
from scramjet.runtime.trust import Approval
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.methods.generations import found_settings
from scramjet.tuning.objective import TRAINING_RETURN, Objective
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import parse_dimension, settings_of
from scramjet.tuning.storage import (
    ASSIGNMENT,
    REASON,
    REPEAT,
    RUN,
    SCORE,
    SECONDS,
    SEED,
    STEPS,
    TRIAL,
    StoredStudy,
    open_storage,
    reading,
)
from scramjet.tuning.study import Study, StudyFile

TrialState = Literal["complete", "running", "paused", "pruned", "failed"]
_STATES: dict[str, TrialState] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
_OBJECTIVES = {
    "final": "mean return of the final evaluation",
    "area": "mean training return over all steps",
    "time_to": "seconds until a training return of",
    "steps_to": "env steps until a training return of",
    "rating": "rating by matches of the members",
}


# --- trials


@dataclass(frozen=True, slots=True)
class Repeat:
    """The settings of a trial trained again with another seed."""

    run: str
    """The name of its run's folder."""
    seed: int
    score: float | None
    """None where it failed."""
    reason: str = ""
    """Why it failed."""


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
        """The ± of the mean: half the width of its 95 % interval by Student's t; NaN below three seeds."""
        return student_95(self.count - 1) * self.error if self.count > FEWEST_DEGREES else math.nan

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(self.count)


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
    repeats: tuple[Repeat, ...] = ()
    """What came of its settings with fresh seeds."""

    @property
    def repeated(self) -> Spread | None:
        """The scores of the repeated seeds, None where there is none yet."""
        scores = [repeat.score for repeat in self.repeats if repeat.score is not None]
        return Spread.of(scores) if scores else None


def trial_results(study: Study) -> list[TrialResult]:
    """The trials of a study, by number, without the seeds that were repeated."""
    return [_result(trial, study.runs_path, ()) for trial in study.trials()]


def ranked(trials: Sequence[TrialResult], *, minimizes: bool) -> list[TrialResult]:
    """The finished trials, the best first; of equal ones the cheaper, then the older."""
    sign = 1 if minimizes else -1
    finished = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    return sorted(finished, key=lambda trial: (sign * (trial.score or 0.0), trial.cost or 0.0, trial.number))


def front_of(trials: Sequence[TrialResult], *, minimizes: bool) -> list[TrialResult]:
    """The finished trials that no other beats in both score and cost, cheapest first."""
    front: list[TrialResult] = []
    lowest = math.inf
    for trial in ranked(trials, minimizes=minimizes):
        cost = 0.0 if trial.cost is None else trial.cost
        if cost < lowest:
            front.append(trial)
            lowest = cost
    return front[::-1]


def _result(trial: Any, runs_path: Path, repeats: Sequence[Repeat]) -> TrialResult:
    attributes, values = trial.user_attrs, trial.values or []
    is_idle = attributes.get(ASSIGNMENT) is None and bool(trial.intermediate_values)
    rungs, run = trial.intermediate_values, attributes.get(RUN)
    score = values[0] if values else rungs[max(rungs)] if rungs else None
    return TrialResult(
        number=trial.number,
        state=_STATES.get(trial.state.name, "paused" if is_idle else "running"),
        settings=settings_of(trial.params),
        score=None if score is None or math.isnan(score) else score,
        cost=values[1] if len(values) > 1 else None,
        steps=attributes.get(STEPS, 0),
        seconds=float(attributes.get(SECONDS, 0.0)),
        run_path=None if run is None else runs_path / run,
        reason=str(attributes.get(REASON, "")),
        repeats=tuple(repeats),
    )


def _repeats(kept: Mapping[str, Any]) -> dict[int, list[Repeat]]:
    """The repeated seeds by the number of their trial."""
    found: dict[int, list[Repeat]] = {}
    for name, result in sorted(kept.items()):
        if name.startswith(REPEAT):
            score = result.get(SCORE)
            score = None if score is None or math.isnan(score) else float(score)
            repeat = Repeat(name.removeprefix(REPEAT), result[SEED], score, result.get(REASON, ""))
            found.setdefault(result[TRIAL], []).append(repeat)
    return found


# --- what `scramjet.tune` returns


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


def result_of(study: Study, exit_code: int = 0, winner: int | None = None) -> TuneResult:
    """What a study has found so far; `winner` is the number of the trial whose settings are best over fresh seeds."""
    repeats, minimizes = _repeats(study.kept()), study.objective.minimizes
    trials = [_result(trial, study.runs_path, repeats.get(trial.number, ())) for trial in study.trials()]
    best = next(iter(ranked(trials, minimizes=minimizes)), None)
    chosen = best if winner is None else trials[winner]
    return TuneResult(study.path, trials, best, chosen, front_of(trials, minimizes=minimizes), exit_code)


# --- what a report tells


@dataclass(frozen=True, slots=True)
class StudyResults:
    """All that a report shows of a study."""

    name: str
    world: str
    objective: str
    """The score in words."""
    metric: str
    """The key of metrics.jsonl that its learning curves are drawn of."""
    settings: tuple[str, ...]
    """The settings that the study varies."""
    trials: tuple[TrialResult, ...]
    minimizes: bool = False
    method: str = ""
    stored: tuple[Any, ...] = ()
    """The trials as Optuna has them, for its plots."""
    notes: tuple[str, ...] = ()
    """What could not be read, in words."""

    def ranked(self) -> list[TrialResult]:
        """The trials that have a score, best first.

        Pruned trials come after those that are complete: the farther they came the better. Repeated seeds do not
        change this order, in which the search saw the trials.
        """
        pruned = [trial for trial in self.trials if trial.state == "pruned" and trial.score is not None]
        farthest = sorted(pruned, key=lambda trial: (-trial.steps, self._loss(trial.score), trial.number))
        return [*ranked(self.trials, minimizes=self.minimizes), *farthest]

    def winner(self) -> TrialResult | None:
        """The best settings: by the mean of the repeated seeds, or by the search where none is repeated yet.

        Only settings with as many repeated seeds as any are compared. Between equal means the better lower bound, one
        standard error below the mean, decides; then the shorter training.
        """
        repeated = self.with_repeats()
        most = max((trial.repeated.count for trial in repeated if trial.repeated), default=0)
        best = [trial for trial in repeated if trial.repeated and trial.repeated.count == most]
        return next(iter(best or ranked(self.trials, minimizes=self.minimizes)), None)

    def with_repeats(self) -> list[TrialResult]:
        """The trials whose settings were repeated, best by the mean of their seeds first."""
        repeated = [(trial, spread) for trial in self.trials if (spread := trial.repeated) is not None]
        return [trial for trial, spread in sorted(repeated, key=lambda pair: self._order_of_repeats(*pair))]

    def _loss(self, score: float | None) -> float:
        """A score as a number of which less is better."""
        return math.inf if score is None else score if self.minimizes else -score

    def _order_of_repeats(self, trial: TrialResult, spread: Spread) -> tuple[float, float, float, int]:
        mean = float(f"{self._loss(spread.mean):.9g}")  # sums of the same numbers in another order are a tie
        return mean, spread.error, trial.seconds or math.inf, trial.number


def read_results(folder: Path) -> StudyResults:
    """The results of the study in a folder; a RunError or ConfigError says why they cannot be read."""
    path = _checked(folder)
    file = StudyFile.read(path / "study.toml")
    objective = Objective.parse(file.settings, RunConfig())
    dimensions = [parse_dimension(name, written) for name, written in file.space.items()]
    database = path / "study.db"
    stored, storage = open_storage(database)
    with reading(database):
        trials, kept = stored.get_trials(deepcopy=False), stored.user_attrs
        checked = StoredStudy(database, file.settings.method, len(stored.directions), dimensions)
        storage.remove_session()
        storage.engine.dispose()
    checked.check_trials(trials)
    checked.check_kept(kept, len(trials))
    env, repeats = file.base.get("env"), _repeats(kept)
    found = [_result(trial, path / "runs", repeats.get(trial.number, ())) for trial in trials]
    if objective.kind in ("time_to", "steps_to"):  # what was pruned has a score of another kind
        found = [replace(trial, score=None) if trial.state == "pruned" else trial for trial in found]
    return StudyResults(
        name=path.name,
        world=world_label(str(env.get("name", "") if isinstance(env, Mapping) else env)),
        objective=objective_text(file.settings),
        metric=objective.metric if objective.kind == "metric" else TRAINING_RETURN,
        settings=tuple(dict.fromkeys(name for trial in trials for name in trial.params)),
        trials=tuple(found),
        minimizes=objective.minimizes,
        method=file.settings.method,
        stored=tuple(trials),
    )


def trial_config(folder: Path, trial: TrialResult, approval: Approval | None = None) -> RunConfig:
    """The config to train like a trial; a TrustError where its world is code that this user has not named.

    A member of a population has schedules in it, of the settings along its lineage.
    """
    path = _checked(folder)
    file = StudyFile.read(path / "study.toml")
    # The study is only read, and its lock, which a process that runs it holds, is not taken.
    with Study(path, file, *open_storage(path / "study.db"), FolderLock(path), approval) as study:
        if file.settings.method != "pbt":
            return study.space.config(study.base, study.parameters(trial.number))
        return study.space.config(study.base, found_settings(study, trial.number))


def objective_text(settings: StudySettings) -> str:
    """The objective of a study in words."""
    kind, _, rest = settings.objective.partition(":")
    words = f"last {rest}" if kind == "metric" else f"{_OBJECTIVES[kind]} {rest}".strip()
    return f"{words} (less is better)" if settings.minimize or kind in ("time_to", "steps_to") else words


def _checked(folder: Path) -> Path:
    path = folder.absolute()
    if not is_folder(path.resolve()) or not (path / "study.toml").exists():
        raise RunError(f"there is no study at {folder}: it has no study.toml; name a folder that `scramjet tune` made")
    return path.resolve()
