"""Which entries of a Dict observation are entities: things of one kind that come and go, a row of numbers for each.

The rule by which they are found: an entry NAME that is a Box [count, numbers], with an entry NAME_mask that is a
MultiBinary [count], is a kind of entity, and the mask is 1 where a row holds one. Another MultiBinary [count] entry
whose name begins with NAME_ is 1 where the entity can be chosen no more. Other entries are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from gymnasium.spaces import Box, Dict, MultiBinary
from torch import Tensor

from scramjet.errors import ConfigError
from scramjet.kernels import MASKED_LOGIT

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


# --- entities of one kind in a batch of observations: `Packed` holds only the valid ones, `Padded` all with a mask
#
# Packed takes less arithmetic and is for the CPU, as its shapes depend on which entities are valid. Padded has the same
# shapes for every batch, as CUDA graphs need.


def find_valid(obs: dict[str, Tensor], names: EntityStream) -> Tensor:
    """Where the observations have an entity that can be chosen, [B, count] bool."""
    valid = obs[names.present] != 0
    return valid if names.used is None else valid & (obs[names.used] == 0)


class Packed:
    """The valid entities of one kind in a batch of B observations.

    Layers work on one list of all n of them, and attention on an array as long as the observation with most of them
    (`longest`), valid ones first. So rows without an entity cost little and change nothing.
    """

    def __init__(self, obs: dict[str, Tensor], names: EntityStream) -> None:
        self.valid = valid = find_valid(obs, names)  # [B, count] bool
        self.num_valid = valid.sum(1)  # [B]
        self.longest = max(1, int(self.num_valid.max()))
        self.owner, place = valid.nonzero(as_tuple=True)  # [n], the observation it belongs to, and its row there
        self.place = self.owner * valid.shape[1] + place  # [n], in the flattened batch
        rank = valid.cumsum(1).flatten().index_select(0, self.place) - 1
        self.slot = self.owner * self.longest + rank  # [n], in the flattened array for attention
        # Finite, so that attention within an observation without any valid entity is not NaN: it finds empty slots, 0.
        is_empty = torch.arange(self.longest, device=valid.device) >= self.num_valid.unsqueeze(1)
        self.bias = torch.zeros(is_empty.shape, device=valid.device).masked_fill_(is_empty, MASKED_LOGIT)
        self.features = obs[names.features].flatten(0, 1).index_select(0, self.place).float()  # [n, numbers]

    def to_slots(self, entities: Tensor) -> Tensor:
        """[n, W] to [B, longest, W], 0 in empty slots."""
        padded = entities.new_zeros(len(self.valid) * self.longest, entities.shape[-1])
        return padded.index_copy(0, self.slot, entities).unflatten(0, (-1, self.longest))

    def from_slots(self, slots: Tensor) -> Tensor:
        """[B, longest, W] to [n, W]."""
        return slots.flatten(0, 1).index_select(0, self.slot)

    def to_places(self, entities: Tensor) -> Tensor:
        """[n, W] to [B, count, W], each where the observation has it, 0 where it has none."""
        padded = entities.new_zeros(self.valid.numel(), entities.shape[-1])
        return padded.index_copy(0, self.place, entities).unflatten(0, tuple(self.valid.shape))

    def when_any(self, seen: Tensor) -> Tensor:
        """What attention found in this stream, [B, slots, W]: 0 where it has no entity, since empty slots are 0."""
        return seen

    def to_entities(self, per_observation: Tensor) -> Tensor:
        """[B, W] to [n, W]: for each entity the row of its observation."""
        return per_observation.index_select(0, self.owner)

    def mean(self, entities: Tensor) -> Tensor:
        """The mean of each observation's entities, [B, W]; the mean of none is 0."""
        return self.to_slots(entities).sum(1) / self.num_valid.clamp(min=1).unsqueeze(1)


class Padded:
    """All rows of a batch of B observations, valid or not: entities are [B, count, W], and slots are places.

    Shapes are the same for every batch. Rows without an entity go through the layers too, and their results, finite
    numbers, are never used.
    """

    def __init__(self, obs: dict[str, Tensor], names: EntityStream) -> None:
        self.valid = valid = find_valid(obs, names)  # [B, count] bool
        self.num_valid = valid.sum(1)  # [B]
        self.has_none = (self.num_valid == 0).view(-1, 1, 1)
        self.bias = torch.zeros(valid.shape, device=valid.device).masked_fill_(~valid, MASKED_LOGIT)
        # Rows without an entity may hold NaN, and 0 * NaN would spoil the gradient.
        self.features = obs[names.features].float().masked_fill(~valid.unsqueeze(2), 0.0)  # [B, count, numbers]

    def to_slots(self, entities: Tensor) -> Tensor:
        """[B, count, W] unchanged: attention gives entities that are not valid no weight."""
        return entities

    from_slots = to_places = to_slots

    def when_any(self, seen: Tensor) -> Tensor:
        """What attention found in this stream, [B, slots, W], set to 0 where it has no entity."""
        return seen.masked_fill(self.has_none, 0.0)

    def to_entities(self, per_observation: Tensor) -> Tensor:
        """[B, W] to [B, 1, W]: for each entity the row of its observation."""
        return per_observation.unsqueeze(1)

    def mean(self, entities: Tensor) -> Tensor:
        """The mean of each observation's entities, [B, W]; the mean of none is 0."""
        total = entities.masked_fill(~self.valid.unsqueeze(2), 0.0).sum(1)
        return total / self.num_valid.clamp(min=1).unsqueeze(1)


Stream: TypeAlias = Packed | Padded
"""One kind of entity in a batch. Shapes below are those of the packed one; padded, [n, W] is [B, count, W]."""


def make_stream(obs: dict[str, Tensor], names: EntityStream) -> Stream:
    """Packed on the CPU, to save work; padded on the GPU, which would have to wait for the number of valid entities."""
    return (Padded if obs[names.features].is_cuda else Packed)(obs, names)
