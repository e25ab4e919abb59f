"""The categorical distribution over discrete actions, with masks: sampling, log-probability, entropy, noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scramjet.kernels import MASKED_LOGIT
from scramjet.kernels.cpu.acting import sample_rows


def mask_logits(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Logits [B, A] with those of illegal actions (mask False) set to MASKED_LOGIT."""
    return logits if mask is None else logits.masked_fill(~mask, MASKED_LOGIT)


def log_prob_and_entropy(logits: Tensor, action: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """log pi(a|s) [B] of `action` [B] and the entropy [B], over legal actions only."""
    log_probs = torch.log_softmax(mask_logits(logits, mask), dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1), entropy


def sample(logits: Tensor, mask: Tensor | None, uniform: Tensor, action: Tensor, log_prob: Tensor) -> None:
    """Draw `action` [B] by inverting the distribution at `uniform` [B], and write its `log_prob` [B]."""
    sample_rows.on(len(logits), mask_logits(logits, mask), uniform, action, log_prob)


def most_likely(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The action of highest probability, [B]."""
    return mask_logits(logits, mask).argmax(-1)


def kl(logits: Tensor, other_logits: Tensor, mask: Tensor | None) -> Tensor:
    """KL(softmax(logits) || softmax(other_logits)) [B], over legal actions only."""
    log_probs = torch.log_softmax(mask_logits(logits, mask), dim=-1)
    others = torch.log_softmax(mask_logits(other_logits, mask), dim=-1)
    return (log_probs.exp() * (log_probs - others)).sum(-1)


def draw_log_gammas(alpha: float, out: Tensor, generator: torch.Generator) -> None:
    """Fill `out` with logarithms of gamma variates of shape `alpha`; their softmax is Dirichlet(alpha) noise.

    The variates themselves, as small as 1e-200 for the usual alpha of 0.03, would all be 0 in float32. Gamma(alpha) is
    Gamma(alpha + 1) times U^(1 / alpha), and -log U is an exponential number (Marsaglia & Tsang 2000).
    """
    larger = torch._standard_gamma(torch.full_like(out, alpha + 1), generator=generator)
    out.exponential_(generator=generator).div_(-alpha).add_(larger.log_())


def mixed_with_dirichlet(logits: Tensor, mask: Tensor | None, log_gammas: Tensor, fraction: float) -> Tensor:
    """Logits [B, A] of (1 - fraction) pi + fraction Dirichlet noise, both over the legal actions only.

    A softmax of gamma variates is Dirichlet noise over those that are in it: here those of legal actions.
    """
    if fraction == 0:
        return logits
    noise = torch.log_softmax(mask_logits(log_gammas, mask), dim=-1) + math.log(fraction)
    if fraction == 1:
        return noise
    return torch.logaddexp(torch.log_softmax(mask_logits(logits, mask), dim=-1) + math.log1p(-fraction), noise)
