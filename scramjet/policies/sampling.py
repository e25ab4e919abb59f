"""Compiled sampling of actions: one pass over a row's logits instead of a dozen torch operators."""

from __future__ import annotations

import math

import numpy as np

from scramjet.compile.jit import RowKernel

MASKED_LOGIT = -1e9
"""Logit of an illegal action: probability exactly 0 in float32, yet finite, so that entropy and gradients are too."""


@RowKernel
def sample_rows(
    start: int, stop: int, logits: np.ndarray, uniform: np.ndarray, action: np.ndarray, log_prob: np.ndarray
) -> None:
    """Draw each row's action by inverting its categorical distribution at `uniform` [B]; write its log-probability."""
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
                chosen = a  # the last possible action counts if rounding keeps the sum below the threshold
                if reached > threshold:
                    break
        if chosen < 0:
            chosen = 0  # logits are NaN; the checks of the rollout report it
        action[row] = chosen
        log_prob[row] = logits[row, chosen] - highest - math.log(total)


@RowKernel
def sample_components(
    start: int, stop: int,
    logits: np.ndarray, offsets: np.ndarray, uniform: np.ndarray, action: np.ndarray, log_prob: np.ndarray,
) -> None:  # fmt: skip
    """Draw several choices for each row, component d from logits offsets[d]:offsets[d + 1] at `uniform[:, d]`; write
    the sum of their log-probabilities."""
    for row in range(start, stop):
        summed = 0.0
        for component in range(len(offsets) - 1):
            first, end = offsets[component], offsets[component + 1]
            highest = logits[row, first]
            for a in range(first + 1, end):
                highest = max(highest, logits[row, a])
            total = 0.0
            for a in range(first, end):
                total += math.exp(logits[row, a] - highest)
            threshold = uniform[row, component] * total
            chosen = first
            reached = 0.0
            for a in range(first, end):
                weight = math.exp(logits[row, a] - highest)
                reached += weight
                if weight > 0.0:
                    chosen = a  # the last possible one counts if rounding keeps the sum below the threshold
                    if reached > threshold:
                        break
            action[row, component] = chosen - first
            summed += logits[row, chosen] - highest - math.log(total)
        log_prob[row] = summed


@RowKernel
def sample_normal(
    start: int, stop: int,
    logits: np.ndarray, noise: np.ndarray, squashes: bool, log_stretch: float, low: float, high: float,
    action: np.ndarray, log_prob: np.ndarray,
) -> None:  # fmt: skip
    """Draw `action` [B, D] as mean + deviation * `noise`; write its log-probability, that of its tanh if `squashes`."""
    size = noise.shape[1]
    for row in range(start, stop):
        summed = 0.0
        for d in range(size):
            mean = logits[row, d]
            log_std = min(max(logits[row, size + d], low), high)
            action[row, d] = mean + math.exp(log_std) * noise[row, d]
            u = action[row, d]  # as stored, in float32, because the loss reads it so
            distance = (u - mean) * math.exp(-log_std)
            summed -= 0.5 * distance * distance + log_std + 0.9189385332046727  # log(2 pi) / 2
            if squashes:
                summed -= 2.0 * (0.6931471805599453 - abs(u) - math.log1p(math.exp(-2.0 * abs(u))))  # log 2
        log_prob[row] = summed - log_stretch
