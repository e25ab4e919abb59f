"""The state of somebody's env as plain data: numbers, texts and arrays, read from its attributes and put back.

Checkpoints travel between people, so nothing in them may run: no pickle. What is saved is what an env and its wrappers
hold as attributes; random generators, MuJoCo's and ALE's states by their own means. What cannot be saved is refused by
name, and whether the rest suffices is tried out: an env restored must go on as the one that was saved.
"""

from __future__ import annotations

import enum
import functools
import json
import logging
import random
import struct
import types
from collections import deque
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from scramjet.errors import ENV_FAILURES

DEEPEST = 8
"""Maximum depth to which attributes of attributes are followed."""

CONSTANT = (
    Space, EnvSpec, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
    functools.partial, enum.Enum, logging.Logger, np.dtype, np.ufunc, property, range, slice, frozenset, complex,
)  # fmt: skip
"""Taken as never changing; the trial finds out where they do."""

GENERATORS = {"PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}

SKIPPED = {
    "env", "spec", "_cached_spec", "metadata", "_metadata", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs",
}  # fmt: skip
"""Attributes of an env that are not its state; `env` is the next layer, seen to by itself."""


class UnsavableError(Exception):
    """Something in an env is no plain data, or does not fit the env it is put into."""


def capture(env: Any) -> bytes:
    """The state of an env and its wrappers."""
    arrays: list[np.ndarray] = []
    seen: set[int] = set()
    layers = [_fields(layer, type(layer).__name__, arrays, seen, 0) for layer in _layers(env)]
    shapes = [[array.dtype.str, list(array.shape)] for array in arrays]
    head = json.dumps({"layers": layers, "arrays": shapes}).encode()
    return b"".join([struct.pack("<Q", len(head)), head, *(array.tobytes() for array in arrays)])


def restore(env: Any, state: bytes) -> None:
    """Put an env of the same kind, already reset once, into a state."""
    try:
        _restore(env, state)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise UnsavableError(f"the state does not fit this env: {error}") from error


def _restore(env: Any, state: bytes) -> None:
    (size,) = struct.unpack_from("<Q", state)
    head = json.loads(state[8 : 8 + size])
    arrays, at = [], 8 + size
    for dtype, shape in head["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(state, np.dtype(dtype), count, at).reshape(shape))
        at += count * np.dtype(dtype).itemsize
    layers = _layers(env)
    if len(layers) != len(head["layers"]):
        raise UnsavableError(f"the state has {len(head['layers'])} layers of wrappers, and this env {len(layers)}")
    for layer, fields in zip(layers, head["layers"], strict=True):
        _put_fields(layer, fields, arrays)


def _layers(env: Any) -> list[Any]:
    """The wrappers from the outermost inwards, and the env itself."""
    layers = [env]
    while "env" in vars(layers[-1]) and hasattr(layers[-1].env, "step"):
        layers.append(layers[-1].env)
    return layers


def _fields(owner: Any, path: str, arrays: list[np.ndarray], seen: set[int], depth: int) -> dict[str, Any]:
    """The attributes of an object that may change, as JSON; arrays are appended to `arrays`."""
    seen.add(id(owner))
    fields = {}
    for name, value in vars(owner).items():
        if name not in SKIPPED and not _is_constant(value) and not _is_env(value):
            fields[name] = _saved(value, f"{path}.{name}", arrays, seen, depth)
    return {"class": type(owner).__qualname__, "fields": fields}


def _is_constant(value: Any) -> bool:
    """Whether a value is taken as never changing, also a list of such, as a game's actions; `why_inexact` finds those
    that do change."""
    if isinstance(value, list | tuple) and value:
        return all(isinstance(item, CONSTANT) for item in value)
    return isinstance(value, CONSTANT)


def _is_env(value: Any) -> bool:
    return hasattr(value, "step") and hasattr(value, "reset") and hasattr(value, "action_space")


def _saved(value: Any, path: str, arrays: list[np.ndarray], seen: set[int], depth: int) -> Any:
    """A value as JSON; arrays are appended to `arrays`, and the JSON says where."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "biufSU":
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1, "scalar": isinstance(value, np.generic)}
    if isinstance(value, bytes | bytearray):
        arrays.append(np.frombuffer(bytes(value), np.uint8))
        return {"bytes": len(arrays) - 1}
    own = _saved_by_its_own_means(value, arrays)
    if own is not None:
        return own
    items = functools.partial(_items, path=path, arrays=arrays)
    if type(value) in (list, tuple, set):
        return {type(value).__name__: items(value)}
    if type(value) is deque:
        return {"deque": items(value), "maxlen": value.maxlen}
    if type(value) is dict:
        return {"dict": [items(pair) for pair in value.items()]}
    if id(value) in seen:
        return {"seen": True}
    if hasattr(value, "__dict__") and not hasattr(type(value), "__slots__") and depth < DEEPEST:
        return {"object": _fields(value, path, arrays, seen, depth + 1)}
    raise UnsavableError(f"{path} is a {type(value).__name__}")


def _items(values: Any, path: str, arrays: list[np.ndarray]) -> list[Any]:
    """What a container holds, as JSON; objects in it are refused, since restoring them would run their constructors."""
    saved = []
    for value in values:
        if isinstance(value, CONSTANT):
            raise UnsavableError(f"{path} holds a {type(value).__name__}")
        saved.append(_saved(value, path, arrays, set(), DEEPEST))
    return saved


def _saved_by_its_own_means(value: Any, arrays: list[np.ndarray]) -> Any:
    """Random generators and simulators, by the means they have to save themselves; None for any other value."""
    kind = type(value).__name__
    if isinstance(value, np.random.Generator) and type(value.bit_generator).__name__ in GENERATORS:
        return {"generator": _items([value.bit_generator.state], "state", arrays)[0]}
    if isinstance(value, random.Random):
        return {"random": _items([value.getstate()], "state", arrays)[0]}
    if kind == "ALEInterface":
        arrays.append(np.frombuffer(_ale_bytes(value), np.uint8))
        return {"ale": len(arrays) - 1}
    if kind == "MjModel":
        return {"seen": True}  # a constant but for those who change it, whom the trial finds
    if kind == "MjData":
        names = _mujoco_fields(value)
        arrays += [getattr(value, name) for name in names]
        return {"mujoco": names, "first": len(arrays) - len(names), "time": float(value.time)}
    return None


def _ale_bytes(ale: Any) -> bytes:
    if ale.getFloat("repeat_action_probability") > 0:
        raise UnsavableError("ALE with sticky actions does not tell the last action, which it may repeat")
    state: bytes = ale.cloneState(include_rng=True).serialize()
    return state


def _mujoco_fields(data: Any) -> list[str]:
    """Arrays of a fixed size: the state, and what was derived from it before the last step, which envs read."""
    names = []
    for name in dir(data):
        if not name.startswith(("_", "efc_", "contact")):
            value = getattr(data, name, None)
            if isinstance(value, np.ndarray) and value.size and value.flags.writeable and value.dtype.kind in "biuf":
                names.append(name)
    return names


def _put_fields(owner: Any, saved: dict[str, Any], arrays: list[np.ndarray]) -> None:
    if type(owner).__qualname__ != saved["class"]:
        raise UnsavableError(f"the state is of a {saved['class']}, and this is a {type(owner).__qualname__}")
    for name, node in saved["fields"].items():
        current = vars(owner).get(name)
        value = _loaded(node, current, arrays)
        if value is not current:
            object.__setattr__(owner, name, value)


def _loaded(node: Any, current: Any, arrays: list[np.ndarray]) -> Any:
    """The value of a node; what others may refer to is filled in place."""
    if not isinstance(node, dict):
        return node
    if "array" in node:
        return _loaded_array(arrays[node["array"]], current, node["scalar"])
    if "bytes" in node:
        raw = arrays[node["bytes"]].tobytes()
        return bytearray(raw) if isinstance(current, bytearray) else raw
    for kind, make in (("list", list), ("tuple", tuple), ("set", set)):
        if kind in node:
            return make(_loaded(item, None, arrays) for item in node[kind])
    if "deque" in node:
        return deque([_loaded(item, None, arrays) for item in node["deque"]], node["maxlen"])
    if "dict" in node:
        return {_loaded(key, None, arrays): _loaded(value, None, arrays) for key, value in node["dict"]}
    if "generator" in node and current is None:
        return _new_generator(_loaded(node["generator"], None, arrays))
    _fill(node, current, arrays)
    return current


def _loaded_array(array: np.ndarray, current: Any, is_scalar: bool) -> Any:
    if is_scalar:
        return array[()]
    same = isinstance(current, np.ndarray) and (current.shape, current.dtype) == (array.shape, array.dtype)
    if same and current.flags.writeable:
        current[...] = array
        return current
    return array.copy()


def _new_generator(state: dict[str, Any]) -> np.random.Generator:
    if state["bit_generator"] not in GENERATORS:
        raise UnsavableError(f"there is no generator {state['bit_generator']!r}")
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


def _fill(node: dict[str, Any], current: Any, arrays: list[np.ndarray]) -> None:
    """Put an object that exists already into its saved state."""
    if "seen" in node:
        return
    if "object" in node:
        _put_fields(current, node["object"], arrays)
    elif "generator" in node and isinstance(current, np.random.Generator):
        current.bit_generator.state = _loaded(node["generator"], None, arrays)
    elif "random" in node and isinstance(current, random.Random):
        current.setstate(_loaded(node["random"], None, arrays))
    elif "ale" in node and type(current).__name__ == "ALEInterface":
        from ale_py import ALEState

        current.restoreState(ALEState(arrays[node["ale"]].tobytes()))
    elif "mujoco" in node and type(current).__name__ == "MjData":
        current.time = node["time"]
        for name, array in zip(node["mujoco"], arrays[node["first"] :], strict=False):
            held = getattr(current, name)
            if held.shape == array.shape:  # else it depends on what touches what, and the next step works it out
                held[...] = array
    else:
        raise UnsavableError(f"{sorted(node)[0]} does not fit a {type(current).__name__}")


# --- whether envs can be saved exactly: tried on two, one saved and one restored


TRIED_STEPS = 40


def why_inexact(saved: Any, other: Any) -> str | None:
    """Why envs of this kind cannot be saved exactly; None where they can.

    One is played, saved and played on; the other is restored, which must then see the very same, resets included.
    """
    try:
        saved.action_space.seed(0)
        actions = [saved.action_space.sample() for _ in range(TRIED_STEPS)]
        saved.reset(seed=1)
        _play(saved, actions[:7])
        state = capture(saved)
        other.reset(seed=2)
        restore(other, state)
        return None if is_same(_play(saved, actions), _play(other, actions)) else "an env restored went on differently"
    except ENV_FAILURES as problem:  # an env may also object to actions at random
        return f"{problem}" if isinstance(problem, UnsavableError) else f"{type(problem).__name__}: {problem}"


def _play(env: Any, actions: list[Any]) -> list[Any]:
    """Step an env and return all it showed; a reset halfway shows what its next episode would be."""
    seen: list[Any] = []
    for i, action in enumerate(actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append((deepcopy(obs), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated or i == len(actions) // 2:
            seen.append(deepcopy(env.reset()[0]))
    return seen


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of numbers and arrays, however nested, are equal; NaN equals NaN."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(is_same(mine, its) for mine, its in zip(one, other, strict=True))
    return bool(np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f"))
