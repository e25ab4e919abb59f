"""Legal actions for a pool, and equality of transitions and episodes field by field."""

from dataclasses import fields
from typing import Any

import numpy as np

from scramjet.engine import Transition
from scramjet.engine.actions import random_actions
from scramjet.engine.trees import leaves, map_leaves

BACKENDS = ["interpreted", "cpu"]

FIELDS = [field.name for field in fields(Transition) if field.init]


def legal_actions(pool: Any, seed: int, steps: int) -> list[np.ndarray]:
    """Random legal actions of a pool that is reset with `seed`, found by playing."""
    random, actions, out = np.random.default_rng(0), [], pool.reset(seed)
    for _ in range(steps):
        actions.append(random_actions(pool, out, random))
        out = pool.step(actions[-1].copy())
    return actions


def copy(out: Transition) -> Transition:
    """A transition in arrays of its own: a pool writes the next one over those it gave."""
    return Transition(**{name: map_leaves(np.copy, getattr(out, name)) for name in FIELDS})


def assert_shown_equal(one: Transition, other: Transition, names: tuple[str, ...] = ("obs", "mask", "turn")) -> None:
    for name in names:
        for ours, theirs in zip(leaves(getattr(one, name)), leaves(getattr(other, name)), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


def assert_equal(one: Transition, other: Transition) -> None:
    """All that two steps gave is the same; `final_obs` where an episode ended, elsewhere it is stale."""
    assert_shown_equal(one, other, ("obs", "mask", "turn", "reward", "terminated", "truncated"))
    ended = one.terminated | one.truncated
    for ours, theirs in zip(leaves(one.final_obs), leaves(other.final_obs), strict=True):
        seen = np.repeat(ended, len(ours) // len(ended))
        np.testing.assert_array_equal(ours[seen], theirs[seen], err_msg="final_obs")


def assert_episodes_equal(one: Any, other: Any) -> None:
    assert len(one) > 15
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
