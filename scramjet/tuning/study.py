"""A study's folder: study.toml (frozen), study.db (the truth about trials), trials/ (their configs) and runs/.

A folder appears whole or not at all, and one process at a time writes to it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import tomli_w

from scramjet.errors import ConfigError, RunError, did_you_mean, shortened
from scramjet.runs import world_files
from scramjet.runs.world_trust import Caller, remember_players
from scramjet.runtime.files import (
    MAX_DEPTH,
    explain_disk_errors,
    is_deeper_than,
    is_folder,
    make_folder,
    remove_tree,
    temporary_path,
    write_atomic,
)
from scramjet.runtime.locks import FolderLock
from scramjet.runtime.trust import Approval, digest_of
from scramjet.settings import NONE_WORDS
from scramjet.training.config import files as config_files
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import MAX_THREADS, RunConfig
from scramjet.tuning.objective import Objective
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import Space, Value, optuna_module
from scramjet.tuning.storage import (
    ASSIGNMENT,
    DIGEST,
    REASON,
    RUN,
    SECONDS,
    SPENT_SECONDS,
    STEPS,
    Assignment,
    Outcome,
    StoredStudy,
    create_storage,
    explained,
    open_storage,
    reading,
)

# --- study.toml: what a study is about, frozen when it begins; only its table [budget] may change later


VERSION = 1
BUDGET = ("trials", "steps", "hours", "parallel", "best", "seeds")
"""The settings that may change when a study is resumed: they change no trial."""
_TABLES = ("settings", "budget", "space", "base")


@dataclass(frozen=True, slots=True)
class StudyFile:
    """The content of study.toml."""

    settings: StudySettings
    threads: int
    """Threads of each trial; frozen, because numbers depend on it."""
    space: Mapping[str, Any]
    base: Mapping[str, Any]
    """The config that the trials share, as a config file has it."""

    def to_toml(self) -> str:
        """The file's text."""
        settings = asdict(self.settings)
        budget = {name: settings.pop(name) for name in BUDGET}
        tables = {"settings": settings, "budget": budget, "space": dict(self.space), "base": dict(self.base)}
        return tomli_w.dumps({"study_version": VERSION, "threads": self.threads, **_written(tables)})

    def digest(self) -> str:
        """A hash of all but the budget, by which a change is noticed."""
        settings = {key: value for key, value in asdict(self.settings).items() if key not in BUDGET}
        frozen = [self.threads, settings, dict(self.space), _written(dict(self.base))]
        return hashlib.sha256(json.dumps(frozen, sort_keys=True, default=str).encode()).hexdigest()

    def with_budget(self, changes: Mapping[str, Any]) -> StudyFile:
        """The file with another budget."""
        return replace(self, settings=replace(self.settings, **changes))

    def base_config(self, folder: Path, approval: Approval | None) -> RunConfig:
        """The config that the trials share; a TrustError where it names code that this user has not allowed."""
        caller = Caller(approval, run=folder)
        return config_files.apply(RunConfig(), self.base, str(folder / "study.toml"), caller)

    @classmethod
    def read(cls, path: Path) -> StudyFile:
        """Read a study.toml; a ConfigError says what is wrong with it."""
        data = read_file(path, follow_links=False)
        if is_deeper_than(data, MAX_DEPTH):
            raise ConfigError(f"{path} is nested too deep; a study has tables of values")
        version, threads = data.get("study_version"), data.get("threads")
        if version != VERSION:
            raise ConfigError(f"{path} has study_version {shortened(version)}; this scramjet reads {VERSION}")
        if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
            raise ConfigError(f"{path}: threads is {shortened(threads)}; put back the number that it was")
        tables = {name: data.get(name) for name in _TABLES}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise ConfigError(f"{path} has no table [{name}]; put back the file as `scramjet tune` wrote it")
        given = _read({**tables["settings"], **tables["budget"]})  # type: ignore[dict-item]
        known = [field.name for field in fields(StudySettings)]
        for key in given:
            if key not in known:
                raise ConfigError(f"{path}: unknown key {shortened(key)}.{did_you_mean(str(key), known)}")
        return cls(StudySettings(**given), threads, tables["space"] or {}, tables["base"] or {})


def _written(value: Any) -> Any:
    """TOML has no null: write "none", as configs do."""
    if isinstance(value, dict):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return "none" if value is None else value


def _read(table: dict[str, Any]) -> dict[str, Any]:
    return {key: None if value in NONE_WORDS else value for key, value in table.items()}


# --- the folder

_LONGEST_REASON = 2000
_FOLDERS = ("runs", "trials", "matches", "ray", "report")


class Study:
    """A study that is locked by this process. Make it with `Study.create` or `Study.open`; close it, or use `with`."""

    def __init__(
        self,
        path: Path,
        file: StudyFile,
        trials: Any,
        storage: Any,
        lock: FolderLock,
        approval: Approval | None = None,
    ) -> None:
        """`file` is study.toml, `trials` Optuna's study, `storage` Optuna's storage of it. `approval` is of all that
        the study names; without it a TrustError tells of code that the user has not named."""
        base = file.base_config(path, approval)
        self.path, self.settings, self.base, self.threads = path, file.settings, base, file.threads
        self.approval = approval
        self.space = Space(file.space, base, Caller(approval, run=path), str(path / "study.toml"))
        self._stored = StoredStudy(
            path / "study.db", file.settings.method, len(trials.directions), self.space.dimensions
        )
        self.objective = Objective.parse(file.settings, base)
        self.optuna_study, self._storage, self._lock = trials, storage, lock
        self._ids: list[int] = []  # of trials in study.db, by number
        found = self.trials()
        self._stored.check_trials(found)
        self._stored.check_kept(self.kept(), len(found))

    @classmethod
    def create(
        cls,
        folder: Path,
        settings: StudySettings,
        base: RunConfig,
        space: Mapping[str, Any],
        *,
        has_costs: bool = False,
        threads: int = 1,
    ) -> Study:
        """Make the folder of a new study. `has_costs`: a trial has a cost beside its score; `threads`: of each trial.

        A RunError if the folder exists, a ConfigError for settings, a space or an objective that cannot be.
        """
        checked, objective = Space(space, base), Objective.parse(settings, base)
        if os.path.lexists(folder):
            raise RunError(f"study {folder} exists; go on with it: --resume {folder}, or choose another --study-name")
        with explain_disk_errors(folder):
            make_folder(folder.parent)
        unfinished = temporary_path(folder.parent)
        try:
            with explain_disk_errors(unfinished):
                unfinished.mkdir()
                (unfinished / "runs").mkdir()
                (unfinished / "trials").mkdir()
            data = config_files.to_dict(base, unfinished)
            file = StudyFile(settings, threads, checked.as_table(), data)
            write_atomic(unfinished / "study.toml", file.to_toml().encode())
            directions = ["minimize" if objective.minimizes else "maximize", *(["minimize"] if has_costs else [])]
            create_storage(unfinished / "study.db", directions, {DIGEST: file.digest()})
            with explain_disk_errors(folder):
                os.rename(unfinished, folder)
        except BaseException:
            remove_tree(unfinished, folder.parent)
            raise
        checked.remember(base)
        world_files.remember_trained(base.env, base.env_parameters, world_files.copied_sources(base.env))
        remember_players(base.self_play.opponents)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path, approval: Approval | None = None) -> Study:
        """Open the study in a folder and lock it; a RunError or ConfigError says why it cannot be used.

        `approval` lets it name a world in a file or module that this user has not named before.
        """
        if not os.path.isdir(folder) or not os.path.lexists(folder / "study.toml"):
            raise RunError(
                f"there is no study at {folder}: it has no study.toml; name a folder that `scramjet tune` made"
            )
        path = Path(os.path.abspath(folder))
        for name in _FOLDERS:
            if os.path.lexists(path / name) and not is_folder(path / name):
                raise RunError(f"{path / name} is no folder; put back the study as `scramjet tune` made it")
        lock = FolderLock(path)
        lock.acquire(f"study {folder}")
        try:
            file = StudyFile.read(path / "study.toml")
            trials, storage = open_storage(path / "study.db")
            with reading(path / "study.db"):
                attributes = trials.user_attrs
            if attributes.get(DIGEST) != file.digest():
                raise ConfigError(
                    f"{folder / 'study.toml'} was changed since the study began: only its [budget] may change; "
                    f"put it back, or begin a new study"
                )
            return cls(path, file, trials, storage, lock, approval)
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> Study:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes use the study."""
        with explained(self._db):
            self._storage.remove_session()
            self._storage.engine.dispose()
        self._lock.release()

    @property
    def _db(self) -> Path:
        return self.path / "study.db"

    @property
    def runs_path(self) -> Path:
        """The folder of the trials' runs."""
        return self.path / "runs"

    # Trials, as study.db has them.

    def trials(self) -> list[Any]:
        """All trials, as Optuna's FrozenTrial, by number."""
        with reading(self._db):
            trials: list[Any] = self.optuna_study.get_trials(deepcopy=False)
        return trials

    def parameters(self, trial: int) -> dict[str, Value]:
        """The values of a trial's settings, as Optuna keeps them."""
        return dict(self.trials()[trial].params)

    def propose(self, sampler: Any) -> int:
        """Add a trial with the settings that a sampler of Optuna's proposes, in one transaction; returns its number.

        The sampler sees all trials, also those that run. It must be fresh, with a seed that follows from the study's
        and the trial's number: then a study that was killed proposes the same as one that was not.
        """
        optuna = optuna_module()
        distributions = self.space.distributions()
        with explained(self._db):
            seen = optuna.create_study(directions=self.optuna_study.directions, sampler=sampler)
            seen.add_trials(self.trials())
            asked = seen.ask(distributions)
            return self.add(asked.params)

    def add(self, parameters: Mapping[str, Value]) -> int:
        """Add a trial with settings of the caller's own; returns its number."""
        optuna = optuna_module()
        running = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=dict(parameters),
            distributions={name: each for name, each in self.space.distributions().items() if name in parameters},
        )
        with explained(self._db):
            self.optuna_study.add_trial(running)
            return len(self.trials()) - 1

    def begin(self, assignment: Assignment) -> None:
        """Note what is about to run, so that a study that is killed finds it again."""
        self.note(assignment.trial, ASSIGNMENT, assignment.as_dict())
        self.note(assignment.trial, RUN, assignment.run_name)

    def interrupted(self) -> list[Assignment]:
        """What ran when the study was stopped or killed, by trial."""
        trials = self.trials()
        found = [self._stored.assignment(trial, len(trials)) for trial in trials if is_running(trial)]
        return [each for each in found if each is not None]

    def unbegun(self) -> list[int]:
        """The trials whose settings were proposed, and that nothing was run for before the study was killed."""
        return [trial.number for trial in self.trials() if is_running(trial) and RUN not in trial.user_attrs]

    def note(self, trial: int, name: str, value: Any) -> None:
        """Keep an attribute of a running trial: anything that JSON can hold."""
        with explained(self._db):
            self._storage.set_trial_user_attr(self._id_of(trial), name, value)

    def pause(self, trial: int, outcome: Outcome, score: float | None) -> None:
        """Note that a trial has reached its stop_step and waits; `score` is kept as its value at that step."""
        self._note_cost(outcome)
        with explained(self._db):
            if score is not None and outcome.assignment.stop_step is not None:
                self._storage.set_trial_intermediate_value(self._id_of(trial), outcome.assignment.stop_step, score)
        self.note(trial, ASSIGNMENT, None)

    def complete(self, trial: int, values: Sequence[float], outcome: Outcome) -> None:
        """Note the values of a trial that has finished."""
        self._note_cost(outcome)
        self._tell(trial, "COMPLETE", values)

    def prune(self, trial: int) -> None:
        """Note that a paused trial does not go on."""
        self._tell(trial, "PRUNED")

    def fail(self, trial: int, reason: str, outcome: Outcome | None = None) -> None:
        """Note that a trial has failed, and why."""
        if outcome is not None:
            self._note_cost(outcome)
        self.note(trial, REASON, reason[:_LONGEST_REASON])
        self._tell(trial, "FAIL")

    def config_of(self, assignment: Assignment) -> RunConfig:
        """The config of an assignment's run; a ConfigError where its settings do not fit each other."""
        base = self.base if self.base.num_threads != "auto" else replace(self.base, num_threads=self.threads)
        base = base if assignment.seed is None else replace(base, seed=assignment.seed)
        return self.space.config(base, assignment.parameters)

    def write_config(self, run_name: str, config: RunConfig) -> tuple[Path, str]:
        """Write the config of a run into trials/, for its process and for people.

        Returns its path, and the digest by which the process knows that the study has approved these very bytes.
        """
        path = self.path / "trials" / f"{run_name}.toml"
        content = config_files.to_toml(config, path.parent).encode()
        write_atomic(path, content)
        return path, digest_of(content)

    # What all trials have used.

    def spent_steps(self) -> int:
        """Env steps of all stretches that have ended."""
        return sum(self.steps_of(trial) for trial in self.trials())

    @staticmethod
    def steps_of(trial: Any) -> int:
        """Env steps of the stretches of a trial that have ended."""
        steps: int = trial.user_attrs.get(STEPS, 0)
        return steps

    @property
    def spent_seconds(self) -> float:
        """Seconds that the study's processes have run, the present one as far as it has noted them."""
        with explained(self._db):
            return float(self.optuna_study.user_attrs.get(SPENT_SECONDS, 0.0))

    def note_seconds(self, seconds: float) -> None:
        """Keep how long the study has run."""
        with explained(self._db):
            self.optuna_study.set_user_attr(SPENT_SECONDS, seconds)

    def keep(self, name: str, value: Any) -> None:
        """Keep something about the study as a whole: anything that JSON can hold."""
        with explained(self._db):
            self.optuna_study.set_user_attr(name, value)

    def kept(self) -> dict[str, Any]:
        """All that was kept, by name."""
        with reading(self._db):
            found: dict[str, Any] = self.optuna_study.user_attrs
        return found

    def change_budget(self, changes: Mapping[str, Any]) -> None:
        """Go on with another budget, which study.toml keeps."""
        if changes:
            file = StudyFile.read(self.path / "study.toml").with_budget(changes)
            write_atomic(self.path / "study.toml", file.to_toml().encode())
            self.settings = file.settings

    def _id_of(self, trial: int) -> int:
        if trial >= len(self._ids):  # they are numbered in order
            self._ids = [each._trial_id for each in self.trials()]
        return self._ids[trial]

    def _note_cost(self, outcome: Outcome) -> None:
        self.note(outcome.assignment.trial, STEPS, outcome.step)
        self.note(outcome.assignment.trial, SECONDS, outcome.seconds)

    def _tell(self, trial: int, state: str, values: Sequence[float] | None = None) -> None:
        states = optuna_module().trial.TrialState
        with explained(self._db):
            self._storage.set_trial_state_values(self._id_of(trial), states[state], values)


def is_running(trial: Any) -> bool:
    """Whether a trial of Optuna's has no end yet: it runs, or waits to be resumed."""
    return bool(trial.state.name == "RUNNING")
