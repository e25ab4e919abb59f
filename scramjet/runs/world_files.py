"""Finds the source file of a run's world: the file that was trained, or the run's copy if that file is gone.

    RUN/config.toml     names the file as seen from RUN, so that both can move together
    RUN/world/          a copy of the file and of what it imports from beside it

The file is used if it is where it was. If it is gone, the copy is used, provided that its contents were the user's
before, or with `--trust`: it is read once, and what was read runs from a private folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scramjet.adapters.factories import is_given, must_be_given
from scramjet.adapters.objects import spelled
from scramjet.adapters.registry import ForeignWorld, canonical_name, is_foreign
from scramjet.adapters.world_code import file_in, hash_of_sources, needed_for, sources_of
from scramjet.engine.worlds.rules import rules_fingerprint
from scramjet.envs.api import Env
from scramjet.envs.registry import trains_when_run
from scramjet.runs.world_trust import Caller, CopiedWorld, approve, approve_copy, remember, remember_copy
from scramjet.runtime.files import portable_path
from scramjet.runtime.runs import (
    MAX_BYTES,
    MAX_FILES,
    Sources,
    fits,
    private_folder_with,
    read_copy,
    replace_copy,
)

COPY = "world"
"""The folder of a run that holds the copy."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A run's copy of a world's source, as it was read."""

    sources: Sources
    main: str  # the world's file among them
    first: str  # the path that it had where it was trained


@dataclass(frozen=True, slots=True)
class WorldPlace:
    """The place where a world that a file names was found."""

    name: str
    """The world's name with the full path of the file that runs."""
    written: str
    """The name as it is written in the file that names it."""
    copy: Copy | None = None
    """The copy to use if the file is not there; else None."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """The origin of a copy that runs from a private folder."""

    first: str  # the path of the file that was trained
    copy: str  # that of the copy


_ORIGINS: dict[str, _Origin] = {}
"""The origins of the copies that this process runs, by the path in the private folder."""
_PRIVATE: dict[tuple[str, str], str] = {}
"""The paths that copies run from, by path and contents of the copy: a copy that is read twice is one world."""


def find_world(name: str, run: Path | None, beside: Path | None = None) -> WorldPlace:
    """The world that a file of `run` names; of a config file `beside` is its folder, looked in after the current one.

    Nothing is run for it. Raises a RunError where a copy that is needed holds links or is too large.
    """
    parts = file_in(name)
    if parts is None or (run is None and beside is None):
        return WorldPlace(name, name)
    if run is None and (os.path.exists(parts.path) or is_given(name)):
        return WorldPlace(name, name)
    folder = os.path.realpath(run or beside or "")
    path = os.path.normpath(os.path.join(folder, parts.path))  # an absolute one stays
    copies = os.path.join(folder, COPY)
    is_copy = Path(path).is_relative_to(copies)
    there = WorldPlace(parts.at(path), name)
    if is_given(there.name) or (os.path.exists(path) and not is_copy):
        return there
    copy = read_copy(Path(copies))
    main = Path(path).relative_to(copies).as_posix() if is_copy else os.path.basename(path)
    if copy is not None and main in copy:
        return WorldPlace(parts.at(os.path.join(copies, main)), name, Copy(copy, main, path))
    return there if run is not None else WorldPlace(name, name)


def name_in(name: str, run: Path | None) -> str:
    """A world's name from a file of `run`, with the full path of the file that was trained."""
    parts = file_in(name)
    if parts is None or run is None:
        return name
    return parts.at(os.path.normpath(os.path.join(os.path.realpath(run), parts.path)))


def open_world(place: WorldPlace, parameters: Mapping[str, Any], source: str, caller: Caller) -> str:
    """The name by which a world loads, if `caller` lets the file `source` name it; else a TrustError says what would
    run."""
    if place.copy is None:
        approve(place.name, parameters, source, caller, written=place.written)
        return _as_factory(place.name, parameters, source, caller)
    fingerprint = hash_of_sources(place.copy.sources)
    copied = CopiedWorld(place.name, place.copy.main, fingerprint)
    approve_copy(copied, parameters, source, caller, written=place.written)
    parts = file_in(place.name)
    assert parts is not None
    private = _PRIVATE.get((parts.path, fingerprint))
    if private is None or not os.path.exists(private):
        private = _PRIVATE[parts.path, fingerprint] = str(private_folder_with(place.copy.sources) / place.copy.main)
        _ORIGINS[private] = _Origin(place.copy.first, parts.path)
    return parts.at(private)


def _as_factory(name: str, parameters: Mapping[str, Any], source: str, caller: Caller) -> str:
    """The name of a world that may load; of a file with a Gymnasium env, its class, which takes text only if known."""
    factory = spelled(name)
    if factory != name:
        remember(factory, is_named=False)
        approve(factory, parameters, source, replace(caller, env=None))
    return factory


def first_name(name: str) -> str:
    """A world's name in its one spelling; if a copy runs, with the path of the file that was trained."""
    parts = file_in(name)
    origin = None if parts is None else _ORIGINS.get(parts.path)
    return canonical_name(name) if parts is None or origin is None else parts.at(origin.first)


def is_same_world(name: str, other: str) -> bool:
    """Whether two names mean the same world, however they are spelled."""
    return first_name(name) == first_name(other)


def recorded_name(name: str, run: Path) -> str:
    """A world's name as a run's files record it, with a path relative to the run's folder."""
    full = first_name(name)
    parts = file_in(full)
    return full if parts is None else parts.at(portable_path(parts.path, run))


def placeless_name(name: str) -> str:
    """A world's name with its file's name in place of the path: the same wherever the file lies."""
    parts = file_in(name)
    return canonical_name(name) if parts is None else parts.at(os.path.basename(parts.path))


def shown_name(name: str) -> str:
    """A world's name as one would type it here."""
    parts = file_in(name)
    if parts is None:
        return name
    origin = _ORIGINS.get(parts.path)
    return parts.at(_near(parts.path if origin is None else origin.copy))


def _near(path: str) -> str:
    """A path as one would type it here: relative where it lies in the current folder."""
    nearer = os.path.relpath(path)
    return path if nearer.startswith("..") else nearer


def default_run_name(name: str) -> str:
    """The default name of a run of this world: after the file, the class or the env's id."""
    parts = file_in(name)
    if parts is not None:
        return Path(parts.path).stem
    plain = canonical_name(name)
    if must_be_given(plain):
        return plain.rpartition(":")[2].strip("<>").rpartition(".")[2].strip("<>").replace("/", "-")
    return (plain.partition(":")[2] if is_foreign(plain) else plain).replace(":", "-").replace("/", "-")


def copied_sources(name: str) -> Sources | None:
    """The source files that a run keeps a copy of; None if the world is in no file or its files are too large."""
    parts = file_in(name)
    if parts is None or must_be_given(name):
        return None
    sources = sources_of(Path(os.path.realpath(parts.path)))
    inside = {each: data for each, data in (sources or {}).items() if not each.startswith("..")}
    return dict(sorted(inside.items())) if inside and fits(inside) else None


def note_without_copy(name: str, run: Path) -> str:
    """A warning if the world is in a file of which the run keeps no copy; else empty."""
    if file_in(name) is None or must_be_given(name) or (run / COPY).exists():
        return ""
    return (
        f"the run keeps no copy of its world's source, which is more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB: "
        f"take the source along when you move it"
    )


def remember_trained(name: str, parameters: Mapping[str, Any], sources: Sources | None) -> None:
    """Remember a world that is about to be trained: files may name it, and runs play their copy of these sources."""
    parts = file_in(name)
    if parts is None or parts.path not in _ORIGINS:  # a private folder is no name that a user gave
        remember(name, parameters)
    if parts is not None and sources is not None:
        remember_copy(CopiedWorld(name, os.path.basename(parts.path), hash_of_sources(sources)), parameters)


def refresh_copy(name: str, parameters: Mapping[str, Any], run: Path) -> None:
    """Update a resumed run's copy to the source that it resumes with; a run that plays its copy keeps it."""
    parts, sources = file_in(name), copied_sources(name)
    if parts is None or parts.path in _ORIGINS or sources is None:
        return
    remember_copy(CopiedWorld(name, os.path.basename(parts.path), hash_of_sources(sources)), parameters)
    if read_copy(run / COPY) != sources:
        replace_copy(run / COPY, sources)


def world_fingerprint(world: Env | ForeignWorld) -> str:
    """A hash of a world's rules, its own or another library's; the name of its file does not matter."""
    if not isinstance(world, ForeignWorld):
        return rules_fingerprint(world)
    parts = file_in(world.name)
    if parts is None:
        return world.fingerprint()
    (_, main), *others = (sources_of(Path(os.path.realpath(parts.path))) or {"": b""}).items()
    # Of a script only what makes the env counts: its settings of training may change from run to run.
    sources = {"": needed_for(main, parts.suffix.removeprefix(":")), **dict(others)}
    return world.fingerprint(f"{hash_of_sources(sources)}{parts.suffix}")


def has_rules(world: Env | ForeignWorld, recorded: str) -> bool:
    """Whether a world's rules are those `recorded` in a checkpoint; old ones are compared as they were recorded."""
    return recorded == world_fingerprint(world) or recorded in _former_fingerprints(world)


def _former_fingerprints(world: Env | ForeignWorld) -> list[str]:
    """The hashes that checkpoints of old have of a function in a file: by its path, the whole file, or none of it."""
    parts = file_in(world.name) if isinstance(world, ForeignWorld) else None
    if not isinstance(world, ForeignWorld) or parts is None:
        return []
    sources = list((sources_of(Path(os.path.realpath(parts.path))) or {}).items())
    whole = {"": sources[0][1], **dict(sources[1:])} if sources else {}
    return [world.fingerprint(), *(world.fingerprint(f"{hash_of_sources(each)}{parts.suffix}") for each in (whole, {}))]


def note_on_world(name: str, world: Env | ForeignWorld, recorded: str | None) -> str:
    """One line if the run's copy plays in place of the world's file, or if the rules are not those `recorded`.

    Empty if the file is where it was and nothing has changed.
    """
    if copy_note := note_on_copy(name, world, recorded):
        return copy_note
    is_same = recorded is None or has_rules(world, recorded)
    changed = "" if is_same else "the world's rules have changed since the checkpoint"
    return "; ".join(note for note in (changed, note_on_script(name)) if note)


def note_on_script(name: str) -> str:
    """One line if the file of a world is a script without a guard, which was run up to where it trains; else empty."""
    parts = file_in(name)
    if parts is None or not trains_when_run(os.path.realpath(parts.path)):
        return ""
    what = parts.suffix.removeprefix(":") or "its world"
    return (
        f"{_near(parts.path)} was run up to where it trains, to find {what}: put what is for the script alone under "
        f'`if __name__ == "__main__":`'
    )


def note_on_copy(name: str, world: Env | ForeignWorld, recorded: str | None) -> str:
    """One line if the run's copy plays in place of the world's file: which file, and whether the rules are those
    `recorded` in the checkpoint; else empty."""
    parts = file_in(name)
    origin = None if parts is None else _ORIGINS.get(parts.path)
    if origin is None:
        return ""
    differs = "" if recorded is None or has_rules(world, recorded) else "not "
    rules = "" if recorded is None else f", whose rules are {differs}those of the checkpoint"
    return f"{_near(origin.first)} is not there: playing the run's copy, {_near(origin.copy)}{rules}"
