"""The elliptical episodic bonus (E3B, Henaff et al. 2022): how far an observation's features are from those of its
episode so far.

With features phi and C = ridge I + the sum of phi phi^T over the observations of the episode, the bonus of an
observation is phi^T C^-1 phi, before it is added to C (eq. 4 and algorithm 1). For one-hot features and a small ridge
it is 1 / n of an observation seen n times before: the elliptical bonus generalizes counts.

Features of an observation enter C when a step leads to it, and those of an episode's first when the episode begins.
What an episode's last step led to is not in a rollout: in its place stands the first observation of the next episode.
So the last step of an episode has no bonus.

The memory keeps a matrix S with C^-1 = S S^T in place of C^-1. With each observation it is changed by Potter's square
root update (Kaminski, Bryson and Schmidt 1971): with v = S^T phi and a = 1 + v^T v, S loses S v v^T / (a + sqrt(a)). So
a bonus v^T v is a sum of squares, however long the episode. C^-1 itself, updated in 32 bits, gets negative eigenvalues
from rounding after some ten thousand steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from scramjet.algorithms.curiosity.episodic_memory import EpisodicMemory
from scramjet.compile.jit import RowKernel
from scramjet.compile.vector_maths import dot, inlined
from scramjet.kernels.operations import takes_kernels


class EllipticalMemory(EpisodicMemory):
    """The matrix S of each of R rows' episodes, kept over rollouts."""

    root: Tensor  # [R, D, D], S; its content means nothing between episodes

    def __init__(self, num_rows: int, num_features: int, ridge: float) -> None:
        super().__init__(num_rows)
        self.ridge = ridge
        self.register_buffer("root", torch.zeros(num_rows, num_features, num_features))

    def visit(self, features: Tensor, ended: Tensor, counts: Tensor | None = None) -> Tensor:
        """The bonus of what each step led to, [T, R], not negative.

        features [T + 1, R, D], of the observations before each step and after the last; ended [T, R] bool, where an
        episode ended. Steps that do not count (`counts` [T, R] bool; None: all do) change nothing. 0 there, and where
        an episode ended. Call it with each rollout once, in order of time.
        """
        counts = torch.ones_like(ended) if counts is None else counts
        if features.is_cuda:
            visit = _visit_on_gpu(features)
            return visit(features.detach().float(), ended, counts, self.root, self.is_under_way, self.ridge)
        bonus = torch.empty(ended.shape, device=ended.device)
        _visit.on(
            ended.shape[1], features.detach().float().contiguous(), ended.contiguous(), counts.contiguous(),
            self.root, self.is_under_way, torch.empty_like(self.root[:, 0]), np.float32(self.ridge**-0.5), bonus,
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
    features: Tensor, ended: Tensor, counts: Tensor, root: Tensor, is_under_way: Tensor, ridge: float
) -> Tensor:
    """The bonuses of `EllipticalMemory.visit`, [T, R], step by step for all rows at once, with torch's operators.

    `root` and `is_under_way` are updated in place.
    """
    identity = torch.eye(features.shape[2], device=features.device) / ridge**0.5
    bonuses = []
    for t in range(len(ended)):
        begins, stays = counts[t] & ~is_under_way, counts[t] & ~ended[t]
        root.copy_(torch.where(begins.view(-1, 1, 1), identity, root))
        _add(root, features[t], begins)
        bonuses.append(torch.where(stays, _add(root, features[t + 1], stays), 0.0))
        is_under_way.copy_((is_under_way | counts[t]) & ~ended[t])
    return torch.stack(bonuses)


def _add(root: Tensor, phi: Tensor, chosen: Tensor) -> Tensor:
    """Add features [R, D] to the matrices of the `chosen` rows [R]; returns phi^T C^-1 phi before that, [R]."""
    projected = (root * phi.unsqueeze(2)).sum(1)  # not a matrix product, which the GPU may round
    squared = projected.square().sum(-1)
    weight = torch.where(chosen, 1.0 / (1.0 + squared + (1.0 + squared).sqrt()), 0.0)
    product = (root * projected.unsqueeze(1)).sum(2) * weight.unsqueeze(1)
    root.addcmul_(product.unsqueeze(2), projected.unsqueeze(1), value=-1.0)
    return squared


@RowKernel
def _visit(
    start: int, stop: int,
    features: np.ndarray, ended: np.ndarray, counts: np.ndarray, root: np.ndarray, is_under_way: np.ndarray,
    projected: np.ndarray, first: np.float32, bonus: np.ndarray,
) -> None:  # fmt: skip
    """Rows start to stop, step by step. `first`: what S begins with on its diagonal; `projected` [R, D] is scratch."""
    for n in range(start, stop):
        for t in range(ended.shape[0]):
            bonus[t, n] = 0.0
            if counts[t, n]:
                if not is_under_way[n]:
                    is_under_way[n] = True
                    root[n] = 0.0
                    for i in range(features.shape[2]):
                        root[n, i, i] = first
                    _add_to_row(root[n], features[t, n], projected[n])
                if not ended[t, n]:
                    bonus[t, n] = _add_to_row(root[n], features[t + 1, n], projected[n])
            if ended[t, n]:
                is_under_way[n] = False


@inlined
def _add_to_row(root, phi, projected):  # type: ignore[no-untyped-def]
    """Add features phi [D] to the C of `root` [D, D]; returns phi^T C^-1 phi before that. `projected` is scratch."""
    for j in range(len(phi)):
        projected[j] = 0.0
    for i in range(len(phi)):
        weight = phi[i]
        for j in range(len(phi)):
            projected[j] += root[i, j] * weight
    squared = dot(projected, projected)
    whole = np.float32(1.0) + squared
    share = np.float32(1.0) / (whole + np.sqrt(whole))
    for i in range(len(phi)):
        weight = share * dot(root[i], projected)
        for j in range(len(phi)):
            root[i, j] -= weight * projected[j]
    return squared
