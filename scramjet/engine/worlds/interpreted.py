"""The interpreted back-end: the same kernels as plain Python, for breakpoints, prints and checks.

Records are wrapped so that arithmetic means what it means compiled: a field reads as a Python int, float or bool
(64 bits wide), whatever its storage, and a value that does not fit its field is an error naming the field. Only
fields of float32 may differ in their last digits: compiled, two of them are multiplied in 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.engine.worlds import kernels
from scramjet.engine.worlds.rules import interpreted_rules
from scramjet.engine.worlds.world_functions import Compilers
from scramjet.envs.api import Env
from scramjet.errors import did_you_mean


def interpreted_kernels(env: Env) -> kernels.Kernels:
    """The kernels of `env` as plain Python functions."""
    return kernels.build(interpreted_rules(env), Compilers(_as_is, _as_is, _as_is, _as_is))


def _as_is(function: Any) -> Any:
    return function


class Record:
    """One env's record (or one episode's stats) with its fields as attributes."""

    __slots__ = ("_row", "_world")

    def __init__(self, row: np.void, world: str) -> None:
        object.__setattr__(self, "_row", row)
        object.__setattr__(self, "_world", world)

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._row[name]
        except (KeyError, ValueError):
            raise self._unknown(name) from None
        return value.view(PlainArray) if isinstance(value, np.ndarray) else value.item()

    def __setattr__(self, name: str, value: Any) -> None:
        names = self._row.dtype.names or ()
        if name not in names:
            raise self._unknown(name)
        dtype = self._row.dtype[name]
        if dtype.kind in "iu" and isinstance(value, float | np.floating):
            value = int(value)  # compiled code truncates towards zero
        try:
            self._row[name] = value
        except (OverflowError, ValueError, TypeError) as error:
            raise ValueError(f"s.{name} is {dtype} and cannot hold {value!r}") from error

    def _unknown(self, name: str) -> AttributeError:
        names = [field for field in self._row.dtype.names or () if not field.startswith("_")]
        return AttributeError(
            f"{self._world} has no field '{name}'.{did_you_mean(name, names)} Declared: {', '.join(names) or 'none'}"
        )


class PlainArray(np.ndarray):
    """An array field whose elements read as Python numbers."""

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        return value.item() if isinstance(value, np.generic) else value


class Records:
    """A structured array whose elements are `Record`s."""

    def __init__(self, array: np.ndarray, world: str) -> None:
        self.array = array
        self.shape = array.shape
        self._world = world

    def __setitem__(self, index: int, record: Record) -> None:
        self.array[index] = record._row

    def __getitem__(self, index: int) -> Any:
        value = self.array[index]
        return Record(value, self._world) if isinstance(value, np.void) else Records(value, self._world)
