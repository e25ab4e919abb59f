"""Sine and cosine of the rules against the C library's, and across back-ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from scramjet.engine.worlds.rules import RulesCompiler
from scramjet.envs import load_env
from scramjet.envs.classic_control.trigonometry import LARGEST_ANGLE, cos, sin, sin_cos

compiled_sin_cos = RulesCompiler(load_env("cartpole"), njit, njit).compile(sin_cos)
UNIT = 2**-53


@given(st.floats(-2 * LARGEST_ANGLE, 2 * LARGEST_ANGLE) | st.floats(-10, 10))
def test_sine_and_cosine_are_right_to_the_last_digits(angle: float) -> None:
    assert sin(angle) == pytest.approx(math.sin(angle), rel=4 * UNIT, abs=2 * UNIT)
    assert cos(angle) == pytest.approx(math.cos(angle), rel=4 * UNIT, abs=2 * UNIT)


@given(st.floats(-2 * LARGEST_ANGLE, 2 * LARGEST_ANGLE) | st.floats(-10, 10))
def test_compiled_they_have_the_same_bits(angle: float) -> None:
    assert compiled_sin_cos(angle) == sin_cos(angle)


@pytest.mark.parametrize("quarter_turns", range(-9, 10))
def test_every_quadrant_and_the_seams_between_them(quarter_turns: int) -> None:
    for nudge in (-1e-9, 0.0, 1e-9, 0.5, math.pi / 4):
        angle = quarter_turns * math.pi / 2 + nudge
        assert sin_cos(angle) == pytest.approx((math.sin(angle), math.cos(angle)), rel=4 * UNIT, abs=2 * UNIT)


def test_what_is_no_number_stays_none() -> None:
    assert all(math.isnan(value) for value in sin_cos(math.nan))
