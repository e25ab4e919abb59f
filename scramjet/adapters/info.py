"""Numbers in the last `info` of an episode: what can be averaged, an episode's score, and which of them are logged."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from scramjet.errors import did_you_mean

NESTED = "/"
"""A name that begins so is of a number within a mapping: "/reward/x" of info["reward"]["x"]."""
MOST_LEVELS = 4
MOST_NESTED = 256
"""Maximum depth of nested mappings, and maximum number of values taken from one of them."""

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


# --- which of them become statistics of an episode: those that the user named, or all that are not nested


EPISODES_WAITED = 20
"""Number of ended episodes after which a name that none of them had is reported."""
NAMES_TOLD = 20


class InfoSelection:
    """Names of numbers in the last `info` of an episode, such as "success", or "reward/x" of info["reward"]["x"].

    Without names, all numbers are selected that are not within mappings. The pools of one world share it, so that a
    name that never appears is told of once.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(names)
        self._awaited = set(self.names)
        self._seen: set[str] = set()
        self._num_ended = 0

    def selected(self, found: Iterable[str]) -> dict[str, str]:
        """For each name that is selected, under which one it was `found`."""
        found = dict.fromkeys(found)
        if not self.names:
            return {name: name for name in found if not name.startswith(NESTED)}
        keys = {name: name if name in found else NESTED + name for name in self.names}
        return {name: key for name, key in keys.items() if key in found}

    def missing(self, found: Iterable[str], num_ended: int) -> str:
        """Count episodes that ended with these names; returns a warning, once, when some names never appeared."""
        if not self._awaited:
            return ""
        self._seen.update(name.removeprefix(NESTED) for name in found)
        self._awaited -= self._seen
        self._num_ended += num_ended
        if self._num_ended < EPISODES_WAITED or not self._awaited:
            return ""
        awaited, self._awaited = sorted(self._awaited), set()
        known = sorted(self._seen)
        there = ", ".join(itertools.islice(known, NAMES_TOLD)) or "no numbers at all"
        more = f" and {len(known) - NAMES_TOLD} more" if len(known) > NAMES_TOLD else ""
        return (
            f"never gave {', '.join(awaited)} in the last info of {self._num_ended} episodes, which log_info names."
            f"{did_you_mean(awaited[0], known)} It gave {there}{more}"
        )
