"""The random numbers that actions are drawn with, divided among the ranks that play one rollout together."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.policies.distributions import Distribution
from scramjet.runtime.ranks import Ranks
from scramjet.training.seeds import draws_together


class NoiseOfRank:
    """Draws the noise of one rank's rows into its rollout.

    The numbers of all ranks' rows are drawn, from a generator that is the same on all, and the rank's own kept: so an
    env is played alike by whichever rank. Very many ranks draw their own each, from generators of their own.
    """

    def __init__(self, distribution: Distribution, noise: Tensor, ranks: Ranks) -> None:
        """`noise` [T, R, ...] is the rank's own, written by each draw."""
        self._distribution, self._noise = distribution, noise
        num_steps, num_rows = noise.shape[:2]
        is_divided = not ranks.is_alone and draws_together(ranks)
        self._all = noise.new_empty(num_steps, ranks.size * num_rows, *noise.shape[2:]) if is_divided else noise
        self._own = self._all[:, ranks.rank * num_rows : (ranks.rank + 1) * num_rows] if is_divided else noise

    def draw(self, generator: torch.Generator) -> None:
        """Draw the noise of all steps of a rollout."""
        num_steps, num_rows = self._all.shape[:2]
        self._distribution.noise(num_steps, num_rows, generator, out=self._all)
        if self._own is not self._noise:
            self._noise.copy_(self._own)
