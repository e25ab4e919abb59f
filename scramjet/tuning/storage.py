"""study.db, Optuna's storage in SQLite: what a study keeps in it, and the checks of all of it before any of it is used.

A study's folder may come from a stranger, and what its study.db says decides which folders are made, emptied and
trained in. So the file is opened only if it is a plain database, and nothing in it is taken as it stands: a name must
be one that the study itself would give, a number must be in range, and settings must lie in the study's space.
`check_trials` and `check_kept` see everything; what they let through is used without another look.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from scramjet.errors import RunError, shortened
from scramjet.runtime.files import open_regular, require_size, why_unreadable
from scramjet.training.config.run_config import MAX_SEED
from scramjet.tuning.settings import MAX_SEEDS, MAX_TRIALS
from scramjet.tuning.space import Dimension, Value, optuna_module

# --- what is run for a trial, and how it ended


Ending = Literal["finished", "paused", "failed", "stopped"]
"""finished: at its total_timesteps; paused: at its stop_step, before that; failed: for a reason of its own; stopped: by
the study, to be resumed."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One stretch of a trial's run: from where the run stands, or from its start, to `stop_step` or its end."""

    trial: int
    """The number of the trial in study.db."""
    run_name: str
    """The run's folder in the study's runs/: trial-0007."""
    parameters: Mapping[str, Value]
    """The values of the settings that vary, as Optuna keeps them."""
    stop_step: int | None = None
    """The run pauses with a checkpoint at the first update that reaches this step; None: it trains to its end."""
    fork: str | None = None
    """A new run begins from this checkpoint, a path as seen from the study's folder; None: from new weights."""
    seed: int | None = None
    """The run's seed, where it is not that of the study's base."""

    def as_dict(self) -> dict[str, Any]:
        """The assignment as JSON, for study.db; `StoredStudy.assignment` reads it back."""
        data = asdict(self)
        seed = data.pop("seed")
        return {**data, "parameters": dict(self.parameters), "changes": {} if seed is None else {"seed": seed}}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a stretch of a run ended."""

    assignment: Assignment
    ending: Ending
    step: int = 0
    """Env steps of the run so far."""
    seconds: float = 0.0
    """Seconds of training of the run so far."""
    reason: str = ""
    """Why it failed."""


def run_name(trial: int) -> str:
    """The name of a trial's run."""
    return f"trial-{trial:04}"


# --- what study.db says beside settings and scores, and its check


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


# --- the file

NAME = "scramjet"
"""The name of the one study in a study.db."""
_MAGIC = b"SQLite format 3\0"
_VERSIONS, _ROLLBACK_JOURNAL = slice(18, 20), b"\x01\x01"  # how the file is written: Optuna's has no write-ahead log
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # the end of a journal that names a file, which SQLite then deletes
_ACTIVE = re.compile(r"\b(view|trigger|virtual|generated|as|check|collate|where)\b|default\s*\(|--|/\*", re.IGNORECASE)
"""Words in the definition of what computes when it is read or written; Optuna's tables have none of them."""
_PLAIN_CHECK = re.compile(r"\bcheck\s*\(\s*\w+\s*(=\s*\d+|in\s*\([\w\s',]*\))\s*\)", re.IGNORECASE)
"""A column held against a number or a list of words, as Optuna's tables have it."""
_PLAIN_INDEX = re.compile(r"create (unique )?index \w+ on \w+ \([\w\s,\"]*\)", re.IGNORECASE)
_MAX_BYTES, _MAX_ROWS = 1 << 28, 1_000_000
"""Of the file, and in one of its tables other than the trials; Optuna loads everything at once."""
_PATIENCE_SECONDS = 60


def create_storage(path: Path, directions: list[str], attributes: Mapping[str, Any]) -> None:
    """Make a study.db with an empty study in it, which has these attributes."""
    optuna = optuna_module()
    with explained(path):
        storage = _storage(path)
        study = optuna.create_study(storage=storage, study_name=NAME, directions=directions)
        for name, value in attributes.items():
            study.set_user_attr(name, value)
        storage.remove_session()
        storage.engine.dispose()


def open_storage(path: Path) -> tuple[Any, Any]:
    """Optuna's study in an existing study.db, and its storage; a RunError says what is there instead."""
    try:
        descriptor = open_regular(path, os.O_RDWR)
        with open(descriptor, "rb") as file:
            require_size(os.fstat(file.fileno()).st_size, _MAX_BYTES)
            beginning = file.read(_VERSIONS.stop)
    except OSError as error:
        raise RunError(f"{path} {why_unreadable(error)}; put back a copy of it, or begin a new study") from error
    if not beginning.startswith(_MAGIC):
        raise _damaged(path, "it is no SQLite file")
    if beginning[_VERSIONS] != _ROLLBACK_JOURNAL:
        raise _damaged(path, "it is written with a write-ahead log, as Optuna's are not")
    _check_beside(path)
    optuna = optuna_module()
    with reading(path):
        _check_tables(path)
        storage = _storage(path)
        return optuna.load_study(study_name=NAME, storage=storage), storage


def _check_beside(path: Path) -> None:
    """Refuse files beside the database that would have SQLite write or delete elsewhere when it opens it."""
    for ending in ("-wal", "-shm"):
        if os.path.lexists(f"{path}{ending}"):
            raise _damaged(path, f"{path.name}{ending} beside it is none of ours")
    journal = Path(f"{path}-journal")
    if not os.path.lexists(journal):
        return
    try:
        with open(open_regular(journal, os.O_RDWR), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_NAMES_ANOTHER)))
            end = file.read()
    except OSError as error:
        raise RunError(f"{journal} {why_unreadable(error)}; put back a copy of the study") from error
    if end == _NAMES_ANOTHER:
        raise _damaged(path, f"{journal.name} names another file, which SQLite would delete")


def _check_tables(path: Path) -> None:
    """Refuse a database that is no set of plain tables, which compute nothing, or has more rows than ours can have."""
    with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE_SECONDS)) as connection:
        for kind, name, definition in connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
            if not _is_plain(kind, definition or ""):
                raise _damaged(path, f"{kind} {name} in it is none of Optuna's".replace("\0", ""))
            if kind != "table":
                continue
            quoted = name.replace('"', '""')
            rows = connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0]
            if rows > (MAX_TRIALS if name == "trials" else _MAX_ROWS):
                raise _damaged(path, f"table {name} has {rows:,} rows, more than a study can have".replace("\0", ""))


def _is_plain(kind: str, definition: str) -> bool:
    """Whether SQLite computes nothing for a part of the database: no view, trigger, expression or check of its own."""
    if kind == "index":
        return not definition or _PLAIN_INDEX.fullmatch(definition) is not None
    return kind == "table" and not _ACTIVE.search(_PLAIN_CHECK.sub("", definition))


def _storage(path: Path) -> Any:
    """Optuna's storage over the file at `path`, whatever characters are in it."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_PATIENCE_SECONDS, check_same_thread=False)

    storages = optuna_module().storages
    return storages.RDBStorage("sqlite:///study.db", engine_kwargs={"creator": connect})


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error raised inside into a RunError: for calls of Optuna's that do nothing but read study.db."""
    try:
        with explained(path):
            yield
    except RunError:
        raise
    except Exception as error:  # whatever Optuna makes of rows that it has not written
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the database raised inside into a RunError that names study.db and the fix."""
    try:
        yield
    except RunError:
        raise
    except KeyError as error:  # the study is not in it
        raise _damaged(path, f"there is no study '{NAME}' in it") from error
    except (sqlite3.Error, OSError) as error:
        raise _damaged(path, str(error)) from error
    except Exception as error:
        is_of_database = type(error).__module__.partition(".")[0] in ("sqlalchemy", "alembic", "optuna")
        if not is_of_database:
            raise
        raise _damaged(path, _reason(error)) from error


def _reason(error: BaseException) -> str:
    """What SQLite said, which Optuna and SQLAlchemy put behind errors of their own; else the error's first line."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, sqlite3.Error):
        cause = cause.__cause__ or cause.__context__
    said = str(cause or error)
    return said.splitlines()[0] if said else type(error).__name__


def _damaged(path: Path, reason: str) -> RunError:
    if "disk is full" in reason:
        return RunError(f"{path} cannot be written: the disk is full; free some space and run the command again")
    return RunError(
        f"{path} is damaged or cannot be written ({reason[:200]}); put back a copy of it, or begin a new study: the "
        f"runs beside it are whole"
    )
