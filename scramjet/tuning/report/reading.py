"""Reads the results of a study from its folder: running, killed or finished, and without its lock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.reports.run_files import world_label
from scramjet.runtime.files import is_folder
from scramjet.runtime.locks import FolderLock
from scramjet.runtime.trust import Approval
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.methods.generations import found_settings
from scramjet.tuning.objective import TRAINING_RETURN, Objective
from scramjet.tuning.report.results import Repeat, Setting, StudyResults, TrialState, TrialSummary
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import parse_dimension
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

_STATES = {
    "COMPLETE": TrialState.FINISHED,
    "PRUNED": TrialState.STOPPED,
    "FAIL": TrialState.FAILED,
    "WAITING": TrialState.WAITING,
}
_OBJECTIVES = {
    "final": "mean return of the final evaluation",
    "area": "mean training return over all steps",
    "time_to": "seconds until a training return of",
    "steps_to": "env steps until a training return of",
    "rating": "rating by matches of the members",
}


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
    repeats = _repeats(kept)
    env = file.base.get("env")
    return StudyResults(
        name=path.name,
        world=world_label(str(env.get("name", "") if isinstance(env, Mapping) else env)),
        objective=objective_text(file.settings),
        metric=objective.metric if objective.kind == "metric" else TRAINING_RETURN,
        settings=_settings(trials),
        trials=tuple(_trial(each, objective, repeats.get(each.number, ())) for each in trials),
        higher_is_better=not objective.minimizes,
        method=file.settings.method,
    )


def trial_config(folder: Path, trial: TrialSummary, approval: Approval | None = None) -> RunConfig:
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


def _settings(trials: list[Any]) -> tuple[Setting, ...]:
    """The settings that vary, as the trials' distributions have them."""
    found: dict[str, Setting] = {}
    for name, distribution in (pair for trial in trials for pair in trial.distributions.items()):
        is_choice = hasattr(distribution, "choices")
        found.setdefault(name, Setting(name, "choice" if is_choice else "log" if distribution.log else "linear"))
    return tuple(found.values())


def _trial(trial: Any, objective: Objective, repeats: tuple[Repeat, ...]) -> TrialSummary:
    attributes = trial.user_attrs
    return TrialSummary(
        number=trial.number,
        settings=dict(trial.params),
        state=_state(trial),
        score=_score(trial, objective),
        seconds=_number(attributes.get(SECONDS)),
        steps=_whole(attributes.get(STEPS)),
        run=_text(attributes.get(RUN)),
        reason=_text(attributes.get(REASON)),
        repeats=repeats,
    )


def _state(trial: Any) -> TrialState:
    """A trial that waits at a rung, to be promoted or not, is waiting."""
    is_paused = trial.state.name == "RUNNING" and trial.intermediate_values and not trial.user_attrs.get(ASSIGNMENT)
    return TrialState.WAITING if is_paused else _STATES.get(trial.state.name, TrialState.RUNNING)


def _score(trial: Any, objective: Objective) -> float | None:
    """The score of a finished trial; of one that was stopped early its last, where that is of the same kind."""
    if trial.state.name == "COMPLETE":
        return None if trial.values is None or math.isnan(trial.values[0]) else float(trial.values[0])
    if trial.state.name != "PRUNED" or not trial.intermediate_values or objective.kind in ("time_to", "steps_to"):
        return None
    return _number(trial.intermediate_values[max(trial.intermediate_values)])


def _repeats(kept: Mapping[str, Any]) -> dict[int, tuple[Repeat, ...]]:
    """The repeated seeds by the number of their trial."""
    found: dict[int, list[Repeat]] = {}
    for name, result in sorted(kept.items()):
        if not name.startswith(REPEAT) or not isinstance(result, dict):
            continue
        trial, seed, score = _whole(result.get(TRIAL)), _whole(result.get(SEED)), result.get(SCORE)
        if trial is None or seed is None:
            continue
        score = float(score) if isinstance(score, int | float) and not math.isnan(score) else None
        cost = _number(result.get(SECONDS)), _whole(result.get(STEPS))
        found.setdefault(trial, []).append(
            Repeat(name.removeprefix(REPEAT), seed, score, *cost, _text(result.get(REASON)))
        )
    return {number: tuple(each) for number, each in found.items()}


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
