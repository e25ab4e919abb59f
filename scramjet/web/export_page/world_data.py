"""What the page must know of a world beside its rules: the record's layout, spaces, players, names of actions."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from scramjet.engine.layout import (
    action_kind,
    action_layout,
    action_sizes,
    leaf_layout,
    mask_size,
    num_players,
    played_by,
    state_dtype,
)
from scramjet.engine.privileged import shown_space
from scramjet.engine.worlds.transitions import NO_LIMIT
from scramjet.envs.api import Dict, Env
from scramjet.errors import WorldError
from scramjet.web.export_page.natives import DTYPES


def world_data(env: Env) -> dict[str, Any]:
    """A world as a dictionary for JSON; refuses number types that the page's arrays do not have."""
    return {
        "name": type(env).__name__,
        "about": inspect.cleandoc(type(env).__doc__ or ""),
        "layout": _record_layout(env),
        "playedBy": played_by(env).value,
        "numPlayers": num_players(env),
        "maxSteps": env.max_episode_steps or NO_LIMIT,
        "observation": _observation_layout(shown_space(env)),
        "action": _action(env),
        "maskSize": mask_size(env),
        "hides": bool(env.hidden) and num_players(env) > 1,
        "moves": _moves(env),
        "actionNames": [str(name) for name in env.action_names],
    }


def _moves(env: Env) -> bool:
    """Whether the world is one of motion, to be played against the clock: places and speeds are single fractions."""
    state = state_dtype(env)
    return mask_size(env) == 0 and any(state[name].kind == "f" for name in env.state)


def _record_layout(env: Env) -> dict[str, Any]:
    dtype = state_dtype(env)
    fields = []
    for name in dtype.names or ():
        assert dtype.fields is not None
        field, offset = dtype.fields[name][:2]
        kind = field.base.name
        if kind not in DTYPES:
            raise WorldError(
                f"export-page cannot take {type(env).__name__}: state['{name}'] is {kind}, a number type that "
                f"JavaScript has no array for; use {', '.join(DTYPES[1:])}"
            )
        fields.append({"name": name, "dtype": kind, "shape": list(field.shape), "offset": offset})
    return {"size": dtype.itemsize, "fields": fields}


def _observation_layout(space: Any) -> dict[str, Any]:
    if isinstance(space, Dict):
        return {"entries": [[name, _observation_layout(inner)] for name, inner in space.spaces.items()]}
    shape, dtype = leaf_layout(space)
    if dtype.name not in DTYPES:
        raise WorldError(f"export-page cannot take observations of {dtype}: JavaScript has no array for it")
    return {"shape": list(shape), "dtype": dtype.name}


def _action(env: Env) -> dict[str, Any]:
    shape, _ = action_layout(env)
    space = env.action_space
    given: dict[str, Any] = {"kind": action_kind(env).value, "sizes": action_sizes(env).tolist(), "shape": list(shape)}
    if given["kind"] == "box":
        given["low"], given["high"] = (np.asarray(bound, float).ravel().tolist() for bound in (space.low, space.high))
    return given
