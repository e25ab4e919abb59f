"""The interpreted back-end: the same kernels as plain Python, for breakpoints, prints and checks.

Functions of a world that may only read its state are watched: what they change is an error. Compiled they are not,
for a comparison of records would cost more than they do.

Records are wrapped so that arithmetic means what it means compiled: a field reads as a Python int, float or bool
(64 bits wide), whatever its storage, and a value that does not fit its field is an error naming the field. Only
fields of float32 may differ in their last digits: compiled, two of them are multiplied in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from scramjet.engine.layout import PlayedBy
from scramjet.engine.worlds import kernels
from scramjet.engine.worlds.rules import engine_functions, rule_functions, rules_of, stand_ins
from scramjet.engine.worlds.world_functions import Compilers, Rules
from scramjet.envs.api import Env
from scramjet.errors import WorldError, did_you_mean

READING_RULES = ("observe", "observe_critic", "mask", "stats", "alive", "seat", "score")


def interpreted_kernels(env: Env) -> kernels.Kernels:
    """The kernels of `env` as plain Python functions."""
    return kernels.build(interpreted_rules(env), Compilers(_as_is, _as_is, _as_is, _as_is))


def interpreted_rules(env: Env) -> Rules:
    """The world's functions as they are: breakpoints and prints work. What may only read the state is watched."""
    watched = {
        name: only_reads(env, name, function) if name in READING_RULES else function
        for name, function in rule_functions(env).items()
    }
    rules = rules_of(env, env, {**stand_ins(env), **engine_functions(env, watched)})
    if rules.played_by is PlayedBy.ONE:
        return rules
    return replace(rules, step=_checked_step(env, rules.step), seat=_checked_seat(env, rules.seat))


def _checked_step(env: Env, step: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> bool:
        terminated = step(*arguments)
        is_bool = isinstance(terminated, bool | np.bool_) or (
            isinstance(terminated, np.ndarray) and terminated.shape == () and terminated.dtype == np.bool_
        )
        if not is_bool:
            raise WorldError(
                f"{type(env).__name__}.step must return terminated, a bool; it returned {terminated!r}. "
                f"Rewards of players are written, reward[player] = ..., not returned"
            )
        return bool(terminated)

    return checked


def _checked_seat(env: Env, seat: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> int:
        number = seat(*arguments)
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < env.num_seats:
            raise WorldError(f"{type(env).__name__}.seat gave {number!r}; seats are 0 to {env.num_seats - 1}")
        return int(number)

    return checked


def only_reads(env: Env, rule: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, the rule of this name, with a WorldError for whatever it changes in the `Record` that it is given."""

    def watched(parameters: Any, s: Any, *others: Any) -> Any:
        before = s._row.tobytes()
        result = function(parameters, s, *others)
        if s._row.tobytes() != before:
            change = _change(np.frombuffer(before, s._row.dtype)[0], s._row)
            raise WorldError(
                f"{type(env).__name__}.{rule} changes the state: {change}. It may only read it; change the state and "
                f"draw random numbers in reset and step alone"
            )
        return result

    return watched


def _change(before: np.void, after: np.void) -> str:
    """What is different in a record, in words; the author's fields come before the engine's."""
    names = [name for name in after.dtype.names or () if before[name].tobytes() != after[name].tobytes()]
    own = [name for name in names if not name.startswith("_")]
    if not own and "_draw" in names:
        return "it draws random numbers"
    name = (own or names)[0]
    old, new = np.asarray(before[name]), np.asarray(after[name])
    place = next(place for place in np.ndindex(old.shape) if old[place].tobytes() != new[place].tobytes())
    index = f"[{', '.join(map(str, place))}]" if place else ""
    return f"s.{name}{index} was {old[place].item()} and became {new[place].item()}"


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
