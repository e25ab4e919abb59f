"""Whether layers, losses and advantages on the GPU are Triton's kernels: a setting of the process, as torch's precision
is, and a matter of what the layers are. Importing this loads neither Triton nor the kernels.

Kernels read the weights of modules and do not call them. So what a user has changed, replaced or hooked into is left to
torch.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
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
    from scramjet.kernels.gpu.language import HAS_TRITON

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


# --- Runs the trunk and the heads of a network, and scales rows: by kernels where they take them, else by torch


_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}


def run_trunk(trunk: nn.Sequential, source: Tensor) -> Tensor:
    """Features [N, F] of a trunk made by `layers.mlp`, from inputs [N, D]."""
    if not (takes_kernels(source) and _is_known(trunk) and _takes_layers(source, list(trunk)[::2], [trunk, *trunk])):
        features: Tensor = trunk(source)
        return features
    from scramjet.kernels.gpu import dense as layers
    from scramjet.kernels.gpu.language import product_precision

    precision, modules = product_precision(), list(trunk)
    for layer, activation in zip(modules[::2], modules[1::2], strict=True):
        source = layers.hidden(source, layer.weight, layer.bias, _ACTIVATIONS[type(activation)], precision)  # type: ignore[arg-type]
    return source


def run_heads(features: Tensor, actor_head: nn.Module, critic_head: nn.Module) -> tuple[Tensor, Tensor]:
    """Logits [N, num_inputs] and values [N] of a policy head and a value head on the same features [N, F]."""
    if takes_kernels(features) and _takes_layers(features, [actor_head, critic_head], [actor_head, critic_head]):
        from scramjet.kernels.gpu import dense as layers
        from scramjet.kernels.gpu.language import product_precision

        assert isinstance(actor_head, nn.Linear)
        assert isinstance(critic_head, nn.Linear)
        if actor_head.out_features <= layers.MAX_HEADS and critic_head.out_features == 1:
            weights = actor_head.weight, actor_head.bias, critic_head.weight, critic_head.bias
            return layers.heads(features, *weights, product_precision())
    return actor_head(features), critic_head(features).squeeze(-1)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows [N, F] scaled to length 1; rows of zeros stay as they are."""
    if takes_kernels(rows) and not is_traced():
        from scramjet.kernels.gpu import normalizing as kernels

        if rows.shape[1] <= kernels.WIDEST_ROW:
            return kernels.unit_rows(rows)
    return functional.normalize(rows, dim=-1)


def _is_known(trunk: nn.Sequential) -> bool:
    """Whether this is linear layers with tanh or ReLU after each."""
    if type(trunk) is not nn.Sequential:
        return False
    activations = list(trunk)[1::2]
    return len(trunk) == 2 * len(activations) > 0 and all(type(module) in _ACTIVATIONS for module in activations)


def _takes_layers(source: Tensor, linears: list[nn.Module], modules: list[nn.Module]) -> bool:
    """Whether the kernels take these layers on the GPU: plain ones whose modules nobody hooked into.

    Tensors that torch traces or maps over have no memory that a kernel could read.
    """
    from scramjet.kernels.gpu.language import product_precision

    is_rounded = torch.is_autocast_enabled("cuda")
    types = (torch.float32, torch.bfloat16) if is_rounded else (torch.float32,)
    return (
        source.dim() == 2
        and source.numel() > 0
        and source.dtype in types
        and not (is_rounded and product_precision() != "bfloat16")
        and all(_is_plain(layer) for layer in linears)
        and not has_hooks(modules)
        and not is_traced()
    )


def _is_plain(layer: nn.Module) -> bool:
    """Whether this is a linear layer with a bias, all of it contiguous float32 on the GPU."""
    return (
        type(layer) is nn.Linear
        and layer.bias is not None
        and all(each.is_cuda and each.dtype is torch.float32 and each.is_contiguous() for each in layer.parameters())
    )


# --- What the kernels of convolutions do not take; importing this loads neither Triton nor the kernels


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
