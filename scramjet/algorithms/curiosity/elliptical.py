"""The elliptical episodic bonus (E3B, Henaff et al. 2022): how far an observation's features are from those of its
episode so far.

With features phi and C = ridge I + the sum of phi phi^T over the observations of the episode, the bonus of an
observation is phi^T C^-1 phi, before it is added to C (eq. 4 and algorithm 1). For one-hot features and a small ridge
it is 1 / n of an observation seen n times before: the elliptical bonus generalizes counts.

Features of an observation enter C when a step leads to it, and those of an episode's first when the episode begins.
What an episode's last step led to is not in a rollout: in its place stands the first observation of the next episode.
So the last step of an episode has no bonus.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from scramjet.algorithms.curiosity.episodic_memory import EpisodicMemory
from scramjet.compile.jit import RowKernel
from scramjet.compile.kernel_choice import takes_kernels


class EllipticalMemory(EpisodicMemory):
    """C^-1 of the episode of each of R rows, kept over rollouts."""

    inverse: Tensor  # [R, D, D], C^-1; its content means nothing between episodes

    def __init__(self, num_rows: int, num_features: int, ridge: float) -> None:
        super().__init__(num_rows)
        self.ridge = ridge
        self.register_buffer("inverse", torch.zeros(num_rows, num_features, num_features))

    def visit(self, features: Tensor, ended: Tensor, counts: Tensor | None = None) -> Tensor:
        """The bonus of what each step led to, [T, R], not negative.

        features [T + 1, R, D], of the observations before each step and after the last; ended [T, R] bool, where an
        episode ended. Steps that do not count (`counts` [T, R] bool; None: all do) change nothing. 0 there, and where
        an episode ended. Call it with each rollout once, in order of time.
        """
        counts = torch.ones_like(ended) if counts is None else counts
        if features.is_cuda:
            visit = _visit_on_gpu(features)
            return visit(features.detach().float(), ended, counts, self.inverse, self.is_under_way, self.ridge)
        bonus = torch.empty(ended.shape, device=ended.device)
        _visit.on(
            ended.shape[1], features.detach().float().contiguous(), ended.contiguous(), counts.contiguous(),
            self.inverse, self.is_under_way, torch.empty_like(self.inverse[:, 0]), np.float32(self.ridge), bonus,
        )  # fmt: skip
        return bonus


def _visit_on_gpu(features: Tensor) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float], Tensor]:
    """Row by row if a row's matrix fits on the chip, else all rows at once."""
    if takes_kernels(features):
        from scramjet.algorithms.curiosity.elliptical_kernel import MOST_FEATURES, visit_by_rows  # loads Triton

        if features.shape[2] <= MOST_FEATURES:
            return visit_by_rows
    return visit_together


def visit_together(
    features: Tensor, ended: Tensor, counts: Tensor, inverse: Tensor, is_under_way: Tensor, ridge: float
) -> Tensor:
    """What `_visit` computes, for all rows at once, as a GPU is quick at: a thread for each row would read its own
    matrix from end to end. Arguments as for `EllipticalMemory`; the two last tensors are updated in place."""
    identity = torch.eye(features.shape[2], device=features.device) / ridge
    bonuses = []
    for t in range(len(ended)):
        begins, stays = counts[t] & ~is_under_way, counts[t] & ~ended[t]
        inverse.copy_(torch.where(begins.view(-1, 1, 1), identity, inverse))
        _add(inverse, features[t], begins)
        bonuses.append(torch.where(stays, _add(inverse, features[t + 1], stays), 0.0))
        is_under_way.copy_((is_under_way | counts[t]) & ~ended[t])
    return torch.stack(bonuses)


def _add(inverse: Tensor, phi: Tensor, chosen: Tensor) -> Tensor:
    """Add features [R, D] to the matrices of the `chosen` rows [R]; returns phi^T C^-1 phi before that, [R]."""
    product = (inverse * phi.unsqueeze(1)).sum(-1)  # not a matrix product, which the GPU may round
    squared = (phi * product).sum(-1).clamp(min=0.0)
    weight = torch.where(chosen, 1.0 / (1.0 + squared), 0.0)
    inverse.addcmul_((product * weight.unsqueeze(1)).unsqueeze(2), product.unsqueeze(1), value=-1.0)
    return squared


@RowKernel
def _visit(
    start: int, stop: int,
    features: np.ndarray, ended: np.ndarray, counts: np.ndarray, inverse: np.ndarray, is_under_way: np.ndarray,
    product: np.ndarray, ridge: np.float32, bonus: np.ndarray,
) -> None:  # fmt: skip
    """Rows start to stop, step by step; C^-1 is updated by Sherman and Morrison's formula for C + phi phi^T.

    `product` [R, D] is scratch for C^-1 phi. It is summed over columns, since C is symmetric: so loops over numbers
    that lie side by side have no sums in them, and the compiler can vectorize them.
    """
    size, zero, one = features.shape[2], np.float32(0.0), np.float32(1.0)
    for n in range(start, stop):
        for t in range(ended.shape[0]):
            bonus[t, n] = zero
            if counts[t, n]:
                begins = not is_under_way[n]
                if begins:
                    for i in range(size):
                        for j in range(size):
                            inverse[n, i, j] = one / ridge if i == j else zero
                    is_under_way[n] = True
                for after in range(0 if begins else 1, 1 if ended[t, n] else 2):
                    for j in range(size):
                        product[n, j] = zero
                    for i in range(size):
                        weight = features[t + after, n, i]
                        for j in range(size):
                            product[n, j] += inverse[n, i, j] * weight
                    squared = zero
                    for i in range(size):
                        squared += features[t + after, n, i] * product[n, i]
                    squared = max(squared, zero)
                    for i in range(size):
                        weight = product[n, i] / (one + squared)
                        for j in range(size):
                            inverse[n, i, j] -= weight * product[n, j]
                    bonus[t, n] = squared if after else zero
            if ended[t, n]:
                is_under_way[n] = False
