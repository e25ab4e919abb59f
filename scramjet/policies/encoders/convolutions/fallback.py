"""Layers by their kernels or, if one does not fit on the GPU, by torch's operators: the same results up to rounding."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scramjet.policies.encoders.convolutions.layers import Layer, storage

_too_large: set[tuple[str, Layer]] = set()
"""Methods and layers whose kernel did not fit: it is not tried again, since a graph of the GPU may be recorded."""


def forward(layer: Layer, source: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None, precision: str) -> Tensor:
    """See `Layer.forward`."""

    def by_torch() -> Tensor:
        results = []
        for i in range(len(source)):
            planes = _planes(source[i], layer.channels, layer.height, layer.width, layer.source_is_channels_first)
            made = functional.conv2d(planes.float() / layer.divisor, weight[i], bias[i], layer.stride, layer.padding)
            if added is not None:
                made = made + _planes(added[i], layer.outputs, layer.out_height, layer.out_width, False)
            results.append(torch.relu(made if layer.out_is_channels_first else made.permute(0, 2, 3, 1)).flatten(1))
        return torch.stack(results).to(storage(precision))

    return _run("forward", layer, lambda: layer.forward(source, weight, bias, added, precision), by_torch)


def source_gradient(
    layer: Layer, gradient: Tensor, weight: Tensor, added: Tensor | None, mask: Tensor, precision: str
) -> Tensor:
    """See `Layer.source_gradient`."""

    def by_torch() -> Tensor:
        planes = _planes(mask, layer.channels, layer.height, layer.width, False).float()
        to_planes, _, _ = _backward(layer, gradient, False, planes, weight, (True, False, False))
        out = to_planes.permute(0, 2, 3, 1).flatten(1)
        return torch.where(mask > 0, out if added is None else out + added, 0.0).to(mask.dtype)

    return _run(
        "source_gradient", layer, lambda: layer.source_gradient(gradient, weight, added, mask, precision), by_torch
    )


def weight_gradient(
    layer: Layer,
    source: Tensor,
    weight: Tensor,
    gradient: Tensor,
    result: Tensor | None,
    precision: str,
    *,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `Layer.weight_gradient`."""

    def by_torch() -> tuple[Tensor, Tensor, Tensor]:
        before, channels_first = gradient, result is not None and layer.out_is_channels_first
        if result is not None:
            before = torch.where(result > 0, gradient, 0.0)
        planes = _planes(source, layer.channels, layer.height, layer.width, layer.source_is_channels_first)
        planes = planes.float() / layer.divisor
        _, to_weight, to_bias = _backward(layer, before, channels_first, planes, weight, (False, True, True))
        if channels_first:
            before = before.view(len(source), layer.outputs, -1).transpose(1, 2).flatten(1)
        return to_weight, to_bias, before

    return _run(
        "weight_gradient",
        layer,
        lambda: layer.weight_gradient(source, weight, gradient, result, precision, keeps=keeps),
        by_torch,
    )


def _run(name: str, layer: Layer, by_kernel: Callable[[], Any], by_torch: Callable[[], Any]) -> Any:
    """What the kernel gives or, from the first time on that it does not fit, torch's operators."""
    from triton.runtime.errors import OutOfResources

    if (name, layer) not in _too_large:
        try:
            return by_kernel()
        except OutOfResources as error:
            if not _too_large:
                warnings.warn(
                    f"a convolution from {layer.channels} to {layer.outputs} channels does not fit on this GPU "
                    f"({error}); torch's operators do it, slower",
                    RuntimeWarning,
                    stacklevel=2,
                )
            _too_large.add((name, layer))
    return by_torch()


def _planes(boards: Tensor, channels: int, height: int, width: int, channels_first: bool) -> Tensor:
    """Boards as [B, channels, height, width]."""
    if channels_first:
        return boards.reshape(-1, channels, height, width)
    return boards.reshape(-1, height, width, channels).permute(0, 3, 1, 2)


def _backward(
    layer: Layer, gradient: Tensor, channels_first: bool, planes: Tensor, weight: Tensor, wanted: tuple[bool, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of planes, weights and bias that are wanted, float32."""
    gradient = _planes(gradient, layer.outputs, layer.out_height, layer.out_width, channels_first).float()
    step, padding = [layer.stride] * 2, [layer.padding] * 2
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        gradient, planes, weight, [layer.outputs], step, padding, [1, 1], False, [0, 0], 1, wanted
    )
    return found
