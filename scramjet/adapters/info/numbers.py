"""Numbers in the last `info` of an episode: what can be averaged of it, and an episode's score where the env counts."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

NESTED = "/"
"""A name that begins so is of a number within a mapping: "/reward/x" of info["reward"]["x"]."""
MOST_LEVELS = 4
MOST_NESTED = 256
"""How deep and how many numbers within one mapping are looked for."""

_SKIPPED = {"final_obs", "final_info", "action_mask"}


def numbers_in(info: Mapping[str, Any]) -> dict[str, float]:
    """What of an episode's last `info` can be averaged: its numbers and truth values, and arrays of one of them.

    Those within mappings have a path for a name, which begins with `NESTED`.
    """
    found: dict[str, float] = {}
    for name, value in info.items():
        if not isinstance(name, str) or name in _SKIPPED or name.startswith("_"):
            continue
        if isinstance(value, Mapping):
            nested = _nested_in(value, f"{NESTED}{name}", MOST_LEVELS)
            found.update(itertools.islice(nested, MOST_NESTED))
        elif name != "episode" and (number := _number(value)) is not None:
            found[name] = number
    return found


def _nested_in(values: Mapping[str, Any], above: str, levels: int) -> Iterator[tuple[str, float]]:
    """The numbers in a mapping and in those that it holds, each with its path."""
    for name, value in values.items():
        if not isinstance(name, str) or name.startswith("_"):
            continue
        if isinstance(value, Mapping):
            if levels > 1:
                yield from _nested_in(value, f"{above}/{name}", levels - 1)
        elif (number := _number(value)) is not None:
            yield f"{above}/{name}", number


def _number(value: Any) -> float | None:
    """A number, a truth value or an array of one element as a float; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(())[()]
    if isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, np.complexfloating):
        with contextlib.suppress(OverflowError):  # no float is so large
            return float(value)
    return None


def recorded(*infos: Mapping[str, Any]) -> tuple[float, int] | tuple[None, None]:
    """The score and length of an episode that an env keeps count of itself, as RecordEpisodeStatistics does; of the
    first `info` that tells both."""
    for info in infos:
        record = info.get("episode")
        if isinstance(record, Mapping):
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                score, length = float(np.asarray(record["r"]).item()), int(np.asarray(record["l"]).item())
                if abs(length) < 2**62:
                    return score, length
    return None, None
