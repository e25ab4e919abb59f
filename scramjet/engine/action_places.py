"""Asks a world's `action_at` which action a click on its picture means, and checks what it answers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from scramjet.engine.random_play import random_actions
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Discrete, Env
from scramjet.errors import ScramjetError, WorldError, shortened

POINTS = 12
"""Points along each side of the picture that a check asks for."""
POSITIONS = 10


def says_where_actions_lie(env: Env) -> bool:
    """Whether the world has an `action_at` of its own."""
    return type(env).action_at is not Env.action_at


def action_at(env: Env, s: Any, x: float, y: float) -> int | None:
    """The action at a point of the picture of `s`, or None; raises a WorldError where the world answers neither."""
    name = f"{type(env).__name__}.action_at"
    try:
        found = env.action_at(s, x, y)
    except ScramjetError:
        raise
    except Exception as error:
        raise WorldError(f"{name} raised {type(error).__name__} at x={x:.3f}, y={y:.3f}: {error}") from error
    if found is None:
        return None
    count = env.action_space.n if isinstance(env.action_space, Discrete) else 0
    if isinstance(found, bool) or not isinstance(found, int | np.integer) or not -1 <= found < count:
        raise WorldError(
            f"{name} gave {shortened(found)} at x={x:.3f}, y={y:.3f}; return an action of {env.action_space}, or None "
            f"where a click means nothing"
        )
    return None if found == -1 else int(found)


def look_at_clicks(env: Env, _actions: np.ndarray) -> str:
    """`action_at` gives an action or none at points of the picture in some positions, and changes nothing."""
    pool = NativePool(env, 1, backend="interpreted")
    out, random = pool.reset(0), np.random.default_rng(0)
    ticks = ((np.arange(POINTS) + 0.5) / POINTS).tolist()
    found: set[int | None] = set()
    for _step in range(POSITIONS):
        state = pool.states()[0]
        before = state.tobytes()
        for x, y in itertools.product(ticks, ticks):
            found.add(action_at(env, pool.as_record(state), x, y))
            if state.tobytes() != before:
                raise WorldError(f"{type(env).__name__}.action_at changes the state; it may only read it")
        out = pool.step(random_actions(pool, out, random))
    num_places = len(found - {None})
    if num_places == 0:
        raise WorldError(
            f"{type(env).__name__}.action_at gave no action at any point of the first {POSITIONS} pictures; x and y "
            f"are shares of the picture's width and height, from 0 to 1"
        )
    return f"clicks on the picture mean {num_places} of {env.action_space.n} actions"
