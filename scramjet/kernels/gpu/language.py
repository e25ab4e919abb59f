"""Triton where it is installed: the decorator of kernels, the sizes of their blocks, the precision of matrix products,
and the small functions that kernels of all networks call."""

from __future__ import annotations

from typing import Any

import torch

try:
    import triton

    HAS_TRITON = True
except ImportError:  # a machine without a GPU: modules with kernels can still be imported
    HAS_TRITON = False


def triton_jit(*unspecialized: str) -> Any:
    """Triton's decorator for kernels; without Triton, one that changes nothing.

    A kernel is compiled once for all values of the `unspecialized` numbers and all alignments of the `unspecialized`
    pointers, whose names end in `_at`: rows of a larger tensor are not all aligned, and no kernel can be compiled while
    a CUDA graph is captured.
    """
    if not HAS_TRITON:
        return lambda function: function
    return triton.jit(
        do_not_specialize=[name for name in unspecialized if not name.endswith("_at")],
        do_not_specialize_on_alignment=[name for name in unspecialized if name.endswith("_at")],
    )


def product_precision() -> str:
    """How torch multiplies float32 matrices on the GPU just now: float32, tf32 or bfloat16."""
    if torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is torch.bfloat16:
        return "bfloat16"
    return "float32" if torch.get_float32_matmul_precision() == "highest" else "tf32"


# --- small functions that kernels of all networks call; `precision` is that of `product_precision`


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


# --- sizes of the blocks that programs of a kernel take, and how many of them there are


SMALLEST_PRODUCT = 16
"""Least size of a block in a product of matrices, along each of its axes."""


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`, which is 1 or more: blocks have such sizes."""
    return 1 << (number - 1).bit_length()


def product_size(size: int) -> int:
    """The smallest power of two that is at least `size` and that products of matrices take."""
    return max(SMALLEST_PRODUCT, power_of_two(size))


def blocks_of(number: int, size: int) -> int:
    """The number of blocks of `size` that are needed for `number` elements."""
    return -(-number // size)


def even_programs(num_blocks: int, most: int) -> int:
    """How many programs share `num_blocks` blocks: at most `most`, and no more than finish in the same time."""
    return blocks_of(num_blocks, max(1, blocks_of(num_blocks, most)))
