"""The errors users meet: each names the thing, its value and the fix.

The command line prints the message alone and exits with `exit_code`; a traceback means a bug of ours. Names and values
in a message may come from a stranger's file: `printable` and `shortened` make them safe to show.
"""

from __future__ import annotations

import difflib
import reprlib
import unicodedata
from collections.abc import Iterable
from typing import Any

LAYOUT = "\n\t"
"""The control characters that only lay text out; see `printable`."""

ENV_FAILURES = (Exception, SystemExit)
"""What a user's env may raise; SystemExit is among them, because it must not end the run as if that were done."""


_MAX_MESSAGE = 4_000
_MAX_VALUE = 300
"""Characters that are shown of a message, and of one value in it."""


class ScramjetError(Exception):
    """Base of every error meant for a user; its text holds no control characters and is of bounded length."""

    exit_code = 2
    is_told = False
    """Whether another process shows it to the user, so that this one has nothing to print."""

    def __str__(self) -> str:
        text = super().__str__()
        return printable(text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}... (cut)", keep=LAYOUT)


class ConfigError(ScramjetError):
    """A wrong setting: an unknown key, a value out of range, two values that do not fit each other."""


class TrustError(ScramjetError):
    """A file names code, or gives a library text to load, and the user has not allowed it."""


class WorldError(ScramjetError):
    """A mistake in an environment, explained to its author."""


class RunError(ScramjetError):
    """A run folder that cannot be used as asked: it exists, is locked, is missing, is full."""


class CheckpointError(RunError):
    """A checkpoint that is damaged, of a newer version, or of another world or network."""


class PredictError(ScramjetError):
    """An observation, state or mask that does not fit the policy it was given to."""


class PlayError(ScramjetError):
    """Something that a game does not allow now: an illegal move, a move out of turn, nothing to take back."""


class TrainingError(ScramjetError):
    """Training cannot go on: numbers stopped being finite, or remote actors are lost."""


class RankError(ScramjetError):
    """One of several processes that train a run together was lost, failed, or cannot be reached."""


class CallbackError(ScramjetError):
    """A user's callback raised an error, which is the cause of this one; the run was saved first."""


class PlayerError(ScramjetError):
    """A player of the user's own that cannot be used, raised an error or returned something that is no action."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known name, or an empty string."""
    close = nearest(name, known)
    return f" Did you mean '{close}'?" if close else ""


def nearest(name: str, known: Iterable[str], likeness: float = 0.65) -> str | None:
    """Return the known name that is most like `name`, or None where none is; `likeness` is from 0 to 1, the same."""
    close = difflib.get_close_matches(
        str(name)[:100], list(known), n=1, cutoff=likeness
    )  # a file's keys may be endless
    return close[0] if close else None


def printable(text: str, keep: str = "") -> str:
    """Return `text` with every control character but those in `keep` written as an escape such as \\x1b.

    A terminal obeys control characters: printed raw, a name in a file could clear the screen or retitle the window.
    Marks that change the direction of writing count as such, and so do lone surrogates, which cannot be encoded.
    """
    if text.isprintable():
        return text
    return "".join(each if each in keep or not _is_control(each) else _escape(each) for each in text)


def _is_control(character: str) -> bool:
    # Cc control, Cf format (such as right-to-left marks), Cs half a surrogate pair, Zl and Zp line separators
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class _Short(reprlib.Repr):
    """Python's `repr`, of bounded length and cost however large or deep the value is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 200, 200

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 300 else f"<a whole number of {x.bit_length():,} bits>"


def shortened(value: Any) -> str:
    """Return `repr(value)` for a message, with the middle or the end of what is long left out."""
    text = _Short().repr(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."
