"""What the routes of the page share: the folder of runs, checked paths into it, the trained agents of its checkpoints,
and how a page's messages are read."""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.exceptions import HTTPException

from scramjet.adapters.registry import library_of
from scramjet.adapters.world_code import code_of, hash_of_sources
from scramjet.envs.registry import is_registered, registrations, unknown_world
from scramjet.errors import (
    ENV_FAILURES,
    CheckpointError,
    ConfigError,
    RunError,
    ScramjetError,
    WorldError,
    shortened,
)
from scramjet.runs.metadata import DEFAULT_NETWORK
from scramjet.runs.world_files import find_world
from scramjet.runs.world_trust import Caller, CopiedWorld, approve, approve_copy, check_name
from scramjet.runtime.checkpoint_format import METADATA_FILE, read_record
from scramjet.runtime.checkpoints import Checkpoint, checkpoints_of
from scramjet.runtime.files import is_folder, read_link
from scramjet.runtime.runs import Run, check_run_name
from scramjet.training.config.run_config import RunConfig

if TYPE_CHECKING:
    from scramjet.policies.policy import Policy

THINKING = "scramjet-page"
"""How the names of the threads begin in which agents of the page think."""
LONGEST_MESSAGE = 10_000
BUG = "the server met an error of its own; its terminal shows it"

Deed = TypeVar("Deed")


@dataclass(frozen=True)
class PageContext:
    """The folder that the page shows, and what its user allowed."""

    runs_dir: Path
    trust: bool = False
    """Runs may name worlds in files and modules, which are run; see runs/world_trust.py."""

    @cached_property
    def agents(self) -> Agents:
        """The agents of this folder, for all pages together."""
        return Agents(self.runs_dir, trust=self.trust)

    def run_folder(self, name: str) -> Path:
        """The folder of the run `name`; answers 404 for a name that is none, or that leads out of the runs folder."""
        try:
            check_run_name(name)
        except RunError as error:
            raise HTTPException(404, str(error)) from error
        path = self.runs_dir / name
        if not is_folder(path) or not os.path.isfile(path / "config.toml"):  # is_folder follows no link
            raise HTTPException(404, f"there is no run '{name}' in {self.runs_dir}")
        return path


# --- messages of a page


def read_message(text: Any) -> dict[str, Any]:
    """The JSON object in a message; an empty one, which asks for nothing, where there is none."""
    try:
        message = json.loads(text) if isinstance(text, str) and len(text) <= LONGEST_MESSAGE else None
    except (ValueError, RecursionError):
        message = None
    return message if isinstance(message, dict) else {}


def deed_of(message: Any, deeds: Mapping[str, Deed]) -> Deed:
    """The deed that a message asks for by its "do"; a ConfigError names those that there are."""
    do = message.get("do") if isinstance(message, dict) else None
    if not isinstance(do, str) or do not in deeds:
        raise ConfigError(f'a message must be an object with "do", one of {", ".join(deeds)}, not {shortened(do)}')
    return deeds[do]


# --- trained agents

LATEST, BEST = "latest", "best"
MOST_AGENTS = 6
"""Loaded agents that are kept."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A checkpoint's policy, ready to play. Sessions share it: nobody changes it."""

    run: str
    """The run's name."""
    checkpoint_name: str
    """The checkpoint's folder, such as "step_00010000"."""
    policy: Policy
    config: RunConfig
    """The config it was trained with, whose world it plays."""
    checkpoint: Checkpoint
    reward_scale: float
    """What the policy's values are multiplied with to be returns."""
    note: str
    """What a person should know of its world, such as that its rules have changed; empty if there is nothing."""

    @property
    def name(self) -> str:
        """The run and the step, as people call it."""
        return f"{self.run} at {self.checkpoint.step:,}"


class Agents:
    """Loads agents from the folder of runs, and keeps those used last. Any thread may call it.

    `trust` lets checkpoints name worlds in files and modules that this user has not named: they are run.
    """

    def __init__(self, runs_dir: Path, *, trust: bool = False) -> None:
        self.runs_dir, self._trust = runs_dir.absolute(), trust  # an env may change the working directory
        self._lock = threading.Lock()
        self._loaded: OrderedDict[tuple[str, int], Agent] = OrderedDict()

    def load(self, run: str, checkpoint: str = LATEST) -> Agent:
        """The agent of a run's checkpoint: "latest", "best" or "step_00010000".

        Raises a ScramjetError for the person at the page: no such run or checkpoint, a damaged one, a world that is
        gone or not trusted, a network of the user's own.
        """
        path = checkpoint_path(self.runs_dir, run, checkpoint)
        with self._lock:
            key = str(path), _modified(path)
            agent = self._loaded.pop(key, None) or self._read(path, run)
            self._loaded[key] = agent
            while len(self._loaded) > MOST_AGENTS:
                self._loaded.popitem(last=False)
            return agent

    def _read(self, path: Path, run: str) -> Agent:
        from scramjet.arena.play.thoughts import reward_scale  # loads torch: not before somebody plays or watches
        from scramjet.training.playing import load_trained, note_on_played

        with _blamed_on_world(run):
            policy, config, checkpoint = load_trained(path, trust=self._trust)
            note = note_on_played(config, checkpoint)
        return Agent(run, path.name, policy, config, checkpoint, reward_scale(checkpoint), note)


def run_folder(runs_dir: Path, run: str) -> Path:
    """The folder of the run of this name; a RunError where there is none, or where it lies outside of `runs_dir`."""
    check_run_name(run)
    path = Run.open(runs_dir / run).path
    if not path.resolve().is_relative_to(runs_dir.resolve()):
        raise RunError(f"run {run!r} is a link that leads out of {runs_dir}/, and is not followed")
    return path


def checkpoint_names(runs_dir: Path, run: str) -> list[str]:
    """The folders of a run's checkpoints, whole or not, oldest first."""
    return [path.name for path in checkpoints_of(run_folder(runs_dir, run))]


def checkpoint_path(runs_dir: Path, run: str, checkpoint: str) -> Path:
    """The folder of a run's checkpoint: the newest ("latest"), the best, or that of a step ("step_00010000")."""
    names = checkpoint_names(runs_dir, run)
    folder = runs_dir / run / "checkpoints"
    if not names:
        raise CheckpointError(f"run {run!r} has no checkpoint yet; one appears while it trains, or when it stops")
    if checkpoint == LATEST:
        return folder / names[-1]
    if checkpoint == BEST:
        checkpoint = read_link(folder / BEST) or ""
        if checkpoint not in names:
            raise CheckpointError(f"run {run!r} has no best checkpoint: it was not evaluated; use {LATEST}")
    if checkpoint not in names:
        few = ", ".join(names[-5:])
        raise CheckpointError(
            f"run {run!r} has no checkpoint {shortened(checkpoint)}: give {LATEST}, {BEST}, or one of "
            f"its {len(names)}, the newest being {few}"
        )
    return folder / checkpoint


def why_not_played(run: Path, *, trust: bool = False) -> str:
    """Why the newest checkpoint of a run cannot be watched or played here; empty where it can, or there is none yet.

    Nothing is run or loaded for the answer: what only running the world's code would show is told when it is watched.
    """
    checkpoints = checkpoints_of(run)
    try:
        metadata = read_record(checkpoints[-1])["metadata"]
        network, table = metadata["network"], dict(metadata["config"]["env"])
        name = str(table.pop("name"))
    except (CheckpointError, LookupError, TypeError, ValueError):  # the list of checkpoints tells of damaged ones
        return ""
    try:
        if network != DEFAULT_NETWORK:
            raise CheckpointError(f"it has a network of its own, {shortened(network)}; load it from Python")
        _check_world_is_there(name, table, run, trust=trust)
    except ScramjetError as error:
        return str(error)
    return ""


def _check_world_is_there(name: str, parameters: Mapping[str, Any], run: Path, *, trust: bool) -> None:
    """Raise a ScramjetError for a world that is not here, or whose code this user has not approved."""
    check_name(name)
    library = library_of(name)
    if library is not None:
        try:
            version(library.package)
        except PackageNotFoundError:
            raise WorldError(f"{name} needs {library.package}, which is not installed here") from None
    place = find_world(name, run)
    source = f"run {run.name!r}"
    if place.copy is not None and not trust:
        parts = place.copy
        copied = CopiedWorld(place.name, parts.main, hash_of_sources(parts.sources))
        approve_copy(copied, parameters, source, Caller(run=run), written=name)
    elif place.copy is None:
        code = code_of(place.name)
        if not trust:
            approve(place.name, parameters, source, Caller(run=run), written=name)
        if library is None and code is None and not is_registered(name):
            raise unknown_world(name, [entry.name for entry in registrations()])
        if code is not None and code.is_file and not os.path.exists(code.place):
            raise WorldError(f"the file of its world, {code.place}, is not there, and the run has no copy of it")


def _modified(path: Path) -> int:
    """When a checkpoint was written, in nanoseconds; 0 where it is gone, which reading it will say."""
    try:
        return os.stat(path / METADATA_FILE).st_mtime_ns
    except OSError:
        return 0


@contextmanager
def _blamed_on_world(run: str) -> Iterator[None]:
    """Turn what a user's file raises while it loads into a WorldError that names the run."""
    try:
        yield
    except ScramjetError:
        raise
    except ENV_FAILURES as error:
        raise WorldError(f"the world of run {run!r} cannot be loaded: {type(error).__name__}: {error}") from error
