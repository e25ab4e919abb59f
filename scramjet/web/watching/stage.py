"""One env that is watched: it steps, and shows every position, the last one of an episode too."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from scramjet.adapters.registry import ForeignWorld
from scramjet.engine.layout import PlayedBy
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluation.limits import steps_at_most
from scramjet.training.seeds import unseen_episodes
from scramjet.web.pictures import drawn


class Stage(Protocol):
    """A pool of one env and what it shows."""

    pool: Any
    is_over: bool
    """Whether the last step ended the episode."""
    frames_per_second: float
    """How fast its world is watched, unless somebody chooses."""

    def begin(self, seed: int) -> Transition:
        """Begin the episode of this seed, the same as `scramjet eval` plays first with it."""

    def step(self, actions: np.ndarray) -> Transition:
        """Step the env; the pool begins the next episode by itself where this one ends."""

    def seen(self) -> np.ndarray | str:
        """The position as a picture [height, width, 3] or text: the final one where the last step ended an episode."""

    def close(self) -> None:
        """End what the pool has started."""


class NativeStage:
    """A world written for scramjet: positions are records, which `render` or `ascii` draws."""

    def __init__(self, config: RunConfig) -> None:
        self.pool: Any = make_pool(config, num_envs=1, num_threads=1)
        self.is_over = False
        self.frames_per_second = 2.0 if self.pool.played_by is PlayedBy.SEATS else 30.0

    def begin(self, seed: int) -> Transition:
        """Begin the episode of this seed."""
        out: Transition = self.pool.reset(unseen_episodes(seed))
        self._record, self.is_over = self.pool.record(0), False
        return out

    def step(self, actions: np.ndarray) -> Transition:
        """Step the env; the position after it is kept, because the pool begins the next episode at once."""
        after, _ = self.pool.simulate(self.pool.states(), actions)
        out: Transition = self.pool.step(actions)
        self._record, self.is_over = self.pool.as_record(after[0]), bool(self.pool.states()["_steps"][0] == 0)
        return out

    def seen(self) -> np.ndarray | str:
        """The position, drawn by the world."""
        return drawn(self.pool.env, self._record)

    def close(self) -> None:
        """End the pool."""
        self.pool.close()


def make_stage(config: RunConfig) -> Stage:
    """The stage of a config's world."""
    if isinstance(config.make_env(), ForeignWorld):
        raise ConfigError(f"{config.env} cannot be watched yet: only worlds written for scramjet can")
    return NativeStage(config)


def longest_episode(stage: Stage, config: RunConfig) -> int | None:
    """Steps after which an episode is cut, as in an evaluation; None: never."""
    return steps_at_most(stage.pool, config.eval.max_steps)
