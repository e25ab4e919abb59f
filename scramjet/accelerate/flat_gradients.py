"""The gradients of all weights in one piece of memory, so that ranks add them up in one exchange."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scramjet.runtime.ranks.interface import Ranks


class FlatGradients:
    """The gradients of some parameters, one behind the other, then the terms of the loss that they belong to.

    A parameter that a minibatch does not reach has a gradient of 0, since it may be reached on another rank.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], num_terms: int) -> None:
        self._parameters = parameters
        sizes = [parameter.numel() for parameter in parameters]
        self._numbers = torch.zeros(sum(sizes) + num_terms, device=parameters[0].device)
        *parts, self._terms = self._numbers.split([*sizes, num_terms])
        self._views = [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]

    def clear(self) -> None:
        """Set everything to 0, and have backward passes add to it."""
        self._numbers.zero_()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def add_up(self, terms: Tensor | None, ranks: Ranks) -> Tensor:
        """Replace the gradients by their sum over all ranks; returns the sum of `terms` [terms], None: zeros."""
        if terms is not None:
            self._terms.copy_(terms)
        ranks.add(self._numbers)
        return self._terms.clone()
