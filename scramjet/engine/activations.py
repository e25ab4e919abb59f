"""Small functions of float32 numbers and rows of them for compiled loops, in a form that is done 16 at a time."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

SATURATED = np.float32(7.905)
"""Beyond this tanh is 1, to within 3e-7."""

# a * b + c may round once, not twice. Without forceinline each call would count references to its arrays, which takes
# longer than the loop. The cache does not see these options: a change here needs one in a function too.
inlined = register_jitable(fastmath={"contract"}, error_model="numpy", forceinline=True)


@inlined
def tanh(x):  # type: ignore[no-untyped-def]
    """Hyperbolic tangent of a float32, within 3e-7: a quotient of polynomials that the compiler can do 16 at a time.

    The coefficients are those of Eigen's `ptanh` (MathFunctionsImpl.h, eigen.tuxfamily.org). Compared this way round,
    what is not a number passes the limits and stays so.
    """
    x = -SATURATED if x < -SATURATED else x
    x = SATURATED if x > SATURATED else x
    s = x * x
    p = s * np.float32(-2.76076847742355e-16) + np.float32(2.00018790482477e-13)
    p = s * p + np.float32(-8.60467152213735e-11)
    p = s * p + np.float32(5.12229709037114e-08)
    p = s * p + np.float32(1.48572235717979e-05)
    p = s * p + np.float32(6.37261928875436e-04)
    p = s * p + np.float32(4.89352455891786e-03)
    q = s * np.float32(1.19825839466702e-06) + np.float32(1.18534705686654e-04)
    q = s * q + np.float32(2.26843463243900e-03)
    q = s * q + np.float32(4.89352518554385e-03)
    return x * p / q


@inlined
def sigmoid(x):  # type: ignore[no-untyped-def]
    """The logistic function of a float32, within 3e-7."""
    return np.float32(0.5) * tanh(np.float32(0.5) * x) + np.float32(0.5)


# Loops over rows: NumPy's own assignments compile a second and more of code for shapes that do not fit.


@inlined
def fill(row, value):  # type: ignore[no-untyped-def]
    """Every number of a row to `value`."""
    for j in range(len(row)):
        row[j] = value


@inlined
def copy(row, other):  # type: ignore[no-untyped-def]
    """A row from another of its length."""
    for j in range(len(row)):
        row[j] = other[j]


@inlined
def add(row, other):  # type: ignore[no-untyped-def]
    """Another row of its length to a row."""
    for j in range(len(row)):
        row[j] += other[j]
