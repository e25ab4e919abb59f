"""Converts observation and action spaces to plain data for a file, and back.

A file may come from a stranger: kinds, number types and sizes are checked before a space is made of them, and a
space is never larger than a policy's observation could sensibly be.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from gymnasium import spaces

from scramjet.adapters.spaces import is_only_text

MAX_NUMBERS = 1 << 20
"""Maximum number of numbers in an observation, all its parts together."""
MAX_LISTED = 1 << 16
"""Maximum number of bounds or sizes that are listed one by one; those of a larger Box must all be the same."""
MAX_PARTS, MAX_DEPTH, MAX_AXES, MAX_KEY_LENGTH = 1024, 8, 8, 256
MAX_CHOICES = 1 << 24
"""Maximum number of choices of all discrete parts together: each may become an input of the network."""

_DTYPES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
)


def space_to_data(space: Any) -> dict[str, Any] | None:
    """A space in plain numbers, text, lists and dicts; None for one that `space_from_data` would not read back."""
    try:
        data = _to_data(space)
        return data if _to_data(space_from_data(data)) == data else None
    except ValueError:
        return None


def space_from_data(data: Any) -> Any:
    """The space that `space_to_data` described; a ValueError says what is wrong with anything else."""
    return _Reader().read(data, 0)


def _to_data(space: Any) -> dict[str, Any]:
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "parts": [[name, _to_data(part)] for name, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "parts": [_to_data(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start), **_choice_dtype(space)}
    if isinstance(space, spaces.MultiDiscrete):
        shape = list(space.nvec.shape)
        sizes, starts = space.nvec.ravel().tolist(), np.asarray(space.start).ravel().tolist()
        return {"kind": "multi_discrete", "shape": shape, "sizes": sizes, "starts": starts, **_choice_dtype(space)}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": list(space.shape)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _bounds_to_data(space.low), "high": _bounds_to_data(space.high)}
        return {"kind": "box", "dtype": str(space.dtype), "shape": list(space.shape), **bounds}
    if is_only_text(space):
        return {"kind": "text"}
    raise ValueError(f"there is no form for {space}")


def _choice_dtype(space: Any) -> dict[str, str]:
    """The number type of choices, where it is not the usual one."""
    return {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}


def _bounds_to_data(bounds: np.ndarray) -> Any:
    """One number where all are the same, else a list of all; infinity, which JSON has no number for, as text."""
    numbers = bounds.ravel()
    if len(numbers) and (numbers == numbers[0]).all():
        numbers = numbers[:1]
    elif len(numbers) > MAX_LISTED:
        raise ValueError(f"{len(numbers)} different bounds are too many")
    listed = [str(number) if math.isinf(number) else number for number in numbers.tolist()]
    return listed[0] if len(listed) == 1 else listed


class _Reader:
    """Builds one space and counts what it is made of."""

    def __init__(self) -> None:
        self._parts = self._numbers = self._choices = 0

    def read(self, data: Any, depth: int) -> Any:
        """The space of one node."""
        self._parts += 1
        if self._parts > MAX_PARTS or depth > MAX_DEPTH:
            raise ValueError(f"a space has at most {MAX_PARTS} parts, {MAX_DEPTH} deep")
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind == "dict":
            return self._dict(_fields(data, "parts")[0], depth)
        if kind == "tuple":
            return self._tuple(_fields(data, "parts")[0], depth)
        if kind == "text":
            _fields(data)
            return spaces.Text(1)  # policies do not see text: any will do
        if kind == "discrete":
            rest, dtype = _without_dtype(data)
            size, start = _fields(rest, "n", "start")
            size, first = self._size(size), _whole(start, -(2**62), 2**62)
            if not np.iinfo(dtype).min <= first <= np.iinfo(dtype).max - size + 1:
                raise ValueError(f"choices of discrete are beyond {dtype}")
            made = spaces.Discrete(size, start=first)
            made.dtype = dtype  # older versions of Gymnasium cannot be told
            return made
        if kind == "multi_discrete":
            rest, dtype = _without_dtype(data)
            shape, sizes, starts = _fields(rest, "shape", "sizes", "starts")
            return self._multi_discrete(shape, sizes, starts, dtype=dtype)
        if kind == "multi_binary":
            return spaces.MultiBinary(self._shape(_fields(data, "shape")[0], least_axes=1))
        if kind == "box":
            return self._box(*_fields(data, "dtype", "shape", "low", "high"))
        raise ValueError("a space is a dict, tuple, discrete, multi_discrete, multi_binary, box or text")

    def _dict(self, parts: Any, depth: int) -> spaces.Dict:
        if not isinstance(parts, list) or not 0 < len(parts) <= MAX_PARTS:
            raise ValueError("the parts of a dict are a list of names and spaces")
        found: dict[str, Any] = {}
        for part in parts:
            name = part[0] if isinstance(part, list) and len(part) == 2 else None
            if not isinstance(name, str) or not 0 < len(name) <= MAX_KEY_LENGTH or name in found:
                raise ValueError("a part of a dict is a name of its own and a space")
            found[name] = self.read(part[1], depth + 1)
        return spaces.Dict([*found.items()])  # a list keeps its order

    def _tuple(self, parts: Any, depth: int) -> spaces.Tuple:
        if not isinstance(parts, list) or not 0 < len(parts) <= MAX_PARTS:
            raise ValueError("the parts of a tuple are a list of spaces")
        return spaces.Tuple([self.read(part, depth + 1) for part in parts])

    def _multi_discrete(self, shape: Any, sizes: Any, starts: Any, *, dtype: np.dtype[Any]) -> spaces.MultiDiscrete:
        whole_shape = self._shape(shape, least_axes=1)
        count = math.prod(whole_shape)
        if count > MAX_LISTED:
            raise ValueError(f"there are at most {MAX_LISTED} choices at once")
        if not isinstance(sizes, list) or not isinstance(starts, list) or not len(sizes) == len(starts) == count:
            raise ValueError(f"multi_discrete of shape {list(whole_shape)} has {count} sizes and starts")
        made = np.array([self._size(size) for size in sizes], np.int64).reshape(whole_shape)
        begins = np.array([_whole(start, -(2**62), 2**62) for start in starts], np.int64).reshape(whole_shape)
        if (begins < np.iinfo(dtype).min).any() or (begins + made - 1 > np.iinfo(dtype).max).any():
            raise ValueError(f"choices of multi_discrete are beyond {dtype}")
        return spaces.MultiDiscrete(made, dtype=dtype.type, start=begins)

    def _box(self, dtype: Any, shape: Any, low: Any, high: Any) -> spaces.Box:
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise ValueError("a box has the dtype of a number")
        whole_shape, kind = self._shape(shape, least_axes=0), np.dtype(dtype)
        lows, highs = (_bounds(bound, whole_shape, kind) for bound in (low, high))
        if (lows > highs).any():
            raise ValueError("a low of a box is above its high")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bounds that a type cannot hold
            return spaces.Box(lows, highs, whole_shape, kind.type)

    def _shape(self, shape: Any, *, least_axes: int) -> tuple[int, ...]:
        if not isinstance(shape, list) or not least_axes <= len(shape) <= MAX_AXES:
            raise ValueError(f"a shape is a list of {least_axes} to {MAX_AXES} sizes")
        sizes = tuple(_whole(size, 1, MAX_NUMBERS) for size in shape)
        self._numbers += math.prod(sizes)
        if self._numbers > MAX_NUMBERS:
            raise ValueError(f"an observation has at most {MAX_NUMBERS} numbers")
        return sizes

    def _size(self, size: Any) -> int:
        self._choices += _whole(size, 1, MAX_CHOICES)
        if self._choices > MAX_CHOICES:
            raise ValueError(f"there are at most {MAX_CHOICES} choices")
        return int(size)


def _without_dtype(data: dict[str, Any]) -> tuple[dict[str, Any], np.dtype[Any]]:
    """The fields of choices but for their number type, and that type."""
    name = data.get("dtype", "int64")
    if not isinstance(name, str) or name not in _DTYPES or np.dtype(name).kind not in "iu":
        raise ValueError("choices have the dtype of a whole number")
    return {key: value for key, value in data.items() if key != "dtype"}, np.dtype(name)


def _fields(data: dict[str, Any], *names: str) -> list[Any]:
    """The values of these keys, which are all that there may be beside the kind."""
    if set(data) != {"kind", *names}:
        raise ValueError(f"a {data['kind']} space has the fields {', '.join(names)}")
    return [data[name] for name in names]


def _whole(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"a whole number from {least} to {most} is needed")
    return value


def _bounds(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if not isinstance(data, list):
        return np.full(shape, _bound(data, dtype), dtype)
    if len(data) != math.prod(shape) or len(data) > MAX_LISTED:
        raise ValueError(f"a box of shape {list(shape)} has one bound, or up to {MAX_LISTED}, one for each number")
    return np.array([_bound(number, dtype) for number in data], dtype).reshape(shape)


def _bound(number: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        if number in ("inf", "-inf") and isinstance(number, str):
            return float(number)
        if type(number) in (int, float) and abs(number) <= float(np.finfo(dtype).max):
            return float(number)
    elif dtype.kind == "b":
        if type(number) is bool:
            return number
    elif type(number) is int and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        return number
    raise ValueError(f"a bound of a box is no {dtype}")
