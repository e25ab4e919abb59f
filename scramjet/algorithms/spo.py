"""SPO, sequential Monte Carlo policy optimisation (Macfarlane et al. 2024): its mathematics.

Expectation: the policy pi is improved to q(trajectory) ~ pi(trajectory) exp(A / eta), A being the sum of the advantages
r + gamma V(s') - V(s) along the trajectory. Particles that walk by pi and are weighted and resampled by exp(A / eta)
are drawn from q. Maximization: pi learns the first actions of the particles that are left, with their weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def advantage(gain: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """r + gamma V(s') - V(s), what a step adds to a particle's weight (Algorithm 1); 0 for V(s') at an end. All [B]."""
    return gain + torch.where(terminated, 0.0, gamma * next_value) - value


def normalized_weights(accumulated: Tensor, eta: Tensor) -> Tensor:
    """Weights of P particles, softmax(A / eta), from advantages accumulated since the last resampling, [N, P]."""
    return torch.softmax(accumulated / eta, dim=-1)


def fitted_temperature(accumulated: Tensor, *, epsilon: float) -> Tensor:
    """The temperature [N, 1] at which the KL divergence of the weights from equal ones is `epsilon`, by bisection.

    It is the minimum of `temperature_loss` for each root alone, from its advantages [N, P], for a policy that has not
    learned one. Where even the heaviest particles alone diverge less, or all are equal, it is the coldest or any.
    """
    spread = (accumulated.amax(-1, keepdim=True) - accumulated.amin(-1, keepdim=True)).clamp(min=1e-12)
    low, high = spread * 1e-3, spread * 1e3
    for _ in range(30):
        middle = (low * high).sqrt()
        weights = normalized_weights(accumulated, middle)
        divergence = torch.special.entr(weights).sum(-1, keepdim=True).neg() + math.log(accumulated.shape[-1])
        is_too_cold = divergence > epsilon
        low, high = torch.where(is_too_cold, middle, low), torch.where(is_too_cold, high, middle)
    return high


def effective_sample_size(weights: Tensor) -> Tensor:
    """How many equally weighted particles would be worth as much: 1 / sum w^2 (Kong 1992), [N, P] to [N]."""
    return 1.0 / weights.square().sum(-1)


def inverted(weights: Tensor, points: Tensor) -> Tensor:
    """The particle at each of K points in [0, 1) of the distribution `weights` [N, P], int64 [N, K].

    A particle of weight 0 is never found.
    """
    reached = weights.cumsum(-1)  # [N, P]
    total = reached[:, -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))  # a point may be rounded up to the sum
    return torch.searchsorted(reached, torch.minimum(points * total, below_total), right=True)


def resampled(weights: Tensor, uniform: Tensor) -> Tensor:
    """Ancestors of P new particles drawn by normalized `weights` [N, P], int64 [N, P]; `uniform` [N, 1] in [0, 1).

    Systematic resampling (Carpenter et al. 1999): P points at equal distances, all moved by the one random number, so
    a particle has P w descendants on average, and always fewer than one more or less than that.
    """
    count = weights.shape[-1]
    return inverted(weights, (torch.arange(count, device=weights.device) + uniform) / count)


def policy_loss(log_prob: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy of the policy to the search, the loss of the M-step; a scalar.

    `log_prob` [B, P] is log pi(a|s), masked, of the surviving particles' first actions; `weights` [B, P] sum to 1.
    """
    return -(weights * log_prob).sum(-1).mean()


def temperature_loss(eta: Tensor, advantages: Tensor, is_counted: Tensor, *, epsilon: float) -> Tensor:
    """The dual of the temperature, to be minimized in `eta`; a scalar.

    q maximizes E_q[A] with KL(q || pi) <= epsilon. Its Lagrangian gives q ~ pi exp(A / eta), eta being the multiplier
    that minimizes g(eta) = eta epsilon + eta log Z with Z = E_pi[exp(A / eta)]. Particles estimate Z: where they are
    resampled, each period between two resamplings multiplies it by the mean of its weights, so

        log Z = sum over periods of log mean_i exp(A_i / eta),

    with A_i as accumulated in this period when it ends, before resampling makes all weights equal.

    `advantages` [N, depth, P]: accumulated since the last resampling; `is_counted` [N, depth]: where a period ends.
    """
    log_mean = torch.logsumexp(advantages / eta, dim=-1) - math.log(advantages.shape[-1])  # [N, depth]
    log_z = torch.where(is_counted, log_mean, 0.0).sum(-1)
    return (eta * (epsilon + log_z)).mean()


def kl_loss(kl: Tensor, alpha: Tensor, *, epsilon_alpha: float) -> tuple[Tensor, Tensor]:
    """The penalty on the policy's KL divergence from the target policy, [B], and the loss of its weight `alpha`.

    As in MPO (Abdolmaleki et al. 2018): the policy sees
    alpha as a number, and alpha sees the divergence as one; it grows where that is above `epsilon_alpha`. Scalars.
    """
    mean = kl.mean()
    return (alpha.detach() * mean).sum(), (alpha * (epsilon_alpha - mean.detach())).sum()
