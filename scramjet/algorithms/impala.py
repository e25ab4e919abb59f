"""IMPALA (Espeholt et al. 2018): the policy gradient by V-trace, for trajectories of older weights."""

from __future__ import annotations

from torch import Tensor


def policy_gradient(log_prob: Tensor, log_ratio: Tensor, advantage: Tensor, *, rho_clip: float | None) -> Tensor:
    """-rho log pi(a|x) A, to be minimized, with rho = min(rho_clip, pi / mu) held fixed (section 4.2). All [B]; returns
    a scalar. Without a clip rho is 1, as for a policy that learns from its own steps."""
    if rho_clip is not None:
        advantage = log_ratio.detach().exp().clamp(max=rho_clip) * advantage
    return -(advantage * log_prob).mean()
