"""Sine and cosine for rules: the same bits interpreted, compiled and on any machine, and cheap in an inner loop.

A call into the C library costs as much as the rest of CartPole's step, and its last digit differs from one library to
the next. These are polynomials on [-pi/4, pi/4] (coefficients of Sun's fdlibm, 1993), within one unit in the last
place of the true value.
"""

from __future__ import annotations

import math

# pi/2 in three parts of 33 bits: a product with an integer below 2**20 is exact
HALF_PI_HIGH = 1.57079632673412561417e00
HALF_PI_MIDDLE = 6.07710050630396597660e-11
HALF_PI_LOW = 2.02226624871116645580e-21
LARGEST_ANGLE = 1e6
"""Beyond this the C library reduces the angle."""


def sin_cos(angle: float) -> tuple[float, float]:
    """Sine and cosine of an angle in radians."""
    if abs(angle) <= math.pi / 4:
        return _sine(angle), _cosine(angle)
    if not abs(angle) < LARGEST_ANGLE:  # so written, a nan lands here too
        return math.sin(angle), math.cos(angle)
    quarter_turns = math.floor(angle * (2 / math.pi) + 0.5)
    rest = ((angle - quarter_turns * HALF_PI_HIGH) - quarter_turns * HALF_PI_MIDDLE) - quarter_turns * HALF_PI_LOW
    sine, cosine = _sine(rest), _cosine(rest)
    quadrant = int(quarter_turns) & 3
    if quadrant == 0:
        return sine, cosine
    if quadrant == 1:
        return cosine, -sine
    if quadrant == 2:
        return -sine, -cosine
    return -cosine, sine


def sin(angle: float) -> float:
    """Sine of an angle in radians."""
    return sin_cos(angle)[0]


def cos(angle: float) -> float:
    """Cosine of an angle in radians."""
    return sin_cos(angle)[1]


def _sine(x: float) -> float:
    z = x * x
    tail = 8.33333333332248946124e-03 + z * (
        -1.98412698298579493134e-04
        + z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10))
    )
    return x + x * z * (-1.66666666666666324348e-01 + z * tail)


def _cosine(x: float) -> float:
    z = x * x
    tail = 4.16666666666666019037e-02 + z * (
        -1.38888888888741095749e-03
        + z
        * (
            2.48015872894767294178e-05
            + z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))
        )
    )
    half = 0.5 * z
    rounded = 1.0 - half
    return rounded + (((1.0 - rounded) - half) + z * (z * tail))
