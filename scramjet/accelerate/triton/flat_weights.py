"""Weights and Adam's moments of a network in one memory each, which kernels read and write as a whole.

Parameters and the optimizer's state stay what they are to torch, with the same names and shapes; they become views of
that memory. Loading a checkpoint may replace them: `refresh` and `use_optimizer` copy what was loaded and put the views
back, so that recorded CUDA graphs, which know the addresses, see it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class FlatWeights:
    """The parameters of a network, each at its place in a row of `size` numbers; what is between them stays 0."""

    def __init__(self, parameters: Sequence[Tensor], places: Sequence[int], size: int) -> None:
        self._parameters, device = list(parameters), parameters[0].device
        self.weights, self.exp_avg, self.exp_avg_sq = (torch.zeros(size, device=device) for _ in range(3))
        """Each [size]."""
        self.counts = torch.zeros(len(parameters), device=device)
        """Adam's number of steps, once for each parameter as torch keeps it."""
        self._places = list(places)
        self._weight_views = [(view, view.data_ptr()) for view in self.views_of(self.weights)]
        self._states = list(
            zip(self.counts.unbind(), self.views_of(self.exp_avg), self.views_of(self.exp_avg_sq), strict=True)
        )
        self.refresh()

    def views_of(self, row: Tensor) -> list[Tensor]:
        """The part of a row [size] that belongs to each parameter, in its shape and layout."""
        return [
            row[place : place + parameter.numel()].as_strided(parameter.shape, parameter.stride())
            for parameter, place in zip(self._parameters, self._places, strict=True)
        ]

    @property
    def are_in_place(self) -> bool:
        """Whether every parameter still lies here."""
        pairs = zip(self._parameters, self._weight_views, strict=True)
        return all(parameter.data_ptr() == address for parameter, (_, address) in pairs)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights that have moved to other memory."""
        for parameter, (view, address) in zip(self._parameters, self._weight_views, strict=True):
            if parameter.data_ptr() != address:
                view.copy_(parameter)
                parameter.data = view

    @torch.no_grad()
    def use_optimizer(self, optimizer: torch.optim.Adam) -> bool:
        """Take over an optimizer's moments and step counts that have moved; where it has none yet they begin at 0.

        Returns whether there were any to take over.
        """
        has_moved = False
        for parameter, views in zip(self._parameters, self._states, strict=True):
            state = optimizer.state[parameter]
            for name, view in zip(("step", "exp_avg", "exp_avg_sq"), views, strict=True):
                known = state.get(name)
                if known is view:
                    continue
                has_moved |= known is None or known.data_ptr() != view.data_ptr()
                if known is None:
                    view.zero_()
                elif known.data_ptr() != view.data_ptr():
                    view.copy_(known)
                state[name] = view
        return has_moved

    def snapshot(self) -> list[Tensor]:
        """Copies of everything, for `restore`."""
        return [numbers.clone() for numbers in self._all]

    def restore(self, snapshot: Sequence[Tensor]) -> None:
        """Undo what happened since `snapshot`."""
        for numbers, kept in zip(self._all, snapshot, strict=True):
            numbers.copy_(kept)

    @property
    def _all(self) -> tuple[Tensor, ...]:
        return self.weights, self.exp_avg, self.exp_avg_sq, self.counts
