"""Triton where it is installed: the decorator of kernels, and the precision that matrix products have now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]

    HAS_TRITON = True
    LOCKS_SHARED_FUNCTIONS = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 6)
    """Whether threads may compile kernels that call the same functions: tried from this version on."""
except ImportError:  # a machine without a GPU: modules with kernels can still be imported
    HAS_TRITON = LOCKS_SHARED_FUNCTIONS = False


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


def compile_together(calls: Sequence[Callable[[], Any]], device: torch.device) -> None:
    """Make calls that launch kernels for the first time, at once: Triton compiles mostly without Python's lock.

    They launch on the device's default stream, in any order.
    """
    if device.type != "cuda" or not LOCKS_SHARED_FUNCTIONS:
        for call in calls:
            call()
        return

    def on_a_thread(call: Callable[[], Any]) -> None:
        with torch.no_grad(), torch.cuda.device(device):
            call()

    with ThreadPoolExecutor(len(calls)) as threads:
        for done in [threads.submit(on_a_thread, call) for call in calls]:
            done.result()
