"""Proximal policy optimization (Schulman et al. 2017): the losses."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(slots=True)
class LossTerms:
    """A minibatch's losses and diagnostics, scalars on the device."""

    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    approx_kl_k1: Tensor
    clip_fraction: Tensor

    def scaled(self, factor: Tensor) -> LossTerms:
        """Every term multiplied by `factor`."""
        return LossTerms(*(getattr(self, field.name) * factor for field in fields(self)))


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, *, clip: float | Tensor) -> Tensor:
    """PPO policy loss (Schulman et al. 2017, eq. 7), to be minimized. Both [B]; returns a scalar."""
    ratio = log_ratio.exp()
    bounded = ratio.clamp(1 - clip, 1 + clip)  # type: ignore[arg-type]
    return -torch.min(ratio * advantage, bounded * advantage).mean()


def value_loss(value: Tensor, old_value: Tensor, returns: Tensor, *, clip: float | None) -> Tensor:
    """Half the mean squared error, [B] to a scalar; clipped, the larger of the two errors counts."""
    error = (value - returns).square()
    if clip is not None:
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.max(error, (clipped - returns).square())
    return 0.5 * error.mean()


def normalize(advantage: Tensor, counts: Tensor | None = None) -> Tensor:
    """Advantages [B] brought to mean 0 and deviation 1; a single sample is only centred.

    `counts` [B] bool: those that count; the others become 0. The mean is that of distances from one of them, or where
    all are alike its rounding error would be brought to deviation 1.
    """
    first = advantage[:1] if counts is None else advantage.index_select(0, counts.int().argmax(0, keepdim=True))
    advantage = advantage - first
    if counts is None:
        centred = advantage - advantage.mean()
        return centred / (centred.square().sum() / max(len(advantage) - 1, 1)).sqrt().add(1e-8)
    number = counts.sum()
    centred = torch.where(counts, advantage - torch.where(counts, advantage, 0.0).sum() / number, 0.0)
    return centred / (centred.square().sum() / (number - 1).clamp(min=1)).sqrt().add(1e-8)


def normalizing(moments: Tensor) -> Tensor:
    """The mean and 1 / (deviation + 1e-8) that normalize numbers with these moments [3, ...], [..., 2] float32."""
    count, mean, squares = moments
    deviation = (squares / (count - 1).clamp(min=1)).sqrt()
    return torch.stack([mean, 1 / (deviation + 1e-8)], -1).float()


def normalize_by(statistics: Tensor, advantage: Tensor) -> Tensor:
    """Advantages [B] normalized by the mean and 1 / deviation of a larger set that they are part of."""
    mean, scale = statistics.unbind()
    return (advantage - mean) * scale


def ppo_loss(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    *,
    old_log_prob: Tensor,
    old_value: Tensor,
    advantage: Tensor,
    returns: Tensor,
    clip: float | Tensor,
    value_clip: float | None,
    entropy_coef: float | Tensor,
    value_coef: float,
    policy_term: Tensor | None = None,
    value_term: Tensor | None = None,
) -> LossTerms:
    """The whole loss (Schulman et al. 2017, eq. 9) and its diagnostics; all tensors [B].

    Torch's operators learn by this function. Kernels write it again with its gradient, and tests compare them with it:
    `kernels/cpu/losses.py`, `kernels/gpu/mlp.py` and `kernels/gpu/losses.py`.

    A scalar `policy_term` replaces the clipped surrogate, a scalar `value_term` the squared error of values.
    """
    log_ratio = log_prob - old_log_prob
    if policy_term is None:
        policy_term = clipped_surrogate(log_ratio, advantage, clip=clip)
    if value_term is None:
        value_term = value_loss(value, old_value, returns, clip=value_clip)
    entropy_term = entropy.mean()
    with torch.no_grad():
        ratio = log_ratio.exp()
        k1 = -log_ratio.mean()
        k3 = (ratio - 1 - log_ratio).mean()  # Schulman 2020, "Approximating KL divergence": never negative
        clip_fraction = ((ratio - 1).abs() > clip).float().mean()
    total = policy_term + value_coef * value_term - entropy_coef * entropy_term
    return LossTerms(total, policy_term, value_term, entropy_term, k3, k1, clip_fraction)


def explained_variance(value: Tensor, returns: Tensor, counts: Tensor | None = None) -> Tensor:
    """1 - Var[returns - value] / Var[returns], a scalar; NaN where returns do not vary. `counts` [B] bool: which do."""
    return _explained(*_moments(returns, counts), _moments(returns - value, counts)[1])


def explained_by_moments(returns: Tensor, errors: Tensor) -> Tensor:
    """The explained variance from the moments [3] of returns and of returns minus values."""
    return _explained(returns[1], returns[2] / returns[0], errors[2] / errors[0])


def _explained(mean: Tensor, variance: Tensor, variance_left: Tensor) -> Tensor:
    varies = variance > 1e-12 * mean.square() + 1e-12  # else nothing to explain but rounding
    return torch.where(varies, 1 - variance_left / variance, torch.nan)


def _moments(numbers: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance of those numbers [B] that count."""
    if counts is None:
        return numbers.mean(), numbers.var(unbiased=False)
    mean = torch.where(counts, numbers, 0.0).sum() / counts.sum()
    return mean, torch.where(counts, (numbers - mean).square(), 0.0).sum() / counts.sum()
