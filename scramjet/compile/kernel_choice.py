"""Whether layers, losses and advantages on the GPU are Triton's kernels: a setting of the process, as torch's precision
is, and a matter of what the layers are. Importing this loads neither Triton nor the kernels.

Kernels read the weights of modules and do not call them. So what a user has changed, replaced or hooked into is left to
torch.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

_are_allowed = True
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


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


def is_traced() -> bool:
    """Whether torch compiles what is called now, or maps over tensors, which have no memory that kernels could read."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def has_hooks(modules: Iterable[nn.Module]) -> bool:
    """Whether somebody listens to what goes through one of the modules, forward or back, or has put a function of his
    own in place of a `forward`."""
    if any(getattr(torch_modules, name, None) for name in _GLOBAL_HOOKS):
        return True
    return any("forward" in vars(module) or any(getattr(module, name) for name in HOOKS) for module in modules)


def is_plain_convolution(module: nn.Module) -> bool:
    """Whether this is a square convolution with a bias, of all channels with all, padded with zeros."""
    return (
        type(module) is nn.Conv2d
        and module.bias is not None
        and "weight" in module._parameters  # else it is made from others before each call
        and isinstance(module.padding, tuple)
        and all(len(set(sizes)) == 1 for sizes in (module.kernel_size, module.stride, module.padding))
        and module.dilation == (1, 1)
        and module.groups == 1
        and module.padding_mode == "zeros"
    )
