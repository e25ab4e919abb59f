"""The gradients of all weights in one piece of memory, so that ranks add them up in one exchange.

Those of large networks on the CPU are added up in pieces instead, each as soon as the backward pass has filled it,
while the pass goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from scramjet.runtime.ranks.interface import Ranks

MIN_OVERLAPPED = 8 << 20
"""Bytes of gradients from which pieces are exchanged during the backward pass; below, one exchange is as quick."""
PIECE = 2 << 20
"""Bytes of a piece, at least."""


class FlatGradients:
    """The gradients of some parameters, one behind the other, then the terms of the loss that they belong to.

    A parameter that a minibatch does not reach has a gradient of 0, since it may be reached on another rank.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], num_terms: int, ranks: Ranks, *, may_overlap: bool = True
    ) -> None:
        """`may_overlap`: each backward pass adds to each gradient once, so that it may be sent at once."""
        self._parameters, self._ranks = parameters, ranks
        sizes = [parameter.numel() for parameter in parameters]
        self._numbers = torch.zeros(sum(sizes) + num_terms, device=parameters[0].device)
        *parts, self._terms = self._numbers.split([*sizes, num_terms])
        self._views = [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
        overlaps = may_overlap and self._numbers.nbytes >= MIN_OVERLAPPED and not self._numbers.is_cuda
        self._pieces = _Pieces(self._numbers, parameters, ranks) if overlaps else None

    def clear(self) -> None:
        """Set everything to 0, and have the next backward pass add to it."""
        self._numbers.zero_()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view
        if self._pieces is not None:
            self._pieces.begin()

    def add_up(self, terms: Tensor | None) -> Tensor:
        """Replace the gradients by their sum over all ranks; returns the sum of `terms` [terms], None: zeros."""
        if terms is not None:
            self._terms.copy_(terms)
        if self._pieces is None:
            self._ranks.add(self._numbers)
        else:
            self._pieces.end()
            self._ranks.add(self._terms)
        return self._terms.clone()


class _Pieces:
    """Sums of neighbouring gradients that begin while the backward pass goes on.

    It fills the gradients of the last parameters first. Pieces are sent from the last to the first and never out of
    that order, which may differ between ranks otherwise.
    """

    def __init__(self, numbers: Tensor, parameters: Sequence[nn.Parameter], ranks: Ranks) -> None:
        self._ranks = ranks
        self._pieces: list[Tensor] = []  # the last parameters' first
        self._sizes: list[int] = []  # parameters in each piece
        self._missing: list[int] = []  # parameters of each piece that the backward pass has not reached
        self._under_way: list[Callable[[], None]] = []
        end = begin = sum(parameter.numel() for parameter in parameters)
        count = 0
        for place, parameter in reversed(list(enumerate(parameters))):
            begin, count = begin - parameter.numel(), count + 1
            parameter.register_post_accumulate_grad_hook(self._hook(len(self._pieces)))
            if place == 0 or 4 * (end - begin) >= PIECE:
                self._pieces.append(numbers[begin:end])
                self._sizes.append(count)
                end, count = begin, 0

    def _hook(self, piece: int) -> Callable[[Tensor], None]:
        def reached(parameter: Tensor) -> None:
            self._missing[piece] -= 1
            self._send_ready()

        return reached

    def begin(self) -> None:
        """Expect a backward pass."""
        self._missing, self._under_way = list(self._sizes), []

    def _send_ready(self) -> None:
        """Begin the sums of pieces that are filled, up to the first that is not."""
        while len(self._under_way) < len(self._pieces) and not self._missing[len(self._under_way)]:
            self._under_way.append(self._ranks.start_add(self._pieces[len(self._under_way)]))

    def end(self) -> None:
        """Send what the backward pass did not reach too, and wait for all sums."""
        self._missing = [0] * len(self._pieces)
        self._send_ready()
        for finish in self._under_way:
            finish()
