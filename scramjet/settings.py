"""What all config classes share: values brought to their declared types, checks that name the field and the fix.

Values reach a config from Python, from a file or from the command line; `settle` makes them mean the same from each.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from scramjet.errors import ConfigError, shortened

NONE_WORDS = ("none", "None")
"""How a file or flag writes `None`, which TOML has no word for."""


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def settle(config: Any, prefix: str = "") -> None:
    """Bring every field of a frozen dataclass to its declared type; refuse what does not fit."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        value = coerce(prefix + field.name, getattr(config, field.name), hints[field.name])
        object.__setattr__(config, field.name, value)


def require(config: Any, names: Iterable[str], holds: Callable[[Any], bool], rule: str, prefix: str = "") -> None:
    """Check fields by a rule in words."""
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in names and not holds(value):
            raise ConfigError(f"{prefix}{field.name}={value} {rule}; the default is {_default(field)}")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default is not MISSING else "none"


def coerce(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint`, or a ConfigError naming the field, the value and what fits."""
    fitting = _fit(value, hint)
    if fitting is _NO_FIT:
        is_large = isinstance(value, int) and abs(value) >= _LARGE
        raise ConfigError(
            f"{name}={shortened(value)} must be {describe(hint)}{' of at most 63 bits' if is_large else ''}"
        )
    return fitting


_NO_FIT = object()
_LARGE = 2**63


def _fit(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        parse = next((item.parse for item in arguments[1:] if isinstance(item, Spelling)), None)
        return _fit_parsed(value, arguments[0], parse)
    if origin in (Union, types.UnionType):
        none_first = sorted(arguments, key=lambda argument: argument is not type(None))  # "none" is also a str
        fits = (_fit(value, argument) for argument in none_first)
        return next((fit for fit in fits if fit is not _NO_FIT), _NO_FIT)
    if origin is Literal:
        return value if value in arguments and type(value) is type(arguments[0]) else _NO_FIT
    if origin is tuple:
        items = [_fit(item, arguments[0]) for item in value] if isinstance(value, list | tuple) else [_NO_FIT]
        return _NO_FIT if _NO_FIT in items else tuple(items)
    if origin is dict:
        return dict(value) if isinstance(value, dict) else _NO_FIT
    return _fit_plain(value, hint)


def _fit_plain(value: Any, hint: Any) -> Any:
    if hint is type(None):
        return None if value is None or value in NONE_WORDS else _NO_FIT
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return int(value) if is_number and value == value and abs(value) < _LARGE and value == int(value) else _NO_FIT
    if hint is float:
        return float(value) if is_number and value == value else _NO_FIT
    return value if isinstance(value, hint) else _NO_FIT


def _fit_parsed(value: Any, hint: Any, parse: Callable[[str], Any] | None) -> Any:
    if parse is not None and isinstance(value, str):
        try:
            return parse(value)
        except ValueError:
            return _NO_FIT
    return _fit(value, hint)


class Spelling:
    """An annotation: strings are read by `parse`, so that a file may say "40M"."""

    def __init__(self, parse: Callable[[str], Any], words: str) -> None:
        self.parse = parse
        self.words = words


def describe(hint: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((item.words for item in arguments[1:] if isinstance(item, Spelling)), describe(arguments[0]))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if origin is tuple:
        return f"a list ({describe(arguments[0])} each)"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))


def largest_divisor(number: int, most: int) -> int:
    """The largest number up to `most` that divides `number`, for a message; of billions, one that is near enough."""
    start = min(number, most)
    nearest = (n for n in range(start, max(0, start - 100_000), -1) if number % n == 0)
    return next(nearest, math.gcd(number, most))
