"""Batches of observations: a tensor, or for a Dict space a dict of them, nested like the space.

A batch has one row per observation, in the space's own number type: Box [B, *shape], Discrete int64 [B, 1],
MultiDiscrete [B, *shape], MultiBinary int8 [B, *shape]. Images stay uint8 until they are inside an encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor

from scramjet.errors import ConfigError

Observations: TypeAlias = "Tensor | dict[str, Observations]"

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary and Dict of these"


def floats_as_float32(obs: Observations) -> Observations:
    """Observations with every floating-point entry as float32 and all others as they are, as networks take them."""
    if isinstance(obs, Tensor):
        return obs if obs.dtype == torch.float32 or not obs.is_floating_point() else obs.float()
    return {name: floats_as_float32(entry) for name, entry in obs.items()}


def lowest_observations(space: Any, num_rows: int) -> Observations:
    """`num_rows` rows of zeros, or of a discrete space's lowest number, as a network gets them."""
    if isinstance(space, Dict):
        return {name: lowest_observations(entry, num_rows) for name, entry in space.spaces.items()}
    if isinstance(space, Discrete):
        return torch.full((num_rows, 1), int(space.start))
    if isinstance(space, MultiDiscrete):
        start = torch.from_numpy(np.asarray(space.start, space.dtype))
        return start.expand(num_rows, *space.shape).clone()
    if isinstance(space, Box | MultiBinary):
        return floats_as_float32(torch.from_numpy(np.zeros((num_rows, *space.shape), space.dtype)))
    raise unsupported_space(space)


def without_entries(space: Any, names: Sequence[str]) -> Any:
    """A Dict space without the entries of these names (`inner.name` for nested ones); refuses names it lacks."""
    for name in names:
        space = _without_entry(space, name.split("."), name)
    return space


def _without_entry(space: Any, path: list[str], name: str) -> Any:
    known = list(space.spaces) if isinstance(space, Dict) else []
    if path[0] not in known or (len(path) > 1 and not isinstance(space.spaces[path[0]], Dict)):
        entries = f"its entries: {', '.join(known)}" if known else "it has no entries to leave out"
        raise ConfigError(f"policy.ignore names '{name}', and the observation is {space}; {entries}")
    kept = dict(space.spaces)
    if len(path) > 1:
        kept[path[0]] = _without_entry(kept[path[0]], path[1:], name)
    else:
        del kept[path[0]]
    if not kept:
        raise ConfigError(f"policy.ignore leaves nothing to see: '{name}' is the last entry of {space}")
    return Dict(kept)


def describe_observations(obs: Observations) -> str:
    """Shapes and number types of a batch, in words: `[2, 4] float32`, `{position: [2, 2] int64, board: ...}`."""
    if isinstance(obs, Tensor):
        return f"{list(obs.shape)} {str(obs.dtype).removeprefix('torch.')}"
    return "{" + ", ".join(f"{name}: {describe_observations(entry)}" for name, entry in obs.items()) + "}"


def unsupported_space(space: Any) -> ConfigError:
    """The error for an observation space without an encoder."""
    return ConfigError(f"no network takes observations of the space {space}; supported: {SUPPORTED}")
