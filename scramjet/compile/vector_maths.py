"""Small functions of float32 numbers and rows of them for compiled loops, in a form that is done 16 at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from scramjet.compile.addresses import use_wide_vectors
from scramjet.compile.numba_internals import INLINED_HELPER_OPTIONS

SATURATED = np.float32(7.905)
"""Beyond this tanh is 1, to within 3e-7."""

# a * b + c may round once, not twice. Without forceinline each call would count references to its arrays, which takes
# longer than the loop. The cache does not see these options: a change here needs one in a function too.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", **INLINED_HELPER_OPTIONS}
inlined = register_jitable(fastmath={"contract"}, **_OPTIONS)
# The same for sums, whose terms may be taken in another order.
inlined_sum = register_jitable(fastmath={"contract", "reassoc"}, **_OPTIONS)


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


@inlined
def exp(x):  # type: ignore[no-untyped-def]
    """The exponential of a float32, within 2e-7 of itself: 0 below -87, infinite from 88.4 on.

    x is n log 2 + r, r within half of log 2; the polynomial for exp(r) is that of Cephes' `expf` (Moshier,
    netlib.org/cephes), and 2^n is made of its bits. Adding 1.5 * 2^23 leaves n in the lowest bits of a float.
    """
    shift = np.float32(12582912.0)
    low = np.float32(-87.0)
    within = low if x < low else x
    within = np.float32(89.0) if within > np.float32(89.0) else within
    shifted = within * np.float32(1.44269504088896341) + shift
    n = shifted - shift
    r = within - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = r * np.float32(1.9875691500e-4) + np.float32(1.3981999507e-3)
    p = r * p + np.float32(8.3334519073e-3)
    p = r * p + np.float32(4.1665795894e-2)
    p = r * p + np.float32(1.6666665459e-1)
    p = r * p + np.float32(5.0000001201e-1)
    p = r * r * p + r + np.float32(1)
    bits = (np.float32(shifted).view(np.int32) + np.int32(127 - 0x4B400000)) << np.int32(23)
    return np.float32(0) if x < low else p * np.int32(bits).view(np.float32)


@inlined
def log(x):  # type: ignore[no-untyped-def]
    """The natural logarithm of a normal float32, within 2e-7; what is not a number stays so.

    x is m 2^n, m within a factor sqrt(2) of 1; the polynomial for log(m) is that of Cephes' `logf`.
    """
    bits = np.float32(x).view(np.int32) - np.int32(0x3F3504F3)  # of sqrt(1/2)
    n = np.float32(bits >> np.int32(23))
    m = np.int32((bits & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3)).view(np.float32) - np.float32(1)
    s = m * m
    p = m * np.float32(7.0376836292e-2) + np.float32(-1.1514610310e-1)
    p = m * p + np.float32(1.1676998740e-1)
    p = m * p + np.float32(-1.2420140846e-1)
    p = m * p + np.float32(1.4249322787e-1)
    p = m * p + np.float32(-1.6668057665e-1)
    p = m * p + np.float32(2.0000714765e-1)
    p = m * p + np.float32(-2.4999993993e-1)
    p = m * p + np.float32(3.3333331174e-1)
    p = m * s * p + n * np.float32(-2.12194440e-4) - np.float32(0.5) * s
    return m + p + n * np.float32(0.693359375) + (x - x)


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


@inlined_sum
def dot(row, other):  # type: ignore[no-untyped-def]
    """The sum of the products of two rows' numbers."""
    use_wide_vectors()
    total = np.float32(0)
    for j in range(len(row)):
        total += row[j] * other[j]
    return total


@inlined_sum
def sum_of_squares(row):  # type: ignore[no-untyped-def]
    """The sum of a row's squares, in double precision."""
    total = 0.0
    for j in range(len(row)):
        total += np.float64(row[j]) * np.float64(row[j])
    return total
