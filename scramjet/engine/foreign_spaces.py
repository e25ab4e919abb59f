"""Spaces of envs that others wrote, brought to ours: what they observe becomes rows of our arrays, and what a policy
chooses becomes what they expect.

Ours are Box, Discrete, MultiDiscrete, MultiBinary and nested Dicts of these, with choices from 0 and floats of 32 bits.
A Tuple becomes a Dict with the entries `item0`, `item1`, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from scramjet.engine.trees import named_leaves, space_tree
from scramjet.errors import WorldError

SUPPORTED_OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
SUPPORTED_ACTIONS = "Discrete, MultiDiscrete, MultiBinary and Box of floats"


def adapted_observation_space(name: str, space: Any) -> Any:
    """Our space for what `name` observes; refuses what has none."""
    adapted = _adapted(name, space, "observation_space")
    if isinstance(adapted, spaces.Dict) and not list(named_leaves(space_tree(adapted))):
        raise WorldError(f"{name}.observation_space is {space}: there is nothing to observe")
    return adapted


def _adapted(name: str, space: Any, where: str) -> Any:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _adapted(name, part, f"{where}[{key!r}]") for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        parts = {f"item{i}": _adapted(name, part, f"{where}[{i}]") for i, part in enumerate(space.spaces)}
        return spaces.Dict(parts)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if isinstance(space, spaces.MultiBinary):
        return space
    if isinstance(space, spaces.Box):
        if 0 in space.shape:
            raise WorldError(f"{name}.{where} is {space}: there is nothing to observe")
        if space.dtype.kind == "f" and space.dtype != np.float32:
            with np.errstate(over="ignore"):
                return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
        return space
    raise WorldError(f"{name}.{where} is {space!r}; scramjet observes {SUPPORTED_OBSERVATIONS}")


def adapted_action_space(name: str, space: Any) -> Any:
    """Our space for the actions of `name`; refuses what has none."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec).ravel())
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiDiscrete(np.full(int(np.prod(space.shape)), 2))
    if isinstance(space, spaces.Box) and space.dtype.kind == "f" and 0 not in (len(space.shape), *space.shape):
        with np.errstate(over="ignore"):
            return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
    raise WorldError(f"{name}.action_space is {space!r}; scramjet acts in {SUPPORTED_ACTIONS}")


def action_shape_and_dtype(space: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of one action of an adapted space, as a policy gives it."""
    if isinstance(space, spaces.Discrete):
        return (), np.dtype(np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.shape), np.dtype(np.int64)
    return tuple(space.shape), np.dtype(np.float32)


def native_action(space: Any) -> Callable[[np.ndarray], Any]:
    """A function from a row of a policy's actions to an action of the env's own space."""
    if isinstance(space, spaces.Discrete):
        first, kind = int(space.start), space.dtype.type
        return lambda action: kind(action + first)
    if isinstance(space, spaces.MultiDiscrete):
        start, shape, dtype = np.asarray(space.start), space.nvec.shape, space.dtype
        return lambda action: (action.reshape(shape) + start).astype(dtype)
    if isinstance(space, spaces.MultiBinary):
        shape, dtype = space.shape, space.dtype
        return lambda action: action.reshape(shape).astype(dtype)
    dtype = space.dtype
    return lambda action: action.astype(dtype)  # a copy: an env may keep it


def native_actions(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The same for a batch [N, ...] of them, as vector envs take it."""
    if isinstance(space, spaces.Discrete):
        first, dtype = int(space.start), space.dtype
        return lambda actions: (actions + first).astype(dtype)
    if isinstance(space, spaces.MultiDiscrete):
        start, shape, dtype = np.asarray(space.start), space.nvec.shape, space.dtype
        return lambda actions: (actions.reshape(len(actions), *shape) + start).astype(dtype)
    if isinstance(space, spaces.MultiBinary):
        shape, dtype = space.shape, space.dtype
        return lambda actions: actions.reshape(len(actions), *shape).astype(dtype)
    dtype = space.dtype
    return lambda actions: actions.astype(dtype)


def observation_parts(space: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """For each leaf of the adapted space, in its order: the way to it in an observation of theirs, and its start."""
    if isinstance(space, spaces.Dict):
        return [((key, *way), start) for key, part in space.spaces.items() for way, start in observation_parts(part)]
    if isinstance(space, spaces.Tuple):
        return [((i, *way), start) for i, part in enumerate(space.spaces) for way, start in observation_parts(part)]
    start = getattr(space, "start", 0)
    return [((), start if np.any(start) else 0)]


def observation_writer(space: Any, arrays: Sequence[np.ndarray]) -> Callable[[Any, int], None]:
    """A function (observation of theirs, row) that writes it into a row of our arrays, which are the adapted leaves."""
    parts = observation_parts(space)
    if len(parts) == 1 and parts[0] == ((), 0):
        (only,) = arrays

        def write_one(obs: Any, row: int) -> None:
            only[row] = obs

        return write_one

    def write(obs: Any, row: int) -> None:
        for (way, start), array in zip(parts, arrays, strict=True):
            value = obs
            for key in way:
                value = value[key]
            array[row] = np.asarray(value) - start if np.ndim(start) or start else value

    return write


def batch_parts(space: Any, obs: Any) -> list[Any]:
    """The leaves of a vector env's batch of observations [N, ...], in the order of the adapted space."""
    found = []
    for way, start in observation_parts(space):
        value = obs
        for key in way:
            value = value[key]
        found.append(value if not np.any(start) else np.asarray(value) - start)
    return found
