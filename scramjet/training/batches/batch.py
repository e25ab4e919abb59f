"""Prepares the samples of a rollout with their advantages and returns, and estimates these again for V-trace."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.ppo import explained_by_moments, explained_variance, normalize, normalize_by, normalizing
from scramjet.algorithms.value_scaling import ValueScale
from scramjet.executors.samples import Samples
from scramjet.policies.policy import Policy
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.ranks.moments import joined_over, moments_of
from scramjet.training.batches.samples import every_step, lay_out
from scramjet.training.batches.targets import BonusAdvantages, Targets
from scramjet.training.rollout.rollout import Rollout


@dataclass(slots=True)
class Batch:
    """All samples of one rollout, to be learned from in several passes."""

    rollout: Rollout
    samples: Samples
    explained_variance: Tensor  # [], share of the returns' variance that the values at the time of acting explain
    num_counted: Tensor  # [], samples of all ranks that count
    targets: Targets | None  # with V-trace, to estimate advantages again as the policy changes; else None


def prepare_batch(
    rollout: Rollout,
    reward: Tensor,
    config: PPOConfig,
    ranks: Ranks = ALONE,
    *,
    scale: ValueScale | None = None,
    bonus: BonusAdvantages | None = None,
    fixed: bool = False,
) -> Batch:
    """Estimate the advantages and returns of a rollout from rewards [T, R] or [T, N, S], and lay out its samples.

    Statistics are those over the rollouts of all `ranks`. With a `scale`, the rollout's values are outputs in it; its
    statistics take in the returns, and the samples' values and returns are outputs in the scale after that. `bonus` is
    added to the advantages. `fixed`: whether samples have the same shapes for every rollout, see `lay_out`.
    """
    targets = Targets.of(rollout, reward, config, scale, bonus)
    samples = lay_out(rollout, *targets.on_policy(), fixed=fixed)
    if scale is not None:
        samples.value = scale.to_returns(samples.value)
    explained, num_counted = _explained_variance(samples, ranks)
    if scale is not None:
        scale.follow(samples.returns, samples.counts)
        samples.value, samples.returns = scale.to_outputs(samples.value), scale.to_outputs(samples.returns)
    _normalize(samples, config, ranks)
    return Batch(rollout, samples, explained, num_counted, targets if config.advantage == "vtrace" else None)


def _explained_variance(samples: Samples, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """How much of the variance of all ranks' returns the values explain, and the number of these returns; scalars."""
    value, returns, counts = samples.value, samples.returns, samples.counts
    if ranks.is_alone:
        number = torch.full((), len(returns), device=returns.device) if counts is None else counts.sum()
        return explained_variance(value, returns, counts), number
    moments = torch.stack([moments_of(returns, counts), moments_of(returns - value, counts)], 1)
    of_returns, of_errors = joined_over(ranks, moments).unbind(1)
    return explained_by_moments(of_returns, of_errors), of_returns[0]


def _normalize(samples: Samples, config: PPOConfig, ranks: Ranks) -> None:
    if config.normalize_advantages != "batch":
        return
    if ranks.is_alone:
        samples.advantage.copy_(normalize(samples.advantage, samples.counts))
    else:
        moments = joined_over(ranks, moments_of(samples.advantage, samples.counts))
        samples.advantage.copy_(normalize_by(normalizing(moments), samples.advantage))


@torch.no_grad()
def estimate_again(
    policy: Policy, batch: Batch, num_minibatches: int, ranks: Ranks = ALONE, scale: ValueScale | None = None
) -> Tensor:
    """Estimate advantages and returns by V-trace for the current policy and write them to the samples.

    The policy's values and the samples' returns are outputs in `scale`; None: in the scale of returns. Returns
    log-ratios [T, R]: the log-probability of each action now, minus that when it was taken.
    """
    targets = batch.targets
    assert targets is not None
    rollout = targets.rollout
    value, log_ratio = targets.value.clone(), torch.zeros_like(rollout.log_prob)
    is_flat_game = rollout.seat is not None and not rollout.recurrent.is_used
    samples = every_step(rollout) if is_flat_game else batch.samples  # values of all turns are needed
    everything = torch.arange(samples.num_units, device=value.device)
    for units in everything.tensor_split(min(num_minibatches, samples.num_units)) if len(everything) else ():
        part = samples.select(units)
        output = policy(part.obs, part.state, part.begins)
        log_prob, _ = policy.distribution.log_prob_and_entropy(output.logits, part.action, part.mask)
        part.write_back(value, output.value if scale is None else scale.to_returns(output.value))
        part.write_back(log_ratio, log_prob - part.log_prob)
    last = policy.value(rollout.obs_at(-1), rollout.recurrent.of_movers(rollout.turn(-1)))
    value[-1] = last if scale is None else scale.to_returns(last)
    advantage, returns, _ = targets.off_policy(value, log_ratio)
    batch.samples.set_targets(advantage, returns if scale is None else scale.to_outputs(returns))
    _normalize(batch.samples, targets.config, ranks)
    return log_ratio if rollout.mine is None else log_ratio.where(rollout.mine, 0.0)
