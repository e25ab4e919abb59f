"""IMPALA (Espeholt et al. 2018): the policy gradient by V-trace, for trajectories of older weights."""

from __future__ import annotations

from torch import Tensor

from scramjet.algorithms.ppo import LossTerms, ppo_loss


def policy_gradient(log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, *, rho_clip: float | None) -> Tensor:
    """-rho log pi(a|x) A, to be minimized, with rho = min(rho_clip, pi / mu) held fixed (section 4.2). All [B]; returns
    a scalar. Without a clip rho is 1, as for a policy that learns from its own steps."""
    if rho_clip is not None:
        advantage = log_ratio.detach().exp().clamp(max=rho_clip) * advantage
    return -(advantage * log_prob).mean()


def impala_loss(
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
    rho_clip: float | None,
) -> LossTerms:
    """The loss of a minibatch; what is not the policy's, and the diagnostics, are `ppo_loss`'s."""
    terms = ppo_loss(
        log_prob,
        entropy,
        value,
        old_log_prob=old_log_prob,
        old_value=old_value,
        advantage=advantage,
        returns=returns,
        clip=clip,
        value_clip=value_clip,
        entropy_coef=entropy_coef,
        value_coef=value_coef,
    )
    policy_loss = policy_gradient(log_prob, log_prob - old_log_prob, advantage, rho_clip=rho_clip)
    terms.total = terms.total - terms.policy_loss + policy_loss
    terms.policy_loss = policy_loss
    return terms
