"""Proximal policy optimization (Schulman et al. 2017): the losses, and every number that shapes them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from scramjet.algorithms.schedules import Schedule
from scramjet.errors import ConfigError
from scramjet.settings import MIN_POSITIVE, largest_divisor, require, require_counts, settle

MOST_MINIBATCHES = 64
"""The most gradient steps per pass if no minibatch size is given: larger rollouts have larger minibatches."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimization."""

    learning_rate: float | str = 3e-4
    """Adam's step size: a number, or a schedule over env steps such as 0.001@0,0.0001@40M or 0.001@0,0@end."""
    gamma: float = 0.99
    """Discount of the future, per step."""
    gae_lambda: float = 0.95
    """Trades bias against variance of the advantages: 0 is one-step, 1 is Monte Carlo."""
    loss: Literal["ppo", "impala"] = "ppo"
    """The policy's loss: the clipped surrogate, or IMPALA's policy gradient."""
    advantage: Literal["auto", "gae", "vtrace"] = "auto"
    """How advantages are estimated: gae once for each rollout, vtrace again before each pass for the policy of that
    moment; auto: vtrace for impala and for trajectories of older weights, else gae."""
    vtrace_rho_clip: float = 1.0
    """vtrace: bound on the probability ratio that weights a step's error."""
    vtrace_c_clip: float = 1.0
    """vtrace: bound on the probability ratio that carries later errors back."""
    bptt_horizon: int | None = None
    """With memory: steps that gradients go back; divides num_steps; none: the whole rollout."""
    num_epochs: int | Literal["auto"] = "auto"
    """Passes over each rollout; auto: 10, for impala 1, since its loss does not bound how far a policy moves."""
    num_minibatches: int | None = None
    """Gradient steps per pass, in place of a size; each sample is in exactly one minibatch."""
    minibatch_size: int | Literal["auto"] | None = "auto"
    """Samples per gradient step; auto: 256, of other libraries' envs 64, or more where a pass would have over 64 steps;
    none: by the number of minibatches."""
    clip_epsilon: float | str = 0.2
    """How far the probability ratio may move: a number or a schedule."""
    value_clip: float | None = None
    """How far a value may move per update (the larger of the two losses counts); none: no clipping."""
    entropy_coef: float | str = 0.01
    """Weight of the entropy bonus: a number or a schedule."""
    target_entropy: float | None = None
    """Adapt entropy_coef so that actions stay this random: choices, a share of the largest entropy, 0 to 1; continuous,
    the entropy of noise of this deviation. None: not adapted."""
    target_entropy_rate: float = 2.0
    """target_entropy: how fast entropy_coef is adapted; it changes by e to the rate for a share, or nat, amiss."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    value_scale: Literal["none", "popart", "symlog"] = "none"
    """What the value network gives instead of returns: popart, returns normalized by running statistics; symlog, their
    logarithm with a sign, whose mean is below theirs where chance decides. A value_clip is a distance in that scale."""
    max_grad_norm: float | None = 0.5
    """Bound on the norm of all gradients together; none: no bound."""
    normalize_advantages: Literal["minibatch", "batch", "off"] = "minibatch"
    """Over which samples advantages are normalized to mean 0 and deviation 1."""
    target_kl: float | None = None
    """Stop an update's epochs once the mean KL divergence of an epoch exceeds this; none: never."""
    adam_eps: float = 1e-5
    """Adam's epsilon."""
    normalize_observations: bool = True
    """Normalize observations to mean 0 and deviation 1 by running statistics: numbers, not choices, flags or images."""
    normalize_rewards: bool = True
    """Scale rewards by the running deviation of the discounted return."""
    reward_clip: float | None = None
    """Clip the rewards that are learned from to -x to x; reported returns are not clipped; none: no clipping."""

    def __post_init__(self) -> None:
        settle(self)
        require(self, ("gamma", "gae_lambda"), lambda x: 0 <= x <= 1, "must be from 0 to 1")
        require_counts(self, ("num_epochs", "num_minibatches", "minibatch_size", "bptt_horizon"))
        require(self, ("value_coef",), lambda x: x >= 0, "must be at least 0")
        bounds = ("max_grad_norm", "value_clip", "reward_clip", "target_kl", "vtrace_rho_clip", "vtrace_c_clip")
        positive = ("adam_eps", "target_entropy", "target_entropy_rate", *bounds)
        require(self, positive, lambda x: x is None or x > 0, "must be above 0")
        vanishes = f"is 0 in float32; use {MIN_POSITIVE:.2g} or more"
        require(self, positive, lambda x: x is None or x >= MIN_POSITIVE, vanishes)
        if self.target_entropy is None and self.target_entropy_rate != PPOConfig.target_entropy_rate:
            raise ConfigError(
                f"target_entropy_rate={self.target_entropy_rate} does nothing without a target; add --target-entropy "
                f"0.5 or another, or leave it out"
            )
        for name in ("learning_rate", "entropy_coef", "clip_epsilon"):
            Schedule.parse(name, getattr(self, name))

    @property
    def epochs(self) -> int:
        """Passes over each rollout, decided."""
        if self.num_epochs == "auto":
            return 1 if self.loss == "impala" else 10
        return self.num_epochs

    def num_minibatches_for(self, batch_size: int, sequence_length: int = 1, usual_size: int = 256) -> int:
        """Gradient steps per pass over `batch_size` samples, all of one size; with memory, of whole sequences.

        If the config gives neither size nor number, minibatches have about `usual_size` samples.
        """
        num_units = batch_size // sequence_length
        if self.minibatch_size in ("auto", None):
            if self.num_minibatches is None:
                wanted = min(MOST_MINIBATCHES, max(1, batch_size // usual_size))
                return largest_divisor(num_units, wanted)
            if num_units % self.num_minibatches:
                fit = largest_divisor(num_units, self.num_minibatches)
                units = f"{batch_size} samples (num_envs x num_steps)"
                if sequence_length > 1:
                    units = f"{num_units} sequences of {sequence_length} steps"
                raise ConfigError(
                    f"num_minibatches={self.num_minibatches} does not split the batch of {units} evenly; "
                    f"try --num-minibatches {fit}"
                )
            return self.num_minibatches
        assert isinstance(self.minibatch_size, int)
        if batch_size % self.minibatch_size or self.minibatch_size % sequence_length:
            too_large = self.minibatch_size > batch_size
            wanted = (batch_size // 4 if too_large else self.minibatch_size) // sequence_length
            fit = sequence_length * largest_divisor(num_units, wanted or 1)
            problem = "is larger than" if too_large else "does not evenly split"
            memory = f", which memory keeps in sequences of {sequence_length} steps" if sequence_length > 1 else ""
            raise ConfigError(
                f"minibatch_size={self.minibatch_size} {problem} the batch of {batch_size} samples "
                f"(num_envs x num_steps){memory}; try --minibatch-size {fit}"
            )
        return batch_size // self.minibatch_size


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

    `counts` [B] bool: those that count; the others become 0.
    """
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
    `accelerate/numba/loss_kernels.py`, `accelerate/triton/mlp/losses.py` and `accelerate/triton/loss_kernels.py`.

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
