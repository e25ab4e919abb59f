"""Decides which worlds and players a file may name: only code that the user has named before, or any with `--trust`.

Any file may name built-in worlds and those of a few libraries, with numbers as parameters. A user's own code (a file, a
module, a function) is remembered when the user names it, so that runs of it can be resumed, forked and evaluated
without a question. SECURITY.md gives the reasons.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from scramjet.adapters.factories import is_given, must_be_given, ways_to_give
from scramjet.adapters.objects import NamedWorld, named, spelled
from scramjet.adapters.registry import canonical_name
from scramjet.adapters.world_code import (
    NamedCode,
    code_of,
    covered_files,
    file_in,
    find_in_current_folder,
    loaded_text,
    path_in_current_folder,
    source_fingerprint,
)
from scramjet.envs.beside import limit_imports
from scramjet.errors import ConfigError, TrustError, WorldError, shortened
from scramjet.players.scripted import runs_code
from scramjet.runtime.private_files import UserRecords, is_users_alone
from scramjet.runtime.trust import Approval

if TYPE_CHECKING:
    from scramjet.adapters.objects import World


MAX_NAME_LENGTH = 4096
MAX_TEXTS = 256
"""Text parameters remembered of one world, the newest ones."""
_RECORDS = UserRecords("worlds", "runs of worlds in your own files and modules will need --trust")


@dataclass(frozen=True)
class Caller:
    """Who reads a file that names a world, and what this user has allowed: the file can run no code beyond that."""

    approval: Approval | None = None
    """The user's approval of the whole file: it may name any code."""
    env: str | None = None
    """The world that the user named, in place of the file's."""
    keeps_parameters: bool = False
    """The file's parameters are for `env`, whatever world the file names; else only if it names the same one."""
    run: Path | None = None
    """The folder of the run that the file belongs to."""
    folder: Path | None = None
    """The folder that a config file lies in."""
    only_plays: bool = False
    """Nothing is trained by the file's config: players in it that are not approved are shut out, and not refused."""


NOBODY = Caller()
"""A caller that has allowed nothing."""


@dataclass(frozen=True)
class _Remembered:
    """What is remembered of a world that the user named, or allowed with --trust."""

    source: str | None = None  # the fingerprint of its code
    is_named: bool = False  # named by the user, not only allowed with --trust
    texts: tuple[str, ...] = ()  # hashes of text parameters


@dataclass(frozen=True)
class CopiedWorld:
    """A copy of a world's source files."""

    name: str
    """The world's name with the path of its file, in the copy or where it was copied from."""
    main: str
    """The path of the world's file within the copy."""
    fingerprint: str
    """A hash of every file in the copy."""

    @property
    def key(self) -> str:
        """The key under which a copy is remembered: the world's file and class in it, and the hash of its files."""
        parts = file_in(self.name)
        assert parts is not None
        return f"copy {parts.at(self.main)}\n{self.fingerprint}"


# --- worlds that the user names, on the command line or in Python


def name_of(env: World) -> str:
    """The name of a world that the caller gives: see `world_of`."""
    return world_of(env).name


def world_of(env: World) -> NamedWorld:
    """The name, and of an instance the parameters, of a world that the caller gives as a name, a file or an object.

    The world is remembered, so that files of runs may name it from now on. A module may lie in the current folder; a
    file that defines a Gymnasium env is read to find its class.
    """
    world = named(env)
    if isinstance(env, str | PurePath):
        return NamedWorld(_found(world.name))
    remember(world.name, world.parameters, is_named=True)
    return world


def _found(given: str) -> str:
    """The name by which a world that was named loads."""
    check_name(given)
    code = code_of(given)
    if code is not None:
        find_in_current_folder(code)
    remember(given, is_named=True)
    name = spelled(given)
    if name != given:
        remember(name, is_named=True)
    return name


def check_name(name: str, source: str | None = None) -> None:
    """Refuse a name that no world can have; `source` is the file that it comes from."""
    if len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise ConfigError(
            f"{'' if source is None else f'{source}: '}env has the name {shortened(name)}, which is no world's: give "
            f"at most {MAX_NAME_LENGTH} characters, all printable"
        )


# --- worlds that a file names


def approve(
    name: str, parameters: Mapping[str, Any], source: str, caller: Caller, *, written: str | None = None
) -> None:
    """Return if a file may name this world with these parameters; else raise a TrustError that says what would run.

    `source` is the file, for messages, and `written` the world's name as it stands in the file. A `caller` that
    approves the file lets anything through, which is then remembered.
    """
    run = caller.run
    if caller.approval is not None:
        remember(name, parameters, is_named=False)
        _limit_imports(name, run)
        return
    code, texts = code_of(name), loaded_text(name, parameters)
    if is_given(name) or (caller.env is not None and canonical_name(caller.env) == canonical_name(name)):
        code = None
    if code is None and not texts:
        return
    if code is not None and must_be_given(name):
        raise WorldError(f"{source} names the world {name!r}, {ways_to_give(name)}")
    if code is not None:
        _find_if_known(name, code, run)
    known = _recalled(_key(name))
    problem = None if code is None else _problem(code.path(), known, run)
    if code is not None and problem is not None:
        raise _refusal(f"{source} names the world {written or name!r}, which would {code}", parameters, problem)
    _refuse_unknown(texts, known, name, source)
    if code is not None:
        _limit_imports(name, run)


def _limit_imports(name: str, run: Path | None) -> None:
    """Let the file of a world import only files that its fingerprint covers, unless it is the user's alone."""
    code = code_of(name)
    if code is None or not code.is_file:
        return
    path = Path(code.place)
    is_own = _recalled(_key(name)).is_named and not _is_in(run, path) and is_users_alone(path)
    limit_imports(code.place, None if is_own else covered_files(path))


def _refuse_unknown(texts: Mapping[str, Any], known: _Remembered, name: str, source: str) -> None:
    unknown = {key: value for key, value in texts.items() if _hash(key, value) not in known.texts}
    if unknown:
        raise _refusal(f"{source} gives the world {name!r} text that it may load or run things by", unknown, "")


def approve_copy(
    copy: CopiedWorld, parameters: Mapping[str, Any], source: str, caller: Caller, *, written: str
) -> None:
    """Return if a run may play a copy of a world's source that came with it; else raise a TrustError.

    These very files must have been the user's before, begun at this one, wherever they are now. `source` is the file
    that names the world, `written` its name there.
    """
    if caller.approval is not None:
        remember_copy(copy, parameters)
        return
    known = _recalled(copy.key)
    if known.source is None:
        what = (
            f"{source} names the world {written!r}, which is not there; the run's copy of it would {code_of(copy.name)}"
        )
        raise _refusal(what, parameters, "")
    _refuse_unknown(loaded_text(copy.name, parameters), known, copy.name, source)


def _find_if_known(name: str, code: NamedCode, run: Path | None) -> None:
    """Make a module in the current folder importable if the user has named it there before."""
    here = path_in_current_folder(code) if code.path() is None else None
    if here is not None and _problem(here, _recalled(f"{canonical_name(name)}\n{here}"), run) is None:
        find_in_current_folder(code)


def _problem(path: Path | None, known: _Remembered, run: Path | None) -> str | None:
    """Why the code at a path may not run, as the end of a message; None if it may."""
    if known.source is None or path is None:
        return ""
    if known.source == source_fingerprint(path) or not os.path.exists(path):  # nothing runs that is not there
        return None
    if not known.is_named:
        return "; its source has changed since you let it through"
    if _is_in(run, path):
        return "; it lies in the run's own folder, and has changed since you named it"
    return None if is_users_alone(path) else "; it has changed since you named it, and others can write to it"


def _is_in(run: Path | None, path: Path) -> bool:
    """Whether a file lies in the run's folder, and so may have come with it."""
    return run is not None and path.is_relative_to(run.resolve())


def _refusal(what: str, parameters: Mapping[str, Any], problem: str) -> TrustError:
    shown = ", ".join(f"{key[:100]}={shortened(value)}" for key, value in [*parameters.items()][:8])
    return TrustError(
        f"{what}{f' ({shown})' if shown else ''}{problem}. A file runs nothing unless you say so: if you know where it "
        f"comes from, add --trust (in Python trust=True), or name the world yourself (scramjet train WORLD ..., "
        f"--env WORLD for a run, env=... in Python)"
    )


# --- players that a file names


def remember_players(specs: Iterable[str]) -> None:
    """Remember the players of the user's own code that the user has named, so that runs with them can be resumed."""
    for spec in specs:
        if runs_code(spec):
            _RECORDS.write(_player_key(spec), {"version": 1})


def approved_players(specs: Iterable[str], source: str, caller: Caller) -> tuple[str, ...]:
    """The players that a file names, if it may; else a TrustError that says what would run.

    `source` is the file, for messages. A `caller` that approves the file lets it name any, which are then remembered.
    For one that only plays, a player that may not run becomes a text that names none: "<my_file.py:choose>".
    """
    specs = tuple(specs)
    if caller.approval is not None:
        remember_players(specs)
        return specs
    return tuple(_approved_player(spec, source, caller) for spec in specs)


def _approved_player(spec: str, source: str, caller: Caller) -> str:
    if not runs_code(spec) or _RECORDS.read(_player_key(spec)) is not None:
        return spec
    if caller.only_plays:
        return f"<{spec}>"
    raise TrustError(
        f"{source} names the player {shortened(spec)}, which would run code that you have not named yourself; "
        f"look at it, then add --trust, or leave it out of self_play.opponents"
    )


def _player_key(spec: str) -> str:
    """The key under which a player is remembered: the place of its file and its name there.

    A module is looked for where it would be imported from, the current folder included, so that another one of the
    same name is another player.
    """
    where, _, name = (spec, "", "") if spec.endswith(".py") else spec.rpartition(":")
    module = "" if where.endswith(".py") else where
    if module:
        top = module.partition(".")[0]
        here = [place for place in (f"{top}.py", f"{top}/__init__.py") if os.path.isfile(place)]
        found = None if here else importlib.util.find_spec(top)
        where = here[0] if here else (found.origin or top) if found is not None else f"{os.getcwd()}/{top}.py"
    return f"player {os.path.realpath(where)}:{module}:{name}"


# --- what is remembered


def remember(name: str, parameters: Mapping[str, Any] | None = None, *, is_named: bool | None = None) -> None:
    """Let later files name this world: its code as it is now, and these parameters.

    `is_named`: the user named it, so that it stays allowed after edits. None: that holds if it is not known yet.
    """
    code, texts = code_of(name), loaded_text(name, parameters or {})
    if (code is None and not texts) or (code is not None and must_be_given(name)):
        return
    path = None if code is None else code.path()
    if code is not None and code.is_file and is_named:
        limit_imports(code.place, None)
    source = None if path is None else source_fingerprint(path)
    if code is not None and source is None:  # nowhere to be found, or built in
        return
    known = _recalled(_key(name))
    is_own = known.is_named or (known.source is None if is_named is None else is_named)
    now = _Remembered(source, is_own, _with_texts(known, texts))
    if now != known:
        _RECORDS.write(_key(name), {"version": 1, **asdict(now)})


def remember_copy(copy: CopiedWorld, parameters: Mapping[str, Any]) -> None:
    """Let runs play a copy of these files from now on, wherever it lies."""
    known = _recalled(copy.key)
    now = _Remembered(copy.fingerprint, False, _with_texts(known, loaded_text(copy.name, parameters)))
    if now != known:
        _RECORDS.write(copy.key, {"version": 1, **asdict(now)})


def _with_texts(known: _Remembered, texts: Mapping[str, Any]) -> tuple[str, ...]:
    hashes = [_hash(key, value) for key, value in texts.items()]
    return tuple(dict.fromkeys([*(text for text in known.texts if text not in hashes), *hashes]))[-MAX_TEXTS:]


def _key(name: str) -> str:
    """The key under which a world is remembered: its name and the path of its code."""
    code = code_of(name)
    return f"{canonical_name(name)}\n{'' if code is None else code.path()}"


def _recalled(key: str) -> _Remembered:
    record = _RECORDS.read(key)
    if record is None or record.get("version") != 1:
        return _Remembered()
    try:
        return _Remembered(record["source"], record["is_named"] is True, tuple(map(str, record["texts"])))
    except (KeyError, TypeError):
        return _Remembered()


def _hash(key: str, value: Any) -> str:
    """A hash of a parameter and its value."""
    return hashlib.sha256(json.dumps([key, value], sort_keys=True, default=repr).encode()).hexdigest()
