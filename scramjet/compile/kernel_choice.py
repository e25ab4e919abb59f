"""Whether layers, losses and advantages on the GPU are Triton's kernels: a setting of the process, as torch's precision
is. Importing this loads neither Triton nor the kernels."""

from __future__ import annotations

from torch import Tensor

_are_allowed = True


def allow_kernels(are_allowed: bool) -> None:
    """Let the process use Triton's kernels from now on, or leave everything to torch's operators (`--no-fused`)."""
    global _are_allowed
    _are_allowed = are_allowed


def takes_kernels(tensor: Tensor) -> bool:
    """Whether kernels take this tensor: it is on the GPU, Triton is installed, and they are allowed."""
    if not (tensor.is_cuda and _are_allowed):
        return False
    from scramjet.compile.triton import HAS_TRITON

    return HAS_TRITON
