"""The interface of bonuses: each is one way to reward what is new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from scramjet.algorithms.curiosity.episodic_memory import EpisodicMemory
from scramjet.engine.privileged import policy_part
from scramjet.engine.trees import map_fields, map_leaves
from scramjet.kernels.operations import takes_kernels
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.curiosity.networks import EveryNumberNormalizer
from scramjet.training.rollout.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Transitions:
    """Steps as a bonus sees them: a whole rollout [T, R], or a minibatch of it [B]. L stands for these axes."""

    obs: Any  # [*L, *obs_shape] before each step, or nested dicts of such
    next_obs: Any  # [*L, *obs_shape] after it; where an episode ended, the first of the next episode
    action: Tensor  # [*L, *action_shape]
    ended: Tensor  # [*L] bool, whether the episode ended with this step
    counts: Tensor | None = None  # [*L] bool, steps to learn from (of agents that are alive); None: all

    @classmethod
    def of(cls, rollout: Rollout) -> Transitions:
        """The steps of a rollout, as views."""
        return cls(
            obs=map_leaves(lambda leaf: leaf[:-1], policy_part(rollout.obs)),
            next_obs=map_leaves(lambda leaf: leaf[1:], policy_part(rollout.obs)),
            action=rollout.action,
            ended=rollout.terminated | rollout.truncated,
            counts=None if rollout.alive is None else rollout.alive[:-1].bool(),
        )

    def select(self, places: Tensor) -> Transitions:
        """The steps at these places of the flattened rollout, [B]."""
        return map_fields(self, lambda leaf: at_places(leaf, places))


class Bonus(nn.Module, ABC):
    """Rewards what is new. Weights and running statistics are parameters and buffers, which checkpoints save.

    Nothing in it may wait for the GPU: its work is recorded as CUDA graphs.
    """

    ends_with_episodes: bool
    """Whether what counts as new is forgotten when an episode ends, and returns of bonuses end there too."""
    revisited: Tensor | None = None
    """Share of the last rollout's visits that were to what their episode had visited before, a scalar; None where
    visits are not counted."""

    @abstractmethod
    def bonuses(self, rollout: Transitions) -> Tensor:
        """The bonus of each step for where it led, [T, R], at least 0. Called once for each rollout, in their order."""

    @abstractmethod
    def loss(self, minibatch: Transitions) -> Tensor | None:
        """What is minimized, a mean over the steps that count, a scalar; None where nothing is learned."""

    def observe(self, rollout: Transitions, ranks: Ranks = ALONE) -> None:
        """Update running statistics with the steps of a rollout, on each of the `ranks`; called before `bonuses`."""

    def forget(self) -> None:
        """Begin every row as if its episode began with the next rollout: rows may go on with another env there."""
        for module in self.modules():
            if isinstance(module, EpisodicMemory):
                module.forget()


def follow_observations(normalizer: EveryNumberNormalizer, rollout: Transitions, ranks: Ranks) -> None:
    """Add what the steps of a rollout led to, on each of the `ranks`, to the statistics; only steps that count."""
    counts = None if rollout.counts is None else rollout.counts.flatten()
    normalizer.update(map_leaves(lambda leaf: leaf.flatten(0, 1), rollout.next_obs), ranks, counts)


def at_places(tree: Any, places: Tensor) -> Any:
    """What a tree of tensors [T, R, ...] holds at these places [B] of the flattened rollout, [B, ...]."""
    if takes_kernels(places):
        from scramjet.kernels.gpu.selection import select_rows  # loads Triton

        return map_leaves(lambda leaf: select_rows(leaf.flatten(0, 1), places), tree)
    return map_leaves(lambda leaf: leaf.flatten(0, 1).index_select(0, places), tree)


def mean_of_counted(numbers: Tensor, counts: Tensor | None) -> Tensor:
    """The mean of those numbers [*L] that count, a scalar; 0 if none does."""
    if counts is None:
        return numbers.mean()
    return (numbers * counts).sum() / counts.sum().clamp(min=1)
