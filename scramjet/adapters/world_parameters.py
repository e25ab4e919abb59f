"""The parameters of worlds: those that a function takes, and making an env with them, which says in one message what is
wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scramjet.errors import ENV_FAILURES, ScramjetError, WorldError, did_you_mean

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


# --- making an env with them


def made(name: str, build: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """What `build` makes with these parameters, or one message about why there is none."""
    try:
        return build(**parameters)
    except ScramjetError:
        raise
    except ENV_FAILURES as error:  # whatever a user's function raises, it is the env that cannot be made
        given = f" with {parameters}" if parameters else ""
        raise WorldError(f"{name} cannot be made{given}: {type(error).__name__}: {error}") from error


def check_arguments(name: str, build: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    """Refuse to make an env without what its class or function cannot do without, or with what it does not know."""
    try:
        inspect.signature(build).bind(**parameters)
        return
    except ValueError:  # written in C
        return
    except TypeError:
        taken = inspect.signature(build).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [each.name for each in taken if each.kind in named]
    for each in parameters:
        if each not in known and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
            raise WorldError(
                f"{name} has no parameter {each!r}.{did_you_mean(each, known)} Parameters: {', '.join(known) or 'none'}"
            )
    missing = [each.name for each in taken if each.default is each.empty and each.kind in named]
    missing = [each for each in missing if each not in parameters]
    if missing:
        flags = " ".join(f"--env.{each.replace('_', '-')} ..." for each in missing)
        raise WorldError(
            f"{name} cannot be made without {', '.join(missing)}: add {flags} (in Python env_parameters), give "
            f"{'it a default' if len(missing) == 1 else 'them defaults'}, or write a function that makes it: "
            f"factory:FILE.py:FUNCTION"
        )
