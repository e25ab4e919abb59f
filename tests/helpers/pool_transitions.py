"""Random actions, and equality of a pool's transitions field by field."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from scramjet.engine import Transition
from scramjet.engine.trees import leaves, map_leaves

BACKENDS = ["interpreted", "cpu"]

FIELDS = [field.name for field in fields(Transition) if field.init]


def random_actions(steps: int, num_envs: int, seed: int = 0, n: int = 4) -> np.ndarray:
    """Actions of a space of `n` choices, `[steps, num_envs]`."""
    return np.random.default_rng(seed).integers(n, size=(steps, num_envs))


def copy(out: Transition) -> Transition:
    """A transition in arrays of its own: a pool writes the next one over those it gave."""
    return Transition(**{name: map_leaves(np.copy, getattr(out, name)) for name in FIELDS})


def assert_equal(one: Transition, other: Transition) -> None:
    """All that two steps gave is the same; `final_obs` where an episode ended, elsewhere it is stale."""
    for name in ("obs", "mask", "turn", "reward", "terminated", "truncated"):
        for ours, theirs in zip(leaves(getattr(one, name)), leaves(getattr(other, name)), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    ended = one.terminated | one.truncated
    for ours, theirs in zip(leaves(one.final_obs), leaves(other.final_obs), strict=True):
        seen = np.repeat(ended, len(ours) // len(ended))
        np.testing.assert_array_equal(ours[seen], theirs[seen], err_msg="final_obs")
