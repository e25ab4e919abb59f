"""Whether the kernels take a tensor; importing this loads neither Triton nor the kernels."""

from __future__ import annotations

import torch
from torch import Tensor


def takes_kernels(source: Tensor) -> bool:
    """Whether convolutions of this tensor are done by the kernels: it is on the GPU, and Triton is installed."""
    if not source.is_cuda:
        return False
    from scramjet.compile.triton import HAS_TRITON

    return HAS_TRITON


def is_mapped(tensor: Tensor) -> bool:
    """Whether this is one of several that `torch.vmap` treats as one."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))
