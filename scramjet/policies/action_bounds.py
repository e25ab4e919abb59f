"""How the actions of a policy, which begin at about -1 to 1, are scaled to the bounds of a Box action space."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from scramjet.policies.config import PolicyConfig

NO_BOUND = 1e9
"""Bounds as large as this count as none: many envs give the largest float where there is no bound."""
WIDE = 1e3
"""Where actions are clipped, a new policy (deviation about 1) does not reach bounds wider than this."""
FIRST_ACTIONS = 3.0
"""A new policy's actions are seldom farther from 0."""


def unit_scale(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Centre and half width of the bounds of a space, float32 [D] each: [-1, 1] is stretched to them.

    A component that lacks a bound has centre 0 and half width 1, so that it is left as it is.
    """
    low, high = _bounds(space)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    centre, half_width = 0.5 * (high + low), 0.5 * (high - low)
    return centre.astype(np.float32), half_width.astype(np.float32)


def bounds_note(space: Any, config: PolicyConfig) -> str:
    """A note for the user on bounds that a new policy will hardly reach; empty where there are none."""
    if not isinstance(space, Box) or space.dtype.kind != "f":
        return ""
    low, high = _bounds(space)
    for i in range(len(low)):
        is_bounded = bool(np.isfinite(low[i])), bool(np.isfinite(high[i]))
        said = f"action {i} has bounds of {_shown(low[i])} to {_shown(high[i])}"
        if is_bounded in ((True, False), (False, True)):
            return f"{said}: with a bound on one side only it is not scaled, and a new policy begins at about -1 to 1"
        if is_bounded != (True, True) or config.bounded_actions != "clip":
            continue
        if high[i] - low[i] > WIDE or low[i] > FIRST_ACTIONS or high[i] < -FIRST_ACTIONS:
            return f"{said} and is clipped, and a new policy begins at about -1 to 1; --policy.bounded-actions scale"
    return ""


def _bounds(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Low and high, float64 [D] each, infinite where there is no bound."""
    low, high = (np.asarray(bound, np.float64).ravel() for bound in (space.low, space.high))
    return np.where(low <= -NO_BOUND, -np.inf, low), np.where(high >= NO_BOUND, np.inf, high)


def _shown(bound: float) -> str:
    return f"{bound:g}"
