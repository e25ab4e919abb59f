"""Gumbel AlphaZero (Danihelka et al. 2022, Policy improvement by planning with Gumbel): its equations.

The functions here are the plain form of the paper, for a batch of nodes with A actions each; the tree's kernels compute
the same for one node at a time. Q-values are rescaled to 0 to 1 within a node before they count (the paper's appendix,
and mctx), so the size of rewards does not matter. Logits are those after masking: illegal actions have so low a one
that their probability is 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SMALLEST_PRIOR = 1.2e-38
"""Least probability of a legal action: float32 would round a smaller one to 0, which says that it is illegal."""
SMALLEST_RANGE = 1e-8
"""Least difference between q-values by which they are divided."""


def considered_visits(considered: int, simulations: int) -> Tensor:
    """Sequential halving (the paper's algorithm 2) as a table, int32 [considered + 1, simulations].

    Row m is for a root that considers m actions: simulation t goes to one that has so many visits, the best of those.
    Every phase gives the actions that are left the same number of visits, then keeps the better half, two at least.
    """
    rows = [_halving(num_actions, simulations) for num_actions in range(considered + 1)]
    return torch.tensor(rows, dtype=torch.int32)


def _halving(num_actions: int, simulations: int) -> list[int]:
    """The row of `considered_visits` for so many actions."""
    if num_actions <= 1:
        return list(range(simulations))
    num_phases = math.ceil(math.log2(num_actions))
    schedule: list[int] = []
    num_left, visits = num_actions, 0
    while len(schedule) < simulations:
        for _ in range(max(1, simulations // (num_phases * num_left))):
            schedule += [visits] * num_left
            visits += 1
        num_left = max(2, num_left // 2)
    return schedule[:simulations]


def mixed_value(prior: Tensor, q: Tensor, visits: Tensor, value: Tensor) -> Tensor:
    """The value [B] that stands for actions without visits (eq. 33).

    It mixes the network's `value` [B] with the q-values of visited actions, these weighted by the `prior` [B, A].
    """
    weight = prior.clamp(min=SMALLEST_PRIOR) * (visits > 0)
    mean_q = (weight * q).sum(-1) / weight.sum(-1).clamp(min=SMALLEST_PRIOR)
    total = visits.sum(-1)
    return (value + total * mean_q) / (1 + total)


def completed_q(prior: Tensor, q: Tensor, visits: Tensor, value: Tensor) -> Tensor:
    """Q-values [B, A], completed by the mixed value where there was no visit (eq. 10 with eq. 33)."""
    return torch.where(visits > 0, q, mixed_value(prior, q, visits, value).unsqueeze(-1))


def sigma(q: Tensor, visits: Tensor, *, value_scale: float, visit_offset: float) -> Tensor:
    """(c_visit + max_b N(b)) c_scale q (eq. 8), [B, A], of completed q-values that are rescaled to 0 to 1 first."""
    low, high = q.amin(-1, keepdim=True), q.amax(-1, keepdim=True)
    rescaled = (q - low) / (high - low).clamp(min=SMALLEST_RANGE)
    return (visit_offset + visits.amax(-1, keepdim=True)) * value_scale * rescaled


def improved_policy(
    logits: Tensor, q: Tensor, visits: Tensor, value: Tensor, *, value_scale: float, visit_offset: float
) -> Tensor:
    """pi' = softmax(logits + sigma(completed q)) (eq. 11), [B, A]; 0 for illegal actions."""
    completed = completed_q(torch.softmax(logits, dim=-1), q, visits, value)
    return torch.softmax(logits + sigma(completed, visits, value_scale=value_scale, visit_offset=visit_offset), dim=-1)


def policy_loss(logits: Tensor, target: Tensor) -> Tensor:
    """KL(pi', pi) of the improved policy `target` [B, A] and the network's (eq. 12), a scalar to be minimized."""
    return (torch.xlogy(target, target) - target * torch.log_softmax(logits, dim=-1)).sum(-1).mean()
