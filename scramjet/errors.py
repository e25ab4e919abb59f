"""The errors users meet: each names the thing, its value and the fix.

The command line prints the message alone and exits with `exit_code`; a traceback means a bug of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ENV_FAILURES = (Exception, SystemExit)
"""What an env of a user may raise. One that leaves must not end the run as if it were done."""


class ScramjetError(Exception):
    """Base of every error meant for a user."""

    exit_code = 2


class ConfigError(ScramjetError):
    """A setting that cannot be: an unknown key, a value out of range, two values that do not fit."""


class TrustError(ScramjetError):
    """A file names code, or gives a library text, that would be loaded; the user has not said that it may be."""


class WorldError(ScramjetError):
    """A mistake in an environment's rules, told in its author's terms."""


class RunError(ScramjetError):
    """A run folder that cannot be used as asked: it exists, is locked, is missing, is full."""


class CheckpointError(RunError):
    """A checkpoint that is damaged, of a newer version, or of another world or network."""


class TrainingError(ScramjetError):
    """Training cannot go on: numbers stopped being finite."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known name, or an empty string."""
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""
