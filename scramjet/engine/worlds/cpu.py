"""The CPU back-ends: a world's kernels compiled by Numba and kept on disk, or interpreted as plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
from numba import get_num_threads, njit

from scramjet.compile.addresses import AVAILABLE, call
from scramjet.compile.numba_internals import (
    BORROWING_HELPER_OPTIONS,
    ENTRY_OPTIONS,
    HELPER_OPTIONS,
    INLINED_HELPER_OPTIONS,
    keep_on_disk,
)
from scramjet.engine.layout import PlayedBy
from scramjet.engine.worlds import kernels
from scramjet.engine.worlds.rules import RulesCompiler, engine_functions, rule_functions, rules_of, stand_ins
from scramjet.engine.worlds.transitions import Compilers, Rules
from scramjet.envs.api import Env
from scramjet.errors import WorldError, did_you_mean

# IEEE arithmetic as in the interpreted source; division by zero gives inf or nan instead of a check per division.
_ARITHMETIC: dict[str, Any] = {"error_model": "numpy", "fastmath": False, "nogil": True}


def compile_kernels(env: Env, *, checks_bounds: bool = False) -> kernels.Kernels:
    """The kernels of `env`, each compiled (or read from the cache) when first called.

    `checks_bounds`: an index outside its array raises IndexError in place of reading or writing elsewhere.
    """
    options = {**_ARITHMETIC, "boundscheck": checks_bounds}
    # Rules are inlined into the loop over envs, where their parameters become constants; helpers as LLVM sees fit.
    rules_compiler = RulesCompiler(
        env,
        njit(**options, **INLINED_HELPER_OPTIONS),
        njit(**options, **HELPER_OPTIONS),
        variant="checks bounds" if checks_bounds else "",
    )
    fingerprint = rules_compiler.fingerprint

    def named(function: Callable[..., Any]) -> FunctionType:
        assert isinstance(function, FunctionType)
        function.__qualname__ = f"{function.__name__}_{fingerprint[:16]}"
        return function

    def inner(function: Callable[..., Any]) -> Callable[..., Any]:
        # It only borrows its arrays; to count references to them would cost more than a step of CartPole.
        return njit(**options, **BORROWING_HELPER_OPTIONS)(named(function))

    def view(function: Callable[..., Any]) -> Callable[..., Any]:
        # Put into its caller before references are counted, or each view handed over would count as one for ever.
        return njit(inline="always", **options, **HELPER_OPTIONS)(named(function))

    def entry(function: Callable[..., Any], **parallel: Any) -> Callable[..., Any]:
        dispatcher = njit(**options, **ENTRY_OPTIONS, **parallel)(named(function))
        keep_on_disk(dispatcher, fingerprint, function.__name__, f"{type(env).__name__}'s rules")
        return dispatcher

    compilers = Compilers(inner, view, entry, partial(entry, parallel=True), call=call if AVAILABLE else None)
    return kernels.build(rules_compiler.rules(), compilers)


def available_threads() -> int:
    """How many threads the compiled kernels may use at most."""
    return int(get_num_threads())


# --- The interpreted back-end: the same kernels as plain Python, for breakpoints, prints and checks
#
# Functions of a world that may only read its state are watched: what they change is an error. Compiled they are not,
# for a comparison of records would cost more than they do.
#
# Records are wrapped so that arithmetic means what it means compiled: a field reads as a Python int, float or bool
# (64 bits wide), whatever its storage, and a value that does not fit its field is an error naming the field. Only
# fields of float32 may differ in their last digits: compiled, two of them are multiplied in 32 bits.


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
