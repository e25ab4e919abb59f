"""Small functions that Triton kernels of all networks call: products of matrices, tanh, numbers kept within bounds.

`precision` is that of `triton.product_precision`: float32, tf32 or bfloat16.
"""

from __future__ import annotations

from scramjet.compile.triton import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl


@triton_jit()
def operand(x, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """`x` converted to the type that `dot` multiplies: bfloat16, or else float32, which tf32 rounds as it is read."""
    if precision == "bfloat16":
        x = x.to(tl.bfloat16)
    else:
        x = x.to(tl.float32)
    return x


@triton_jit()
def dot(a, b, total, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    """`a` @ `b` in float32, plus `total` if that is not None; `a` and `b` are rounded as `precision` says."""
    a, b = operand(a, precision), operand(b, precision)
    if precision == "float32":
        product = tl.dot(a, b, acc=total, input_precision="ieee")
    else:
        product = tl.dot(a, b, acc=total, input_precision="tf32")
    return product


@triton_jit()
def tanh(x):  # type: ignore[no-untyped-def]
    """The hyperbolic tangent."""
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton_jit()
def clamped(x, low, high):  # type: ignore[no-untyped-def]
    """`x` kept within bounds; NaN stays NaN."""
    return tl.where(x < low, low, tl.where(x > high, high, x))


@triton_jit()
def leads_out(x, gradient, low, high):  # type: ignore[no-untyped-def]
    """Whether a step against the gradient would take `x` from outside of its bounds farther out (`keep_within`)."""
    return ((x > high) & (gradient < 0.0)) | ((x < low) & (gradient > 0.0))
