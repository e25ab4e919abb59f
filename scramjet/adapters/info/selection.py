"""Which numbers of `info` become statistics of an episode: those that the user named, or all that are not nested."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from scramjet.adapters.info.numbers import NESTED
from scramjet.errors import did_you_mean

EPISODES_WAITED = 20
"""Episodes that end before a name that none of them had is told of."""
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
