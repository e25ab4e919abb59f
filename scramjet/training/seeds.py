"""The seeds of a run: which episodes are trained on, which choose the best checkpoint, which measure it."""

from __future__ import annotations

from scramjet.engine.episode_seeds import EpisodeSeed

RESET_OFFSET = 10_000
EVALUATION_OFFSET = 999


def training_episodes(seed: int) -> EpisodeSeed:
    """What a run trains on."""
    return EpisodeSeed.of(seed + RESET_OFFSET, "train")


def evaluation_episodes(seed: int, step: int) -> EpisodeSeed:
    """What the evaluation after `step` env steps plays: fresh episodes each time, so that none is learned by heart."""
    return EpisodeSeed.of(seed + EVALUATION_OFFSET, f"evaluate at {step}")


def unseen_episodes(seed: int) -> EpisodeSeed:
    """What `scramjet eval` plays: episodes that no run has trained on or chosen its best checkpoint by."""
    return EpisodeSeed.of(seed + EVALUATION_OFFSET, "test")


def seed_of_fork(seed: int, parent_digest: str) -> int:
    """The seed of a fork's episodes, actions and minibatches: others than those its parent began with."""
    return EpisodeSeed.of(seed, f"fork of {parent_digest}").key & (2**62 - 1)
