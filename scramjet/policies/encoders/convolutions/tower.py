"""A tower of convolutions on the GPU, each followed by ReLU, as one operation of autograd.

Boards stay channels last between layers, and are rectified, masked and added up where they are computed. Gradients are
autograd's up to rounding, and the same inputs give the same bits. Weights are those of `nn.Conv2d`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scramjet.compile.triton import product_precision
from scramjet.policies.encoders.convolutions import fallback
from scramjet.policies.encoders.convolutions.layers import Layer


def convolve(layers: Sequence[Layer], source: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The result of the last layer, [B, outputs * height * width] in its order, of observations [B, ...].

    The source has no gradient. Under `torch.vmap` all networks are done at once.
    """
    results = _Tower.apply(tuple(layers), product_precision(), source.contiguous(), *weights, *biases)
    last: Tensor = results[-1]
    return last


class _Tower(torch.autograd.Function):
    """Takes layers, precision, source, and their weights and biases; gives the results of all layers."""

    @staticmethod
    def forward(layers: tuple[Layer, ...], precision: str, source: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        results = _run(layers, precision, source.unsqueeze(0), [tensor.unsqueeze(0) for tensor in parameters])
        return tuple(result.squeeze(0) for result in results)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        layers, precision, source, *parameters = inputs
        ctx.layers, ctx.precision = layers, precision
        ctx.save_for_backward(source, *output, *parameters[: len(layers)])
        ctx.mark_non_differentiable(*output[:-1])
        ctx.set_materialize_grads(False)  # or zeros would be written for the others

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        layers: tuple[Layer, ...] = ctx.layers
        saved = ctx.saved_tensors
        boards, weights = saved[: len(layers) + 1], saved[len(layers) + 1 :]
        to_weights, to_biases = _gradients(layers, ctx.precision, boards, weights, grads[-1].contiguous())
        return None, None, None, *to_weights, *to_biases

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], layers: tuple[Layer, ...], precision: str, *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Several networks, each with boards and weights of its own; without gradients."""
        stacked = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(tensors, in_dims[2:], strict=True)
        ]
        source, *parameters = (tensor.contiguous() for tensor in stacked)
        return tuple(_run(layers, precision, source, parameters)), (0,) * len(layers)


def _run(layers: tuple[Layer, ...], precision: str, source: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The results of all layers; everything has a first axis for networks."""
    boards = [source]
    for i, layer in enumerate(layers):
        weight, bias = parameters[i], parameters[len(layers) + i]
        added = None if layer.added is None else boards[layer.added]
        boards.append(fallback.forward(layer, boards[-1], weight, bias.contiguous(), added, precision))
    return boards[1:]


def _gradients(
    layers: tuple[Layer, ...], precision: str, boards: Sequence[Tensor], weights: Sequence[Tensor], gradient: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients of weights and biases; `boards` are the source and the results, `gradient` is the last one's."""
    to_weights: list[Tensor] = []
    to_biases: list[Tensor] = []
    result: Tensor | None = boards[-1]
    to_boards: dict[int, Tensor] = {}  # gradients that go to earlier boards past the convolutions between
    for i in range(len(layers) - 1, -1, -1):
        layer = layers[i]
        keeps = i > 0 or layer.added is not None
        to_weight, to_bias, before = fallback.weight_gradient(
            layer, boards[i], weights[i], gradient, result, precision, keeps=keeps
        )
        to_weights.insert(0, to_weight)
        to_biases.insert(0, to_bias)
        if layer.added is not None:
            to_boards[layer.added] = before
        if i > 0:
            gradient, result = (
                fallback.source_gradient(layer, before, weights[i], to_boards.get(i), boards[i], precision),
                None,
            )
    return to_weights, to_biases
