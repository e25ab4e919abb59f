"""Legal actions: drawn at random for checks and benchmarks, and told from illegal ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.envs.api import Box, Discrete
from scramjet.errors import WorldError


def random_actions(pool: Pool, out: Transition, random: np.random.Generator) -> np.ndarray:
    """One legal action for each row [R, ...], drawn evenly: a world may rely on its mask."""
    space = pool.action_space
    if isinstance(space, Box):
        low, high = np.maximum(space.low, -10.0), np.minimum(space.high, 10.0)
        return random.uniform(low, high, (pool.num_rows, *space.shape)).astype(np.float32)
    if isinstance(space, Discrete):
        return _random_choices(pool, out.mask, int(space.n), random)
    actions = np.zeros((pool.num_rows, len(space.nvec)), np.int64)
    start = 0
    for k, size in enumerate(int(n) for n in space.nvec):
        actions[:, k] = _random_choices(pool, out.mask[:, start : start + size], size, random)
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
    if isinstance(space, Box):
        bad = ~(np.isfinite(actions) & (actions >= space.low) & (actions <= space.high)).reshape(len(actions), -1).all(
            1
        )
        return (int(np.flatnonzero(bad)[0]), f"outside {space!r}") if bad.any() else None
    sizes = np.array([space.n]) if isinstance(space, Discrete) else np.asarray(space.nvec)
    choices = actions.reshape(len(actions), -1)
    outside = ((choices < 0) | (choices >= sizes)).any(1)
    if outside.any():
        return int(np.flatnonzero(outside)[0]), f"outside {space!r}"
    if mask is None or not mask.shape[1]:
        return None
    places = choices + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    masked = ~np.take_along_axis(mask, places, axis=1).all(1)
    return (int(np.flatnonzero(masked)[0]), "masked as illegal in the state") if masked.any() else None
