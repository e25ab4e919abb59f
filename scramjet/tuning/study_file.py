"""study.toml: what a study is about, frozen when it begins; only its table [budget] may change later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from scramjet.errors import ConfigError, did_you_mean, shortened
from scramjet.runtime.strict_json import MAX_DEPTH, is_deeper_than
from scramjet.runtime.trust import Approval
from scramjet.settings import NONE_WORDS
from scramjet.training.config import files as config_files
from scramjet.training.config.reading import read_file
from scramjet.training.config.run_config import MAX_THREADS, RunConfig
from scramjet.training.worlds.trust import Caller
from scramjet.tuning.settings import StudySettings

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
