"""What study.db says beside settings and scores, and the check of all of it before any of it is used.

A study's folder may come from a stranger, and what its study.db says decides which folders are made, emptied and
trained in. So nothing of it is taken as it stands: a name must be one that the study itself would give, a number must
be in range, and settings must lie in the study's space. `check_trials` and `check_kept` see everything; what they let
through is used without another look.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.errors import RunError, shortened
from scramjet.training.config.run_config import MAX_SEED
from scramjet.tuning.assignments import Assignment, run_name
from scramjet.tuning.settings import MAX_SEEDS, MAX_TRIALS
from scramjet.tuning.space import Dimension

DIGEST, SPENT_SECONDS = "study_toml", "spent_seconds"
"""Attributes of the study: a hash of study.toml, and how long its processes have run."""
ASSIGNMENT, REASON, STEPS, SECONDS, RUN, REACHED = "assignment", "reason", "steps", "seconds", "run", "reached"
"""Attributes of a trial: what runs now, why it failed, its steps and seconds so far, its run's name, and the step at
which it waits to be rated by matches."""
REPEAT = "repeat "
"""Attributes of the study with a repeated seed's result are called so, and then by the name of its run."""
SCORE, SEED, TRIAL = "score", "seed", "trial"
"""Entries of a result, beside those that trials have too."""

MAX_STEPS = 10**15
MAX_SECONDS = 10**10
_MAX_REASON = 20_000
_STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")
_ASSIGNED = {"trial", "run_name", "parameters", "stop_step", "fork", "changes"}
_BORN = r"-g[1-9][0-9]{0,5}"
_FORK = re.compile(rf"runs/trial-(?P<trial>[0-9]{{4,6}})(?:{_BORN})?/checkpoints/step_[0-9]{{1,19}}")
_REPEATED = re.compile(r"trial-(?P<trial>[0-9]{4,6})-s(?P<seed>[1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """What is known of a study when its study.db is read."""

    path: Path
    """The database, for messages."""
    method: str
    num_values: int
    """Values that a finished trial has."""
    dimensions: Sequence[Dimension]
    """Those of its space."""

    def check_trials(self, trials: Sequence[Any]) -> None:
        """Refuse trials, in Optuna's records, that no study of ours has written; a RunError names what is wrong."""
        if len(trials) > MAX_TRIALS:
            raise RunError(f"{self.path} has {len(trials):,} trials, and a study has at most {MAX_TRIALS:,}")
        for number, trial in enumerate(trials):
            if trial.number != number:
                raise self._wrong("number", trial.number, number)
            self._check_trial(trial, len(trials))

    def assignment(self, trial: Any, num_trials: int) -> Assignment | None:
        """What a trial was doing when its study was stopped, None for nothing; a RunError where that cannot be."""
        data = trial.user_attrs.get(ASSIGNMENT)
        if data is None:
            return None
        if not isinstance(data, dict) or set(data) != _ASSIGNED:
            raise self._wrong(ASSIGNMENT, data, trial.number)
        seed = data["changes"].get("seed") if isinstance(data["changes"], dict) else None
        wrong = {
            "trial": type(data["trial"]) is not int or data["trial"] != trial.number,
            "run_name": not self._is_run_of(trial.number, data["run_name"]),
            "stop_step": data["stop_step"] is not None and not _is_count(data["stop_step"], MAX_STEPS),
            "fork": data["fork"] is not None and not self._is_fork(data["fork"], num_trials),
            "changes": data["changes"] not in ({}, {"seed": seed}) or not _is_count(seed or 0, MAX_SEED),
        }
        for name, is_wrong in wrong.items():
            if is_wrong:
                raise self._wrong(f"{ASSIGNMENT}.{name}", data[name], trial.number)
        return Assignment(
            trial.number, data["run_name"], dict(trial.params), data["stop_step"], data["fork"], seed
        )  # its settings are the trial's, whatever stands beside them

    def check_kept(self, kept: Mapping[str, Any], num_trials: int) -> None:
        """Refuse attributes of the study that no study of ours has kept."""
        spent = kept.get(SPENT_SECONDS, 0.0)
        if not _is_number(spent) or not 0 <= spent <= MAX_SECONDS:
            raise self._wrong(SPENT_SECONDS, spent)
        for name, result in kept.items():
            if name.startswith(REPEAT):
                self._check_repeat(name, result, num_trials)

    def _check_repeat(self, name: str, result: Any, num_trials: int) -> None:
        found = _REPEATED.fullmatch(name.removeprefix(REPEAT))
        if found is None or not isinstance(result, dict):
            raise self._wrong(name, result)
        trial, number = int(found["trial"]), int(found["seed"])
        score, reason = result.get(SCORE), result.get("reason", "")
        is_right = (
            found[0] == f"{run_name(trial)}-s{number}"
            and 2 <= number <= MAX_SEEDS + 1
            and trial < num_trials
            and result.get(TRIAL) == trial
            and _is_count(result.get(SEED), MAX_SEED)
            and (score is None or _is_number(score))
            and isinstance(reason, str)
            and len(reason) <= _MAX_REASON
            and _is_count(result.get(STEPS, 0), MAX_STEPS)
            and _is_duration(result.get(SECONDS, 0.0))
        )
        if not is_right:
            raise self._wrong(name, result)

    def _check_trial(self, trial: Any, num_trials: int) -> None:
        attributes = trial.user_attrs
        run, reason = attributes.get(RUN), attributes.get(REASON, "")
        wrong = {
            "state": trial.state.name not in _STATES,
            STEPS: not _is_count(attributes.get(STEPS, 0), MAX_STEPS),
            SECONDS: not _is_duration(attributes.get(SECONDS, 0.0)),
            REACHED: not _is_count(attributes.get(REACHED, 0), MAX_STEPS),
            REASON: not isinstance(reason, str) or len(reason) > _MAX_REASON,
            RUN: run is not None and not self._is_run_of(trial.number, run),
            "values": not self._are_values(trial),
        }
        for name, is_wrong in wrong.items():
            if is_wrong:
                raise self._wrong(name, attributes.get(name, getattr(trial, name, None)), trial.number)
        for step, value in trial.intermediate_values.items():
            if not _is_count(step, MAX_STEPS) or not _is_number(value):
                raise self._wrong("score", {step: value}, trial.number)
        for name, value in trial.params.items():
            if not self._is_setting(name, value, trial.distributions[name]):
                raise self._wrong(f"setting {shortened(name)}", value, trial.number)
        self.assignment(trial, num_trials)

    def _are_values(self, trial: Any) -> bool:
        values = trial.values
        if values is None:
            return bool(trial.state.name != "COMPLETE")
        return len(values) == self.num_values and all(map(_is_number, values))

    def _is_setting(self, name: Any, value: Any, distribution: Any) -> bool:
        """Whether a value lies in the dimension of the space that it is said to be drawn from."""
        dimension = next((each for each in self.dimensions if each.name == name), None)
        return dimension is not None and distribution == dimension.distribution() and _lies_in(dimension, value)

    def _is_run_of(self, trial: int, name: Any) -> bool:
        """Whether a study would give this name to the run of a trial; a population adds the generation of a fork."""
        if not isinstance(name, str) or self.method != "pbt":
            return bool(name == run_name(trial))
        return re.fullmatch(rf"{run_name(trial)}(?:{_BORN})?", name) is not None

    def _is_fork(self, path: Any, num_trials: int) -> bool:
        """Whether this is the checkpoint of a trial, as seen from the study's folder."""
        found = _FORK.fullmatch(path) if isinstance(path, str) and self.method == "pbt" else None
        return found is not None and int(found["trial"]) < num_trials

    def _wrong(self, name: str, value: Any, trial: int | None = None) -> RunError:
        of_trial = "" if trial is None else f" of trial {trial}"
        return RunError(f"{self.path} says of {name}{of_trial}: {shortened(value)}, which no study wrote; put back a "
                        f"copy of it, or begin a new study: the runs beside it are whole")  # fmt: skip


def _lies_in(dimension: Dimension, value: Any) -> bool:
    """Whether a value is one that a dimension offers."""
    if dimension.choices is not None:
        return any(type(each) is type(value) and each == value for each in dimension.choices)
    if not _is_number(value) or (dimension.is_int and type(value) is not int):
        return False
    return bool(dimension.low <= value <= dimension.high)


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold; scores may be infinite, or none at all (NaN)."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)


def _is_count(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_SECONDS
