"""What the kernels of convolutions do not take; importing this loads neither Triton nor the kernels."""

from __future__ import annotations

import torch
from torch import Tensor


def is_mapped(tensor: Tensor) -> bool:
    """Whether this is one of several that `torch.vmap` treats as one."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))
