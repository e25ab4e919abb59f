"""One parameter of a world, and those that a function takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

NEEDED = inspect.Parameter.empty
"""The default of a parameter that must be given."""
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class WorldParameter:
    """One parameter: what `--env.NAME` may set."""

    name: str
    default: Any  # NEEDED where there is none
    kind: str  # its type in words; "" where nobody says


def parameters_of(function: Callable[..., Any]) -> Iterator[WorldParameter]:
    """The parameters that a function or class takes by name."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    for parameter in signature.parameters.values():
        if parameter.kind in BY_NAME:
            yield WorldParameter(parameter.name, parameter.default, _kind_of(parameter))


def _kind_of(parameter: inspect.Parameter) -> str:
    if parameter.annotation is not inspect.Parameter.empty:
        return inspect.formatannotation(parameter.annotation).strip("'")
    return "" if parameter.default is NEEDED else type_in_words(parameter.default)


def type_in_words(value: Any) -> str:
    """The name of a default's type; "" of None, which tells nothing."""
    return "" if value is None else type(value).__name__
