"""One rank's error ends all ranks, with one message that names the rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from scramjet.errors import RankError, ScramjetError
from scramjet.runtime.ranks.interface import Ranks

Value = TypeVar("Value")
_DONE, _FAILED = b"+", b"-"


@contextmanager
def failing_together(ranks: Ranks) -> Iterator[None]:
    """Leave the body when all ranks have left it; if it raised on one of them, raise on all. It calls no other rank."""
    if ranks.is_alone:
        yield
        return
    problem: Exception | None = None
    try:
        yield
    except Exception as error:
        problem = error
    told = ranks.gather(_DONE if problem is None else _text(problem))
    if problem is not None:
        raise _as_told(problem, ranks)
    failed = next((i for i, text in enumerate(told) if text != _DONE), None)
    if failed is not None:
        raise _as_told(RankError(f"rank {failed}: {_read(told[failed])}"), ranks)


def shared(
    ranks: Ranks, make: Callable[[], Value], encode: Callable[[Value], bytes], decode: Callable[[bytes], Value]
) -> Value:
    """What `make` returns on rank 0, on all ranks: it is only called there. What it raises there is raised on all."""
    if ranks.is_alone:
        return make()
    if not ranks.is_first:
        data = ranks.from_first(b"")
        if data[:1] == _FAILED:
            raise _as_told(RankError(f"rank 0: {_read(data)}"), ranks)
        return decode(data[1:])
    try:
        value = make()
    except Exception as error:
        ranks.from_first(_text(error))
        raise
    ranks.from_first(_DONE + encode(value))
    return value


def _as_told(error: Exception, ranks: Ranks) -> Exception:
    """The error, which rank 0 shows to the user, other ranks only where it is a bug of ours."""
    if isinstance(error, ScramjetError) and not ranks.is_first:
        error.is_told = True
    return error


def _text(error: Exception) -> bytes:
    text = str(error) if isinstance(error, ScramjetError) else f"{type(error).__name__}: {error}"
    return _FAILED + text.encode(errors="backslashreplace")


def _read(data: bytes) -> str:
    return data[1:].decode(errors="replace")
