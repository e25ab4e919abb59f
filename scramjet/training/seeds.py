"""The seeds of a run: which episodes are trained on, which choose the best checkpoint, which measure it."""

from __future__ import annotations

import torch

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.runtime.ranks import Ranks

RESET_OFFSET = 10_000
EVALUATION_OFFSET = 999
MOST_DRAWN_TOGETHER = 64
"""Maximum number of ranks that each draw the random numbers of all: with more that takes longer than it is worth."""


def training_episodes(seed: int) -> EpisodeSeed:
    """The episodes that a run trains on."""
    return EpisodeSeed.of(seed + RESET_OFFSET, "train")


def evaluation_episodes(seed: int, step: int) -> EpisodeSeed:
    """The episodes of the evaluation after `step` env steps: fresh ones each time."""
    return EpisodeSeed.of(seed + EVALUATION_OFFSET, f"evaluate at {step}")


def strength_episodes(seed: int, step: int) -> EpisodeSeed:
    """The games that measure the policy's strength after `step` env steps: fresh ones each time."""
    return EpisodeSeed.of(seed + EVALUATION_OFFSET, f"strength at {step}")


def unseen_episodes(seed: int) -> EpisodeSeed:
    """The episodes of `scramjet eval`, which no run has trained on or chosen its best checkpoint by."""
    return EpisodeSeed.of(seed + EVALUATION_OFFSET, "test")


def seed_of_fork(seed: int, parent_digest: str) -> int:
    """The seed of a fork's episodes, actions and minibatches, which differ from those its parent began with."""
    return EpisodeSeed.of(seed, f"fork of {parent_digest}").key & (2**62 - 1)


def own_seed_of(rank: int) -> int:
    """What a rank mixes into a seed to draw numbers of its own; 0 for the first.

    Generators on the CPU take no more than the low 32 bits of their seed.
    """
    return rank * 0x9E3779B1 % 2**32


def draws_together(ranks: Ranks) -> bool:
    """Whether each rank draws the random numbers of all of them, so that an env is played alike by whichever rank."""
    return ranks.size <= MOST_DRAWN_TOGETHER


def action_generator(device: torch.device, seed: int, ranks: Ranks) -> torch.Generator:
    """The generator that a rank draws actions with: the same on all, or one of its own where ranks are very many."""
    is_own = not draws_together(ranks) and not ranks.is_first
    own = EpisodeSeed.of(seed, f"actions of rank {ranks.rank}").key & (2**62 - 1)
    return torch.Generator(device).manual_seed(own if is_own else seed)
