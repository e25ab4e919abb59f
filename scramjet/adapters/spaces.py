"""Converts the spaces, observations and actions of other libraries' envs: a foreign space is adapted to one of ours,
observations are written to rows of our arrays, and a policy's actions become actions of the foreign space.

Ours are Box, Discrete, MultiDiscrete, MultiBinary and nested Dicts of these, with choices from 0 and floats of 32 bits.
A Tuple becomes a Dict with the entries `item0`, `item1`, and so on. Text in a Dict or Tuple is left out.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from scramjet.engine.privileged import CRITIC, POLICY, is_privileged
from scramjet.engine.trees import named_leaves, space_tree
from scramjet.errors import WorldError

SUPPORTED_OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
SUPPORTED_ACTIONS = "Discrete, MultiDiscrete, MultiBinary and Box of floats"


def adapted_observation_space(name: str, space: Any) -> Any:
    """The adapted observation space of the env `name`; raises a WorldError if there is none."""
    adapted = _adapted(name, space, "observation_space")
    if isinstance(adapted, spaces.Dict) and not list(named_leaves(space_tree(adapted))):
        raise WorldError(f"{name}.observation_space is {space}: there is nothing to observe")
    if is_privileged(adapted):
        raise WorldError(
            f"{name}.observation_space has the entries {POLICY} and {CRITIC}: scramjet's own names; rename"
        )
    return adapted


def _adapted(name: str, space: Any, where: str) -> Any:
    if isinstance(space, spaces.Dict):  # pairs keep their order; a dict would be sorted by its keys
        seen = {key: part for key, part in space.spaces.items() if not is_only_text(part)}
        return spaces.Dict([(key, _adapted(name, part, f"{where}[{key!r}]")) for key, part in seen.items()])
    if isinstance(space, spaces.Tuple):
        items = {i: part for i, part in enumerate(space.spaces) if not is_only_text(part)}
        return spaces.Dict([(f"item{i}", _adapted(name, part, f"{where}[{i}]")) for i, part in items.items()])
    is_known = isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box)
    if is_known and 0 in space.shape:
        raise WorldError(f"{name}.{where} is {space}: there is nothing to observe")
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if isinstance(space, spaces.MultiBinary):
        return space
    if isinstance(space, spaces.Box):
        if space.dtype.kind == "f" and space.dtype != np.float32:
            with np.errstate(over="ignore"):
                return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
        return space
    raise WorldError(f"{name}.{where} is {space!r}; scramjet observes {SUPPORTED_OBSERVATIONS}")


def is_only_text(space: Any) -> bool:
    """Whether a space is text, by Gymnasium's class or an env's own, or a Dict or Tuple of nothing but text."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = list(space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces)
        return bool(parts) and all(map(is_only_text, parts))
    return isinstance(space, spaces.Text) or getattr(getattr(space, "dtype", None), "kind", "") == "U"


def texts_left_out(space: Any, where: str = "") -> list[str]:
    """The names of the text parts of a space, which no policy sees: `mission`, `inner.mission`, `item1`."""
    if isinstance(space, spaces.Dict):
        parts = [(str(key), part) for key, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        parts = [(f"item{i}", part) for i, part in enumerate(space.spaces)]
    else:
        return [where] if is_only_text(space) else []
    return [name for key, part in parts for name in texts_left_out(part, f"{where}.{key}" if where else key)]


def plain_space(space: Any) -> Any:
    """A copy of a space in Gymnasium's own classes instead of an env's subclasses, so that any process can load it."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, plain_space(part)) for key, part in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([plain_space(part) for part in space.spaces])
    if isinstance(space, spaces.Discrete):
        plain = spaces.Discrete(int(space.n), start=int(space.start))
        plain.dtype = space.dtype  # older versions of Gymnasium take no dtype argument
        return plain
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(np.array(space.nvec), dtype=space.dtype.type, start=np.array(space.start))
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(space.n)
    if is_only_text(space):
        return spaces.Text(1)  # text is never read, so its details do not matter
    return spaces.Box(np.array(space.low), np.array(space.high), dtype=space.dtype.type)


def adapted_action_space(name: str, space: Any) -> Any:
    """The adapted action space of the env `name`; raises a WorldError if there is none."""
    if isinstance(space, spaces.MultiDiscrete) and 0 in space.shape:
        raise WorldError(f"{name}.action_space is {space}: there is nothing to choose")
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
    """Shape and dtype of one action of a policy, for an adapted action space."""
    if isinstance(space, spaces.Discrete):
        return (), np.dtype(np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.shape), np.dtype(np.int64)
    return tuple(space.shape), np.dtype(np.float32)


def num_choices(space: Any) -> int:
    """Entries of a mask of actions: the choices of all components; 0 for actions that are not masked."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(space.nvec.sum()) if isinstance(space, spaces.MultiDiscrete) else 0


def env_actions(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A function that turns a batch of a policy's actions [N, ...] into actions of the foreign space, [N, ...]."""
    if isinstance(space, spaces.Discrete):
        first, dtype = int(space.start), space.dtype
        return lambda actions: (actions + first).astype(dtype)
    if isinstance(space, spaces.MultiDiscrete):
        start, shape, dtype = np.asarray(space.start), space.nvec.shape, space.dtype
        return lambda actions: (actions.reshape(len(actions), *shape) + start).astype(dtype)
    if isinstance(space, spaces.MultiBinary):
        shape, dtype = space.shape, space.dtype
        return lambda actions: actions.reshape(len(actions), *shape).astype(dtype)
    dtype, within = space.dtype, _within(space)
    return lambda actions: within(actions.astype(dtype))


def env_action_of(space: Any) -> Callable[[Any], Any]:
    """A function that turns one action of a policy into an action of the foreign space, which an env may keep."""
    to_theirs = env_actions(space)
    return lambda action: to_theirs(np.asarray(action)[None])[0]


def _within(space: spaces.Box) -> Callable[[np.ndarray], np.ndarray]:
    """A function that clips actions to the bounds of a Box, if rounding the bounds to float32 can exceed them."""
    low, high = (bound.astype(np.float32).astype(space.dtype) for bound in (space.low, space.high))
    if (low >= space.low).all() and (high <= space.high).all():
        return lambda actions: actions
    return lambda actions: np.clip(actions, space.low, space.high)


def observation_parts(space: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """For each leaf of the adapted space, in its order: its keys in a foreign observation, and its first choice."""
    return [
        (way, getattr(leaf, "start", 0) if np.any(getattr(leaf, "start", 0)) else 0)
        for way, leaf in observed_leaves(space)
    ]


def observed_leaves(space: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves of a foreign space that are not text, each with the keys that lead to it."""
    if isinstance(space, spaces.Dict):
        return [((key, *way), leaf) for key, part in space.spaces.items() for way, leaf in observed_leaves(part)]
    if isinstance(space, spaces.Tuple):
        return [((i, *way), leaf) for i, part in enumerate(space.spaces) for way, leaf in observed_leaves(part)]
    return [] if is_only_text(space) else [((), space)]


class UnfitObservationError(ValueError):
    """An observation that does not fit its space; the message continues a sentence that names the env."""


def observation_writer(space: Any, arrays: Sequence[np.ndarray]) -> Callable[[Any, int], None]:
    """A function (observation, row) that writes a foreign observation into that row of `arrays`.

    `arrays` has one array for each leaf of the adapted space. The function raises `UnfitObservationError` for another
    shape than the space's; numbers are converted to the array's type.
    """
    parts = [
        (way, start, tuple(leaf.shape), array)
        for (way, start), (_, leaf), array in zip(observation_parts(space), observed_leaves(space), arrays, strict=True)
    ]
    if len(parts) == 1 and parts[0][:2] == ((), 0):
        _, _, shape, only = parts[0]

        def write_one(obs: Any, row: int) -> None:
            try:
                if obs.shape == shape:
                    only[row] = obs
                    return
            except (AttributeError, TypeError, ValueError):
                pass
            _write_checked(obs, (), shape, only, row)

        return write_one

    def write(obs: Any, row: int) -> None:
        for way, start, shape, array in parts:
            value = _part_of(obs, way)
            if np.any(start):
                value = np.asarray(value) - start
            _write_checked(value, way, shape, array, row)

    return write


def _part_of(obs: Any, way: tuple[Any, ...]) -> Any:
    """The part of an observation that the keys `way` lead to."""
    value = obs
    for key in way:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise UnfitObservationError(f"observed {_said(value)}, which has no {key!r}") from None
    return value


def _write_checked(value: Any, way: tuple[Any, ...], shape: tuple[int, ...], array: np.ndarray, row: int) -> None:
    """Write a value that may be a list or a number instead of an array; raises if its shape is not the space's.

    Shapes may differ in leading axes of length 1; nothing else is broadcast.
    """
    where = "".join(f"[{key!r}]" for key in way)
    try:
        given = np.shape(value)
    except ValueError:
        given = (-1,)  # lists of different lengths
    if without_leading_ones(given) != without_leading_ones(shape):
        raise UnfitObservationError(
            f"observed {_said(value)}, and its observation_space{where} has the shape {list(shape)}; return such an "
            f"array"
        )
    try:
        array[row] = value
    except (TypeError, ValueError, OverflowError):
        raise UnfitObservationError(
            f"observed {_said(value)}, which its observation_space{where} of {array.dtype} cannot hold"
        ) from None


def without_leading_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the axes of length 1 that it begins with."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def _said(value: Any) -> str:
    """A short description of a value: dtype and shape of an array, else its shortened repr."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def batch_parts(space: Any, obs: Any) -> list[Any]:
    """The leaves of a vector env's observations, each [N, ...], in the order of the adapted space's leaves."""
    found = []
    for way, start in observation_parts(space):
        value = obs
        for key in way:
            value = value[key]
        found.append(value if not np.any(start) else np.asarray(value) - start)
    return found
