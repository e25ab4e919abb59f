"""NovelD (Zhang et al. 2021): a bonus at the frontier, where a step leads from what is known to what is new."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scramjet.engine.trees import map_leaves
from scramjet.policies.config import PolicyConfig
from scramjet.training.curiosity.bonus import Transitions
from scramjet.training.curiosity.networks import in_chunks
from scramjet.training.curiosity.rnd import RND


class NoveltyDifference(RND):
    """max(novelty(s') - alpha novelty(s), 0) of a step from s to s', with the novelty of random network distillation.

    The bonus of NovelD is this where s' is visited for the first time in its episode, and 0 elsewhere (eq. 3). A step
    that ends an episode has none: what it led to is not in the rollout.
    """

    ends_with_episodes = True

    def __init__(self, space: Any, config: PolicyConfig, size: int, *, alpha: float) -> None:
        super().__init__(space, config, size)
        self.alpha = alpha

    def bonuses(self, rollout: Transitions) -> Tensor:
        first = map_leaves(lambda leaf: leaf[:1], rollout.obs)
        novelty = torch.cat([in_chunks(self.network.novelty, obs) for obs in (first, rollout.next_obs)])
        return torch.where(rollout.ended, 0.0, (novelty[1:] - self.alpha * novelty[:-1]).clamp(min=0.0))
