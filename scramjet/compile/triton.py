"""Triton where it is installed: the decorator of kernels, and the precision that matrix products have now."""

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
