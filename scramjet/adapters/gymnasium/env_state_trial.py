"""Whether the state of an env can be saved exactly: tried on two envs, one saved and one restored."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.adapters.gymnasium.env_state import UnsavableError, capture, restore
from scramjet.errors import ENV_FAILURES

TRIED_STEPS = 40


def why_inexact(saved: Any, other: Any) -> str | None:
    """Why envs of this kind cannot be saved exactly; None where they can.

    One is played, saved and played on; the other is restored, which must then see the very same, resets included.
    """
    try:
        saved.action_space.seed(0)
        actions = [saved.action_space.sample() for _ in range(TRIED_STEPS)]
        saved.reset(seed=1)
        _play(saved, actions[:7])
        state = capture(saved)
        other.reset(seed=2)
        restore(other, state)
        return None if is_same(_play(saved, actions), _play(other, actions)) else "an env restored went on differently"
    except ENV_FAILURES as problem:  # an env may also object to actions at random
        return f"{problem}" if isinstance(problem, UnsavableError) else f"{type(problem).__name__}: {problem}"


def _play(env: Any, actions: list[Any]) -> list[Any]:
    """Step an env and return all it showed; a reset halfway shows what its next episode would be."""
    seen: list[Any] = []
    for i, action in enumerate(actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append((copied(obs), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated or i == len(actions) // 2:
            seen.append(copied(env.reset()[0]))
    return seen


def copied(obs: Any) -> Any:
    """An observation that the env no longer writes to."""
    if isinstance(obs, dict):
        return {key: copied(value) for key, value in obs.items()}
    return tuple(copied(value) for value in obs) if isinstance(obs, tuple) else np.array(obs)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of numbers and arrays, however nested, are equal; NaN equals NaN."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(is_same(mine, its) for mine, its in zip(one, other, strict=True))
    return (
        bool(np.array_equal(one, other, equal_nan=True))
        if np.asarray(one).dtype.kind == "f"
        else bool(np.array_equal(one, other))
    )
