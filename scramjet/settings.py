"""Shared by all config classes: values are brought to their declared types, and checks name the field and the fix.

Values reach a config from Python, from a file or from the command line; `settle` makes them mean the same from each.
NumPy's numbers count as Python's, and a path as text. Numbers are finite and fit the arrays that they will stand in.
"""

from __future__ import annotations

import itertools
import math
import numbers
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from scramjet.errors import ConfigError, did_you_mean, shortened

NONE_WORDS = ("none", "None")
"""How a file or flag writes None; TOML has no word for it."""

MAX_COUNT = 2**31 - 1
"""The largest count of anything; an env's index and step are stored in 32 bits."""
MAX_FLOAT = float(np.finfo(np.float32).max)
MIN_POSITIVE = float(np.finfo(np.float32).tiny)
"""The range of float32: a larger number is infinite in it, a smaller one above 0 is 0."""
_LARGE = 2**63

MAX_VALUES, MAX_DEPTH = 10_000, 16
"""Most values in a world's parameters, lists and tables included, and how deep they may nest."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # all but line ends and tabs; halves of characters


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


@cache
def _declared(config_class: Any) -> dict[str, Any]:
    """The type of every field, evaluated once: a config is made many times."""
    return get_type_hints(config_class, include_extras=True)


def settle(config: Any, prefix: str = "") -> None:
    """Bring every field of a frozen dataclass to its declared type; raises a ConfigError for one that does not fit."""
    hints = _declared(config.__class__)
    for field in fields(config):
        value = coerce(prefix + field.name, getattr(config, field.name), hints[field.name])
        object.__setattr__(config, field.name, value)


def require(config: Any, names: Iterable[str], holds: Callable[[Any], bool], rule: str, prefix: str = "") -> None:
    """Check that `holds` is true of these fields; else a ConfigError states `rule`."""
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in names and not holds(value):
            raise ConfigError(f"{prefix}{field.name}={value} {rule}; the default is {_default(field)}")


def require_counts(
    config: Any, names: Iterable[str], *, least: int = 1, most: int = MAX_COUNT, prefix: str = ""
) -> None:
    """Check that these fields are from `least` to `most`, where they are numbers and not `auto` or none."""
    hints = _declared(config.__class__)
    for name in names:
        words = [each for each in ("auto", "none") if each in describe(hints[name])]
        other = f" (or {words[0]!r})" if words else ""
        whole = f"must be from {least} to {most}{other}" if most <= _SMALL else ""
        rule = whole or f"must be at least {least}{other}"
        require(config, (name,), lambda x: not isinstance(x, int) or least <= x, rule, prefix)
        rule = whole or f"must be at most {most}{other}"
        require(config, (name,), lambda x: not isinstance(x, int) or x <= most, rule, prefix)


_SMALL = 10_000
"""A range that ends below this is stated in full in messages."""


def _default(field: Field[Any]) -> Any:
    return "none" if field.default is MISSING or field.default is None else field.default


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`; for huge numbers a large one, not always the largest."""
    start = min(number, most)
    for divisor in range(start, max(0, start - _DIVISORS_TRIED), -1):
        if number % divisor == 0:
            return divisor
    return math.gcd(number, most)


_DIVISORS_TRIED = 100_000


def coerce(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint`, or a ConfigError naming the field, the value and what fits."""
    fitting = fit(value, hint)
    if fitting is NO_FIT:
        raise ConfigError(
            f"{name}={shortened(value)} must be {describe(hint)}{_reason(value, hint)}{nearest_choice(value, hint)}"
        )
    return fitting


def nearest_choice(value: Any, hint: Any) -> str:
    """`. Did you mean 'rnd'?` where a text, or one in a list, is much like a choice that the type `hint` has."""
    known = _choices(hint)
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str) and text not in known:
            meant = did_you_mean(text.lower(), known)
            return f".{meant}" if meant else ""
    return ""


def _choices(hint: Any) -> list[str]:
    """The words among the values of a type, none included."""
    if hint is type(None):
        return [NONE_WORDS[0]]
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return [*arguments]
    inner = arguments[:1] if get_origin(hint) in (Annotated, tuple) else arguments
    return [word for argument in inner for word in _choices(argument)]


NO_FIT = object()
"""What `fit` returns for a value that does not fit the type."""


def fit(value: Any, hint: Any) -> Any:
    """`value` as the type `hint`, or NO_FIT."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(value, np.generic):
        value = value.item()
    if origin is Annotated:
        parse = next((item.parse for item in arguments[1:] if isinstance(item, Spelling)), None)
        return _fit_parsed(value, arguments[0], parse)
    if origin in (Union, types.UnionType):
        none_first = sorted(arguments, key=lambda argument: argument is not type(None))  # "none" is also a str
        fits = (fit(value, argument) for argument in none_first)
        return next((fitting for fitting in fits if fitting is not NO_FIT), NO_FIT)
    if origin is Literal:
        return value if isinstance(value, str) and value in arguments else NO_FIT
    if origin is tuple:
        items = [fit(item, arguments[0]) for item in value] if isinstance(value, list | tuple) else [NO_FIT]
        return NO_FIT if any(item is NO_FIT for item in items) else tuple(items)
    if origin is dict:
        return dict(value) if isinstance(value, Mapping) else NO_FIT
    return _fit_plain(value, hint)


def _fit_plain(value: Any, hint: Any) -> Any:
    if hint is type(None):
        return None if value is None or (isinstance(value, str) and value in NONE_WORDS) else NO_FIT
    if hint is int:
        return _fit_int(value) if _is_number(value) else NO_FIT
    if hint is float:
        return _fit_float(value) if _is_number(value) else NO_FIT
    if hint is str:
        text = str(value) if isinstance(value, str | PurePath) else None
        return NO_FIT if text is None or CONTROL.search(text) else text
    if hint is Path:
        text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
        return Path(text) if isinstance(text, str) and "\0" not in text else NO_FIT
    return value if isinstance(value, hint) else NO_FIT


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _fit_int(value: Any) -> Any:
    if not isinstance(value, numbers.Integral):
        value = _fit_float(value)
        if value is NO_FIT or not value.is_integer():
            return NO_FIT
    return int(value) if abs(value) < _LARGE else NO_FIT


def _fit_float(value: Any) -> Any:
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return NO_FIT
    return number if abs(number) <= MAX_FLOAT else NO_FIT  # NaN is not


def _reason(value: Any, hint: Any) -> str:
    """Why a value of the right kind does not fit, and what to write instead; else empty."""
    kinds = _plain_types(hint)
    if _is_number(value) and float in kinds and _fit_float(value) is NO_FIT:
        if type(None) in kinds and value == math.inf:
            return "; for no bound write none"
        return f"; numbers are from {-MAX_FLOAT:.2g} to {MAX_FLOAT:.2g}"
    if _is_number(value) and int in kinds and abs(value) >= _LARGE:
        return " of at most 63 bits"
    if callable(value) and {float, str} <= kinds:
        return "; a value that changes is text: '0.001@0,0@end' falls from 0.001 to 0, and 0.001@0,0.0001@2M by step 2M"
    return " without control characters" if isinstance(value, str) and CONTROL.search(value) else ""


def _plain_types(hint: Any) -> set[Any]:
    """The types in a hint: float and NoneType for `float | None`."""
    arguments = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return {hint}.union(*(_plain_types(argument) for argument in arguments))


def _fit_parsed(value: Any, hint: Any, parse: Callable[[str], Any] | None) -> Any:
    if parse is not None and isinstance(value, str):
        try:
            return parse(value)
        except ValueError:
            return NO_FIT
    return fit(value, hint)


def plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A world's parameters as a run's config keeps them: numbers, text, true, false, none, lists and tables of these.

    Raises a ConfigError for anything else, and where there is too much of it; "none" is None, as everywhere.
    """
    for name in parameters:
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"env has no parameter {shortened(name)}: names are of letters, digits and _")
        if name == "name":
            raise ConfigError("env has no parameter 'name': so a config calls the world itself")
    plain: dict[str, Any] = _plain("env", parameters, itertools.count(), 0)
    return plain


def _plain(where: str, value: Any, counter: Iterator[int], depth: int) -> Any:
    if next(counter) > MAX_VALUES or depth > MAX_DEPTH:
        raise ConfigError(f"env holds too much: at most {MAX_VALUES} values, {MAX_DEPTH} deep")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {
            _plain_text(where, key): _plain(f"{where}.{key}"[:100], item, counter, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        items = [_plain(where, item, counter, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return None if value in NONE_WORDS else _plain_text(where, value)
    if isinstance(value, int) and abs(value) < _LARGE:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int | float):
        raise ConfigError(f"{where} is {shortened(value)}; numbers are finite, and whole ones of at most 63 bits")
    raise ConfigError(
        f"{where} is {shortened(value)}, a {type(value).__name__}; a parameter is a number, text, true, false, none, "
        f"or a list or table of these"
    )


def _plain_text(where: str, text: Any) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"{where} has no entry {shortened(text)}: names are text")
    if CONTROL.search(text):
        raise ConfigError(f"{where} is {shortened(text)}; text has no control characters")
    return str(text)


@dataclass(frozen=True)
class Spelling:
    """An annotation: strings are read by `parse`, so that a file may say "40M"."""

    parse: Callable[[str], Any]
    words: str
    """What may be written, for messages."""
    metavar: str
    """What may be written, for the help."""


@dataclass(frozen=True)
class Positional:
    """An annotation: on the command line the value is given without a flag."""

    metavar: str
    """The word for it: RUN, or RUN ... if there may be several."""


class Flat:
    """An annotation of a dataclass in another: its flags have no prefix."""


class NoFlag:
    """An annotation: there is no flag for this field."""


def describe(hint: Any) -> str:
    """A type in words, such as "a whole number or 'none'": in quotes as a file and Python have it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((item.words for item in arguments[1:] if isinstance(item, Spelling)), describe(arguments[0]))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if origin is tuple:
        return f"a list ({describe(arguments[0])} each)"
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        Path: "a path",
        type(None): repr(NONE_WORDS[0]),
    }
    return words.get(hint, getattr(hint, "__name__", str(hint)))
