"""Names of actions must tell them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Box, Discrete, Env, MultiDiscrete
from scramjet.errors import WorldError


class Named(Env):
    """Two actions that do nothing."""

    max_episode_steps = 5
    observation_space: Any = Box(0, 1, (1,), np.float32)
    action_space: Any = Discrete(2)
    action_names: Any = ("left", "right")
    state = {"x": np.int32}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> Any:
        return 0.0, False

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 0.0


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("left",), "has 1 names for 2 actions"),
        (("left", "left"), "has 'left' twice, for actions 0 and 1"),
        (("left", ""), r"action_names\[1\] is ''"),
        (("left", 2), r"action_names\[1\] is 2"),
        (("left", " right"), r"action_names\[1\] is ' right'"),
        (("left", "ri\x1bght"), r"action_names\[1\]"),
        ("lr", "is 'lr'; give a tuple"),
        ({"left", "right"}, "give a tuple"),
    ],
)
def test_names_that_do_not_tell_actions_apart_are_refused(names: Any, problem: str) -> None:
    world = type("Misnamed", (Named,), {"action_names": names})
    with pytest.raises(WorldError, match=problem):
        NativePool(world(), 1, backend="interpreted")


def test_names_are_for_discrete_actions_only() -> None:
    world = type("Misnamed", (Named,), {"action_space": MultiDiscrete([2, 2])})
    with pytest.raises(WorldError, match="action_names are for a Discrete action space"):
        NativePool(world(), 1, backend="interpreted")


def test_good_names_and_no_names_are_fine() -> None:
    NativePool(Named(), 1, backend="interpreted")
    NativePool(type("Unnamed", (Named,), {"action_names": ()})(), 1, backend="interpreted")
