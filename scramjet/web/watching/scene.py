"""The env that is watched: it plays one episode after another, and every position of them can be seen."""

from __future__ import annotations

from functools import partial

import numpy as np

from scramjet.adapters.registry import ForeignWorld
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError, WorldError
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluation.evaluator import steps_at_most
from scramjet.training.pictures.stages import CONTROL_RATE, TURN_RATE, NativeStage, Stage, picture_stage
from scramjet.training.seeds import unseen_episodes
from scramjet.web.pictures import checked_picture, drawn, plain_text

THE_ENV = np.array([0])


class Scene:
    """One env of a config's world, which is drawn: native worlds by `render` or `ascii`, others by themselves."""

    def __init__(self, config: RunConfig) -> None:
        self._stage = _stage(config)
        self.pool: Pool = self._stage.pool
        self.frames_per_second = self._stage.frames_per_second
        """How fast the world is watched, unless somebody chooses."""
        self.longest = steps_at_most(self.pool, config.eval.max_steps)
        """Steps after which an episode is cut, as in an evaluation; None: never."""
        self.is_over = False
        """Whether the last step ended the episode; the pool has then begun another, which is not watched."""

    def begin(self, seed: int) -> Transition:
        """Begin the episode that an evaluation with this seed begins with."""
        out = self.pool.reset(unseen_episodes(seed))
        self._drawing, self.is_over = self._stage.drawings(out)[0], False
        return out

    def step(self, actions: np.ndarray) -> Transition:
        """Step the env."""
        out, drawings = self._stage.step(actions, THE_ENV)
        self._drawing = drawings[0]
        self.is_over = bool(self.pool.unfinished()[1].max() == 0)
        return out

    def picture(self) -> np.ndarray | str:
        """The position as a picture [height, width, 3] uint8, or as text; after the last step, the final one."""
        drawing = self._drawing
        return plain_text(drawing) if isinstance(drawing, str) else checked_picture(drawing, self.pool.name)

    def close(self) -> None:
        """End the env and what runs it."""
        self.pool.close()


class _UndrawnStage:
    """An env of others that draws nothing: words stand in place of its pictures."""

    def __init__(self, config: RunConfig) -> None:
        self.pool: Pool = make_pool(config, num_envs=1)
        self.frames_per_second = TURN_RATE if self.pool.played_by is PlayedBy.SEATS else CONTROL_RATE

    def drawings(self, out: Transition) -> list[str]:
        """The words."""
        return [f"{self.pool.name} draws no pictures."]

    def step(self, actions: np.ndarray, watched: np.ndarray) -> tuple[Transition, dict[int, str]]:
        """Step the env; the words stay."""
        out = self.pool.step(actions)
        return out, {0: self.drawings(out)[0]}


def _stage(config: RunConfig) -> Stage:
    world = config.make_env()
    if not isinstance(world, ForeignWorld):
        return NativeStage(make_pool(config, num_envs=1, num_threads=1), partial(drawn, world))
    try:
        return picture_stage(config, 1, num_workers=1)
    except (ConfigError, WorldError):  # what is wrong with more than its pictures is told by the other stage
        return _UndrawnStage(config)
