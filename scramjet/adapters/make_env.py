"""Making an env with parameters: what goes wrong is told in one message that names the world."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from scramjet.errors import ENV_FAILURES, ScramjetError, WorldError, did_you_mean


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
