"""The categorical distribution over discrete actions, with masks: sampling, log-probability, entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.policies.sampling import MASKED_LOGIT, sample_rows


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
