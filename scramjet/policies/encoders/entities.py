"""Which entries of a Dict observation are entities: things of one kind that come and go, a row of numbers for each.

The rule by which they are found: an entry NAME that is a Box [count, numbers], with an entry NAME_mask that is a
MultiBinary [count], is a kind of entity, and the mask is 1 where a row holds one. Another MultiBinary [count] entry
whose name begins with NAME_ is 1 where the entity can be chosen no more. Other entries are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gymnasium.spaces import Box, Dict, MultiBinary

from scramjet.errors import ConfigError

MASK = "_mask"
"""How the name of the flags ends that say which rows hold an entity."""


@dataclass(frozen=True)
class EntityStream:
    """The entries of a Dict observation that hold one kind of entity."""

    features: str
    """Box [count, numbers], a row for each entity."""
    present: str
    """MultiBinary [count], 1 where the row holds an entity."""
    used: str | None = None
    """MultiBinary [count], 1 where the entity can be chosen no more."""


@dataclass(frozen=True)
class EntitySpec:
    """The two kinds of entities that an action pairs: it chooses a row and a column."""

    rows: EntityStream
    columns: EntityStream


def find_entities(space: Any) -> EntitySpec:
    """The two kinds of entities of an observation space by the rule above; the first in the alphabet are the rows."""
    entries = _entries(space)
    streams = []
    for name, entry in sorted(entries.items()):
        if not _is_table(entry) or not _are_flags(entries.get(name + MASK), entry.shape[0]):
            continue
        flags = [other for other in entries if other.startswith(f"{name}_") and other != name + MASK]
        used = [other for other in flags if _are_flags(entries[other], entry.shape[0])]
        if len(used) > 1:
            raise ConfigError(
                f"policy.encoder='entity_attention' takes one entry that says which of '{name}' can be chosen no more, "
                f"and the observation space has {' and '.join(map(repr, used))}; "
                f"--policy.ignore {' '.join(used[1:])}"
            )
        streams.append(EntityStream(name, name + MASK, *used))
    if len(streams) != 2:
        found = ", ".join(stream.features for stream in streams) or "none"
        raise ConfigError(
            f"policy.encoder='entity_attention' needs two kinds of entities in the observation space {space}, each an "
            f"entry NAME (Box [count, numbers]) with its NAME{MASK} (MultiBinary [count]); found: {found}. "
            f"Use --policy.encoder auto"
        )
    return EntitySpec(*streams)


def count_entities(stream: EntityStream, space: Any) -> int:
    """How many entities of a kind an observation has room for; refuses a space without the entries of `stream`."""
    entries = _entries(space)
    features: Any = entries.get(stream.features)
    flags = [name for name in (stream.present, stream.used) if name is not None]
    if not _is_table(features) or not all(_are_flags(entries.get(name), features.shape[0]) for name in flags):
        raise ConfigError(
            f"policy.encoder='entity_attention' needs an entry '{stream.features}' (Box [count, numbers]) with "
            f"{' and '.join(repr(name) for name in flags)} (MultiBinary [count]) in the observation space, which is "
            f"{space}; use --policy.encoder auto"
        )
    return int(features.shape[0])


def _entries(space: Any) -> dict[str, Any]:
    return dict(space.spaces) if isinstance(space, Dict) else {}


def _is_table(entry: Any) -> bool:
    return isinstance(entry, Box) and len(entry.shape) == 2


def _are_flags(entry: Any, count: int) -> bool:
    return isinstance(entry, MultiBinary | Box) and entry.shape == (count,)
