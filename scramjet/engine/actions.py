"""Legal actions: drawn at random for checks, told from illegal ones, and meant by clicks on a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.envs.api import Box, Discrete, Env
from scramjet.errors import ScramjetError, WorldError, shortened


def random_actions(
    pool: Pool, out: Transition, random: np.random.Generator, rows: np.ndarray | None = None
) -> np.ndarray:
    """One legal action for each row [R, ...], or for these `rows`, drawn evenly: a world may rely on its mask."""
    space, mask = pool.action_space, out.mask if rows is None else out.mask[rows]
    if isinstance(space, Box):
        low, high = np.maximum(space.low, -10.0), np.minimum(space.high, 10.0)
        return random.uniform(low, high, (len(mask), *space.shape)).astype(np.float32)
    if isinstance(space, Discrete):
        return _random_choices(pool, mask, int(space.n), random)
    actions = np.zeros((len(mask), len(space.nvec)), np.int64)
    start = 0
    for k, size in enumerate(int(n) for n in space.nvec):
        actions[:, k] = _random_choices(pool, mask[:, start : start + size], size, random)
        start += size
    return actions


def _random_choices(pool: Pool, mask: np.ndarray, num_choices: int, random: np.random.Generator) -> np.ndarray:
    if not mask.shape[1]:
        return random.integers(num_choices, size=len(mask))
    legal = mask.sum(1)
    if not legal.all():
        stuck = int(np.flatnonzero(legal == 0)[0]) * pool.num_envs // pool.num_rows
        raise WorldError(f"{pool.name}.mask leaves no legal action in env {stuck}; end the episode instead")
    chosen = random.integers(legal)  # the chosen-th legal action of each row
    return np.argmax(mask.cumsum(1) > chosen[:, None], axis=1)


def unfit_action(space: Any, actions: np.ndarray, mask: np.ndarray | None) -> tuple[int, str] | None:
    """The first row whose action is outside the space or masked, and which of the two; None where all are fit."""
    outside = outside_space(space, actions)
    if outside.any():
        return int(np.flatnonzero(outside)[0]), f"outside {space!r}"
    if mask is None:
        return None
    masked = is_masked(space, actions, mask)
    return (int(np.flatnonzero(masked)[0]), "masked as illegal in the state") if masked.any() else None


def outside_space(space: Any, actions: np.ndarray) -> np.ndarray:
    """Which actions [B, ...] are outside the space, [B] bool."""
    choices = _as_rows(actions)
    if isinstance(space, Box):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        return ~np.asarray((np.isfinite(choices) & (choices >= low) & (choices <= high)).all(1))
    return np.asarray(((choices < 0) | (choices >= _sizes(space))).any(1))


def is_masked(space: Any, actions: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Which actions [B, ...], all within the space, the mask [B, mask_size] calls illegal, [B] bool."""
    if not mask.shape[1]:
        return np.zeros(len(actions), np.bool_)
    sizes = _sizes(space)
    places = _as_rows(actions) + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return ~np.asarray(np.take_along_axis(mask, places, axis=1).all(1))


def _as_rows(actions: np.ndarray) -> np.ndarray:
    """Actions [B, ...] as [B, components], also if there are none of them."""
    return actions.reshape(len(actions), math.prod(actions.shape[1:]))


def _sizes(space: Any) -> np.ndarray:
    """The number of choices of each component of a discrete action."""
    return np.array([space.n]) if isinstance(space, Discrete) else np.asarray(space.nvec)


# --- A world's `action_at`: which action a click on its picture means


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
