"""What the kernels of convolutions do not take; importing this loads neither Triton nor the kernels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scramjet.compile.kernel_choice import has_hooks, is_plain_convolution


def is_mapped(tensor: Tensor) -> bool:
    """Whether this is one of several that `torch.vmap` treats as one."""
    return bool(torch._C._functorch.is_batchedtensor(tensor))


def are_convolutions(layers: nn.Module) -> bool:
    """Whether this is a plain sequence of convolutions with a ReLU after each, which nobody hooked into."""
    if type(layers) is not nn.Sequential or len(layers) % 2:
        return False
    convolutions, activations = list(layers)[::2], list(layers)[1::2]
    return (
        all(is_plain_convolution(layer) for layer in convolutions)
        and all(type(layer) is nn.ReLU for layer in activations)
        and not has_hooks([layers, *layers])
    )
