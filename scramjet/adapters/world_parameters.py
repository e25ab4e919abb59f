"""Which parameters a world takes, by name, default and type: native worlds', ALE's, Gymnasium's and a function's."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from scramjet.adapters.registry import SET_BY_US, check_gymnasium_id, factory_of, parameter_defaults

NEEDED = inspect.Parameter.empty
"""The default of a parameter that must be given."""
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class WorldParameter:
    """One parameter: what `--env.NAME` may set."""

    name: str
    default: Any  # NEEDED where there is none
    kind: str  # its type in words; "" where nobody says


def world_parameters(name: str) -> list[WorldParameter]:
    """The parameters of a world, as far as its library tells of them; an env of another library is not made."""
    known = parameter_defaults(name)
    if known is not None:
        return [WorldParameter(key, value, _type_of(value)) for key, value in known.items()]
    library, _, env_id = name.partition(":")
    hidden = SET_BY_US.get(library, ())
    if library in ("gym", "mujoco", "vec"):
        found = _of_gymnasium(name, env_id)
    elif library == "factory":
        found = list(_of_function(factory_of(name)))
    else:
        found = []
    return [parameter for parameter in found if parameter.name not in hidden]


def _of_gymnasium(name: str, env_id: str) -> list[WorldParameter]:
    """Those of a registered env: its constructor's, with the values it is registered with, and its time limit."""
    import gymnasium

    check_gymnasium_id(name, env_id)
    spec = gymnasium.registry[env_id.rpartition(":")[2]]
    found = {parameter.name: parameter for parameter in _of_entry_point(spec.entry_point)}
    for key, value in spec.kwargs.items():
        kind = found[key].kind if key in found else _type_of(value)
        found[key] = WorldParameter(key, value, kind)
    limit = WorldParameter("max_episode_steps", spec.max_episode_steps, "int")
    return [*found.values(), *([limit] if limit.name not in found else [])]


def _of_entry_point(entry_point: Any) -> list[WorldParameter]:
    """Those of what a registration names; none where it cannot be loaded, which is told when an env is made."""
    from gymnasium.envs.registration import load_env_creator

    with contextlib.suppress(Exception):  # the module may need a library that is not there
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        return list(_of_function(creator))
    return []


def _of_function(function: Callable[..., Any]) -> Iterator[WorldParameter]:
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
    return "" if parameter.default is NEEDED else _type_of(parameter.default)


def _type_of(value: Any) -> str:
    return "" if value is None else type(value).__name__
