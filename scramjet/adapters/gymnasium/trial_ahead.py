"""Whether a command line is likely to try out an env, so that a worker for it can start before it is read in whole."""

from __future__ import annotations

from collections.abc import Sequence

from scramjet.adapters.registry import library_of

_UNTRIED = ("--num-workers", "--env-timeout", "--on-env-error", "--mode", "--help", "-h")
"""Flags with which no env is tried out, or which decide on it."""


def tries_out_an_env(words: Sequence[str]) -> bool:
    """Whether `scramjet train` with these words most likely tries out an env of another library."""
    flags = {word.partition("=")[0].replace("_", "-") for word in words}
    libraries = [library_of(word) for word in words]
    return flags.isdisjoint(_UNTRIED) and any(library is not None and library.has_workers for library in libraries)
