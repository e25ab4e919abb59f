"""Runs the trunk and the heads of a network, and scales rows: by kernels where they take them, else by torch.

Importing this does not load Triton.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scramjet.compile.kernel_choice import has_hooks, is_traced, takes_kernels

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}


def run_trunk(trunk: nn.Sequential, source: Tensor) -> Tensor:
    """Features [N, F] of a trunk made by `layers.mlp`, from inputs [N, D]."""
    if not (takes_kernels(source) and _is_known(trunk) and _takes_layers(source, list(trunk)[::2], [trunk, *trunk])):
        features: Tensor = trunk(source)
        return features
    from scramjet.compile.triton import product_precision
    from scramjet.policies.dense import layers

    precision, modules = product_precision(), list(trunk)
    for layer, activation in zip(modules[::2], modules[1::2], strict=True):
        source = layers.hidden(source, layer.weight, layer.bias, _ACTIVATIONS[type(activation)], precision)  # type: ignore[arg-type]
    return source


def run_heads(features: Tensor, actor_head: nn.Module, critic_head: nn.Module) -> tuple[Tensor, Tensor]:
    """Logits [N, num_inputs] and values [N] of a policy head and a value head on the same features [N, F]."""
    if takes_kernels(features) and _takes_layers(features, [actor_head, critic_head], [actor_head, critic_head]):
        from scramjet.compile.triton import product_precision
        from scramjet.policies.dense import layers

        assert isinstance(actor_head, nn.Linear)
        assert isinstance(critic_head, nn.Linear)
        if actor_head.out_features <= layers.MAX_HEADS and critic_head.out_features == 1:
            weights = actor_head.weight, actor_head.bias, critic_head.weight, critic_head.bias
            return layers.heads(features, *weights, product_precision())
    return actor_head(features), critic_head(features).squeeze(-1)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows [N, F] scaled to length 1; rows of zeros stay as they are."""
    if takes_kernels(rows) and not is_traced():
        from scramjet.policies.dense import unit_rows as kernels

        if rows.shape[1] <= kernels.WIDEST:
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
    from scramjet.compile.triton import product_precision

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
