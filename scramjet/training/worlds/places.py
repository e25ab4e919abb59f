"""Where the world of a run is: the file that was trained, else the run's own copy of it.

    RUN/config.toml     names the file as seen from RUN, so that both can move together
    RUN/world/          a copy of the file and of what it imports from beside it

A file that is where it was is used. Where it is gone, the copy is, if its contents were the user's before or with
`--trust`: it is read once, and what was read is what runs, from a private folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scramjet.adapters.factories import is_given, must_be_given
from scramjet.adapters.gymnasium.files import spelled
from scramjet.adapters.registry import ForeignWorld, canonical_name, is_foreign
from scramjet.adapters.world_code import file_in, hash_of_sources, sources_of
from scramjet.engine.worlds.rules import rules_fingerprint
from scramjet.envs.api import Env
from scramjet.runtime.files import portable_path
from scramjet.runtime.source_copies import (
    MAX_BYTES,
    MAX_FILES,
    Sources,
    fits,
    private_folder_with,
    read_copy,
    replace_copy,
)
from scramjet.training.worlds.trust import approve, approve_copy, remember, remember_copy

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
    """A world that a file names, found."""

    name: str
    """Its name, with the full path of the file that runs."""
    written: str
    """As it stands in the file."""
    copy: Copy | None = None
    """What stands in for a file that is not there."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a file in a private folder comes from."""

    first: str  # the path of the file that was trained
    copy: str  # that of the copy


_ORIGINS: dict[str, _Origin] = {}
"""Of the copies that this process runs, by the path they run from."""
_PRIVATE: dict[tuple[str, str], str] = {}
"""Where copies run from, by their own path and contents: one that is read twice is the same world."""


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
    """A name from a file of `run`, with the full path that its file had first."""
    parts = file_in(name)
    if parts is None or run is None:
        return name
    return parts.at(os.path.normpath(os.path.join(os.path.realpath(run), parts.path)))


def open_world(
    place: WorldPlace,
    parameters: Mapping[str, Any],
    source: str,
    *,
    trust: bool,
    named: str | None,
    run: Path | None,
) -> str:
    """The name by which a world loads, once it is clear that it may; else a TrustError says what would run.

    `source` is the file that names it, `named` a world that the caller named himself.
    """
    if place.copy is None:
        approve(place.name, parameters, source, trust=trust, named=named, run=run, written=place.written)
        return _as_factory(place.name, parameters, source, trust=trust, run=run)
    fingerprint = hash_of_sources(place.copy.sources)
    approve_copy(place.name, place.copy.main, fingerprint, parameters, source, trust=trust, written=place.written)
    parts = file_in(place.name)
    assert parts is not None
    private = _PRIVATE.get((parts.path, fingerprint))
    if private is None or not os.path.exists(private):
        private = _PRIVATE[parts.path, fingerprint] = str(private_folder_with(place.copy.sources) / place.copy.main)
        _ORIGINS[private] = _Origin(place.copy.first, parts.path)
    return parts.at(private)


def _as_factory(name: str, parameters: Mapping[str, Any], source: str, *, trust: bool, run: Path | None) -> str:
    """The name of a world that may load; of a file with a Gymnasium env, its class, which takes text only if known."""
    factory = spelled(name)
    if factory != name:
        remember(factory, is_named=False)
        approve(factory, parameters, source, trust=trust, named=None, run=run)
    return factory


def first_name(name: str) -> str:
    """A world's name in its one spelling, with the path that its file had first if a copy runs in its place."""
    parts = file_in(name)
    origin = None if parts is None else _ORIGINS.get(parts.path)
    return canonical_name(name) if parts is None or origin is None else parts.at(origin.first)


def is_same_world(name: str, other: str) -> bool:
    """Whether two names, however they are spelled, mean one world."""
    return first_name(name) == first_name(other)


def recorded_name(name: str, run: Path) -> str:
    """A world's name as the files of a run have it: a path as seen from the run's folder."""
    full = first_name(name)
    parts = file_in(full)
    return full if parts is None else parts.at(portable_path(parts.path, run))


def placeless_name(name: str) -> str:
    """A world's name with its file's own name in place of the path: the same wherever it lies."""
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
    """What a run of this world is called where nobody says: after the file, the class or the env's id."""
    parts = file_in(name)
    if parts is not None:
        return Path(parts.path).stem
    plain = canonical_name(name)
    return (plain.partition(":")[2] if is_foreign(plain) else plain).replace(":", "-").replace("/", "-")


def copied_sources(name: str) -> Sources | None:
    """What a run keeps a copy of; None of worlds that are in no file, or in too many or too large ones."""
    parts = file_in(name)
    if parts is None or must_be_given(name):
        return None
    sources = sources_of(Path(os.path.realpath(parts.path)))
    inside = {each: data for each, data in (sources or {}).items() if not each.startswith("..")}
    return dict(sorted(inside.items())) if inside and fits(inside) else None


def note_without_copy(name: str, run: Path) -> str:
    """A warning for the user of a world in a file, of which his run keeps no copy; else empty."""
    if file_in(name) is None or must_be_given(name) or (run / COPY).exists():
        return ""
    return (
        f"the run keeps no copy of its world's source, which is more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB: "
        f"take the source along when you move it"
    )


def remember_trained(name: str, parameters: Mapping[str, Any], sources: Sources | None) -> None:
    """Let later files name a world that is about to be trained, and runs play their copy of these sources."""
    parts = file_in(name)
    if parts is None or parts.path not in _ORIGINS:  # nobody has named a private folder
        remember(name, parameters)
    if parts is not None and sources is not None:
        remember_copy(name, os.path.basename(parts.path), hash_of_sources(sources), parameters)


def refresh_copy(name: str, parameters: Mapping[str, Any], run: Path) -> None:
    """Bring the copy of a run that goes on up to what it goes on with; one that runs from its copy keeps that."""
    parts, sources = file_in(name), copied_sources(name)
    if parts is None or parts.path in _ORIGINS or sources is None:
        return
    remember_copy(name, os.path.basename(parts.path), hash_of_sources(sources), parameters)
    if read_copy(run / COPY) != sources:
        replace_copy(run / COPY, sources)


def world_fingerprint(world: Env | ForeignWorld) -> str:
    """A hash of what a world's rules depend on, whoever wrote it and whatever its file is called."""
    if not isinstance(world, ForeignWorld):
        return rules_fingerprint(world)
    parts = file_in(world.name)
    if parts is None:
        return world.fingerprint()
    # A function that was given from Python may be in a script that changes from run to run.
    sources = None if is_given(world.name) else sources_of(Path(os.path.realpath(parts.path)))
    others = list((sources or {}).items())
    unnamed = {"": others[0][1], **dict(others[1:])} if others else {}
    return world.fingerprint(f"{hash_of_sources(unnamed)}{parts.suffix}")


def has_rules(world: Env | ForeignWorld, recorded: str) -> bool:
    """Whether a world's rules are those that a checkpoint was made with; older ones know functions by their path."""
    return recorded == world_fingerprint(world) or (isinstance(world, ForeignWorld) and recorded == world.fingerprint())


def note_on_world(name: str, world: Env | ForeignWorld, recorded: str | None) -> str:
    """One line on which file of a world runs and whether its rules are those of a checkpoint, `recorded`.

    Empty where the file is where it was and nothing has changed.
    """
    if copy_note := note_on_copy(name, world, recorded):
        return copy_note
    is_same = recorded is None or has_rules(world, recorded)
    return "" if is_same else "the world's rules have changed since the checkpoint"


def note_on_copy(name: str, world: Env | ForeignWorld, recorded: str | None) -> str:
    """The same where a copy runs; else empty."""
    parts = file_in(name)
    origin = None if parts is None else _ORIGINS.get(parts.path)
    if origin is None:
        return ""
    differs = "" if recorded is None or has_rules(world, recorded) else "not "
    rules = "" if recorded is None else f", whose rules are {differs}those of the checkpoint"
    return f"{_near(origin.first)} is not there: playing the run's copy, {_near(origin.copy)}{rules}"
