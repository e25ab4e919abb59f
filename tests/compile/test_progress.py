"""Who compiles what now."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.compile import progress as compiling
from scramjet.compile.jit import compiled
from scramjet.engine import NativePool
from scramjet.envs import Box, Discrete, Env
from scramjet.errors import WorldError


@pytest.fixture
def heard() -> list[str | None]:
    """What a listener was told."""
    told: list[str | None] = []
    with compiling.heard_by(told.append):
        yield told


def test_a_function_is_told_while_it_is_compiled_and_not_when_it_comes_from_the_cache(heard, monkeypatch, tmp_path):
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "cache"))

    def twice(number):
        return 2 * number

    before = compiling.seconds()
    compiled(twice)(3)
    assert heard == ["functions for acting and learning", None]
    spent = compiling.seconds()
    assert spent > before
    compiled(twice)(3)
    assert heard == ["functions for acting and learning", None]
    assert compiling.seconds() == spent


class Broken(Env):
    """Does not compile."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"value": np.int32}

    def reset(self, s):
        s.value = 0

    def step(self, s, action):
        return 0.0, {"unknown": set()} == s.value

    def observe(self, s, obs):
        obs[0] = s.value


def test_rules_that_cannot_be_compiled_are_not_told_for_ever(heard):
    pool = NativePool(Broken(), num_envs=1)
    with pytest.raises(WorldError):
        pool.prepare()
    assert heard[0] == "Broken's rules"
    assert heard[-1] is None


def test_the_outer_function_is_told_again_when_the_one_it_needs_is_done(heard):
    with compiling.during("outer"), compiling.during("inner"):
        pass
    assert heard == ["outer", "inner", "outer", None]
