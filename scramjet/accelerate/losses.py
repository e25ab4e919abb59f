"""The loss of one minibatch: the policy's forward pass, then PPO's or IMPALA's terms."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.own_losses import OwnLosses
from scramjet.accelerate.samples import Samples
from scramjet.algorithms.impala import policy_gradient
from scramjet.algorithms.ppo import LossTerms, normalize, normalize_by, ppo_loss
from scramjet.policies.policy import Policy


def minibatch_loss(
    policy: Policy,
    minibatch: Samples,
    loss: LossSettings,
    own_losses: OwnLosses | None = None,
    statistics: Tensor | None = None,
) -> LossTerms:
    """The terms of the loss on a minibatch, scalars with gradients; `own_losses` are added to the total only.

    `statistics` [2] normalize advantages, those of a minibatch that this is a part of; None: its own do.
    """
    output = policy(minibatch.obs, minibatch.state, minibatch.begins)
    now = policy.distribution.log_prob_and_entropy(output.logits, minibatch.action, minibatch.mask)
    log_prob, entropy = now
    value, old_value, counts = output.value, minibatch.value, minibatch.counts
    advantage = minibatch.advantage
    if loss.normalizes_advantages:
        advantage = normalize(advantage, counts) if statistics is None else normalize_by(statistics, advantage)
    if counts is not None:  # samples that do not count add nothing to any sum
        log_prob = torch.where(counts, log_prob, minibatch.log_prob)
        value, old_value = (torch.where(counts, each, minibatch.returns) for each in (value, old_value))
        entropy, advantage = (torch.where(counts, each, 0.0) for each in (entropy, advantage))
    policy_term = value_term = None
    if (head := policy.two_hot_head) is not None:
        errors = head.loss(minibatch.returns)
        value_term = (errors if counts is None else torch.where(counts, errors, 0.0)).mean()
    if loss.is_impala:
        policy_term = policy_gradient(log_prob, log_prob - minibatch.log_prob, advantage, rho_clip=loss.rho_clip)
    terms = ppo_loss(
        log_prob,
        entropy,
        value,
        old_log_prob=minibatch.log_prob,
        old_value=old_value,
        advantage=advantage,
        returns=minibatch.returns,
        clip=loss.clip,
        value_clip=loss.value_clip,
        entropy_coef=loss.entropy_coef,
        value_coef=loss.value_coef,
        policy_term=policy_term,
        value_term=value_term,
    )
    if counts is not None:
        terms = terms.scaled(len(counts) / counts.sum().clamp(min=1))
    if own_losses is not None:
        terms.total = terms.total + own_losses.total(policy, minibatch, output, *now)
    return terms
