"""Layers with their initial weights, the record that a network returns, and values on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from scramjet.policies.config import PolicyConfig

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


# --- values on a logarithmic scale (Hafner et al. 2023), on which large and small returns are learned alike


MAX_SYMLOG = 40.0
"""Where numbers are cut before they are exponentiated: 2e17, whose square is far from infinity."""
BIN_RANGE = 20.0
"""The symlog of the largest return that bins reach to: 5e8."""


def symlog(numbers: Tensor) -> Tensor:
    """sign(x) log(|x| + 1): large numbers compressed, small ones hardly changed (Hafner et al. 2023, eq. 9)."""
    return numbers.sign() * numbers.abs().log1p()


def symexp(numbers: Tensor) -> Tensor:
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`; numbers beyond `MAX_SYMLOG` count as that."""
    return numbers.sign() * numbers.abs().clamp(max=MAX_SYMLOG).expm1()


def two_hot(numbers: Tensor, bins: Tensor) -> Tensor:
    """Weights [B, K] of the two of K ascending bins beside each number [B], whose mean is the number.

    Numbers beyond the outermost bins count as those.
    """
    upper = torch.searchsorted(bins, numbers).clamp(1, len(bins) - 1)
    below, above = bins[upper - 1], bins[upper]
    share = ((numbers - below) / (above - below)).clamp(0, 1).unsqueeze(-1)
    weights = numbers.new_zeros(len(numbers), len(bins))
    weights.scatter_(1, upper.unsqueeze(-1) - 1, 1 - share)
    return weights.scatter_(1, upper.unsqueeze(-1), share)


class TwoHotHead(nn.Module):
    """Values as a distribution over K returns, evenly spaced on the symlog scale (Hafner et al. 2023, eq. 10).

    The value is the mean of the distribution, in the space of returns. It is learned by the cross entropy with two-hot
    weights of the returns, whose gradient is as large for small returns as for large ones.
    """

    bins: Tensor

    def __init__(self, num_features: int, num_bins: int) -> None:
        super().__init__()
        self.layer = nn.Linear(num_features, num_bins)
        for parameter in self.layer.parameters():
            nn.init.zeros_(parameter)  # so that every value is 0 at first
        self.register_buffer("bins", symexp(torch.linspace(-BIN_RANGE, BIN_RANGE, num_bins)), persistent=False)
        self._logits: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a copy gets: not the logits, which belong to the graph of a forward pass."""
        return {**self.__dict__, "_logits": None}

    def forward(self, features: Tensor) -> Tensor:
        """Values [B, 1] of features [B, F]; where gradients are wanted, the logits are kept for the next `loss`."""
        logits = self.layer(features)
        self._logits = logits if torch.is_grad_enabled() else None
        weighed = logits.softmax(-1) * self.bins  # of opposite bins first, so that equal weights give 0 exactly
        return (0.5 * (weighed + weighed.flip(-1))).sum(-1, keepdim=True)

    def loss(self, returns: Tensor) -> Tensor:
        """Cross entropies [B] of the values that were last computed with the returns [B] that they should be."""
        assert self._logits is not None
        logits, self._logits = self._logits, None
        return -(two_hot(returns, self.bins) * logits.float().log_softmax(-1)).sum(-1)


def value_head(num_features: int, config: PolicyConfig) -> nn.Linear | TwoHotHead:
    """The layer from features to a value, [B, 1]; gain 1, for values of natural scale."""
    if config.value_bins is not None:
        return TwoHotHead(num_features, config.value_bins)
    return orthogonal(nn.Linear(num_features, 1), 1.0)
