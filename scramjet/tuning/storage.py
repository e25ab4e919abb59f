"""study.db, Optuna's storage in SQLite: opened only if it is a plain file, errors in a user's terms."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scramjet.errors import RunError
from scramjet.runtime.files import open_regular, require_size, why_unreadable
from scramjet.tuning.packages import optuna_module
from scramjet.tuning.settings import MAX_TRIALS

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
