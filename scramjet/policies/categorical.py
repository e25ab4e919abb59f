"""The categorical distribution over discrete actions, with masks: sampling, log-probability, entropy."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.jit import RowKernel

MASKED_LOGIT = -1e9
"""Far below any logit: probability exactly 0 in float32, yet finite, so that entropy and gradients stay so."""


def mask_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Logits [B, A] with illegal actions (mask False) out of reach."""
    return logits if mask is None else logits.masked_fill(~mask, MASKED_LOGIT)


def log_prob_and_entropy(logits: Tensor, action: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """log pi(a|s) [B] of `action` [B] and the entropy [B], over legal actions only."""
    log_probs = torch.log_softmax(mask_logits(logits, mask), dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy


def sample(logits: Tensor, mask: Tensor | None, uniform: Tensor, action: Tensor, log_prob: Tensor) -> None:
    """Draw `action` [B] by inverting the distribution at `uniform` [B], and write its `log_prob` [B]."""
    _sample_rows.on(len(logits), mask_logits(logits, mask), uniform, action, log_prob)


def most_likely(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The action of highest probability, [B]."""
    return mask_logits(logits, mask).argmax(-1)


@RowKernel
def _sample_rows(
    start: int, stop: int, logits: np.ndarray, uniform: np.ndarray, action: np.ndarray, log_prob: np.ndarray
) -> None:
    """One pass a row instead of an operator a row: sampling is a large part of a small policy's time."""
    for row in range(start, stop):
        highest = logits[row, 0]
        for a in range(1, logits.shape[1]):
            highest = max(highest, logits[row, a])
        total = 0.0
        for a in range(logits.shape[1]):
            total += math.exp(logits[row, a] - highest)
        threshold = uniform[row] * total
        chosen = -1
        reached = 0.0
        for a in range(logits.shape[1]):
            weight = math.exp(logits[row, a] - highest)
            reached += weight
            if weight > 0.0:
                chosen = a  # the last possible action, should rounding leave the sum short of the threshold
                if reached > threshold:
                    break
        if chosen < 0:
            chosen = 0  # logits that are not numbers; the rollout's check reports where they come from
        action[row] = chosen
        log_prob[row] = logits[row, chosen] - highest - math.log(total)
