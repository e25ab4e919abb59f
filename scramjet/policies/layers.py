"""Layers with their initial weights, and the record that a network returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

_Layer = TypeVar("_Layer", nn.Linear, nn.Conv2d)


class PolicyOutput(NamedTuple):
    """The output of a network for B observations."""

    logits: Tensor  # [B, distribution.num_inputs]
    value: Tensor  # [B]
    state: Tensor | None = None  # [rows, state_size], recurrent state after them; None if not recurrent


def orthogonal(layer: _Layer, gain: float) -> _Layer:
    """Orthogonal weights and zero bias."""
    fill_orthogonal(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def fill_orthogonal(weight: Tensor, gain: float = 1.0) -> None:
    """Make a weight orthogonal (Saxe et al. 2014).

    A tensor that is a shape without numbers stays as it is: some versions of torch load their compiler to "draw" those,
    which takes seconds.
    """
    if not weight.is_meta:
        nn.init.orthogonal_(weight, gain)


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def mlp(inputs: int, hidden: Sequence[int], activation: str) -> nn.Sequential:
    """Linear layers with a nonlinearity after each; gain sqrt 2."""
    nonlinearity = ACTIVATIONS[activation]
    layers: list[nn.Module] = []
    for outputs in hidden:
        layers += [orthogonal(nn.Linear(inputs, outputs), math.sqrt(2)), nonlinearity()]
        inputs = outputs
    return nn.Sequential(*layers)


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    """A square convolution, orthogonal, gain sqrt 2."""
    return orthogonal(nn.Conv2d(inputs, outputs, size, stride, padding), math.sqrt(2))


def count_parameters(module: nn.Module) -> int:
    """Trainable numbers in a module."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def keep_within(x: Tensor, low: float, high: float) -> Tensor:
    """`x` clamped to a range, with a gradient that leads back into it.

    A plain clamp has no gradient outside the range, so a number that has left it would stay there.
    """
    kept: Tensor = _KeepWithin.apply(x, low, high)
    return kept


class _KeepWithin(torch.autograd.Function):
    """Clamp whose gradient is dropped only where it would move x farther outside the range."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.range = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (x,), (low, high), (grad,) = ctx.saved_tensors, ctx.range, grads
        # Descent moves x against its gradient.
        leaves = ((x > high) & (grad < 0)) | ((x < low) & (grad > 0))
        return grad.masked_fill(leaves, 0.0), None, None
