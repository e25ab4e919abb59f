"""The envs of remote actors as the learner knows them: their shapes, how far they are, and how often they failed."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import numpy as np

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Episodes, Pool
from scramjet.engine.transition import Transition
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool
from scramjet.errors import ConfigError


class RemotePool(Pool):
    """The pool of one remote actor, without its envs: those live in the actor's process, which alone steps them."""

    def __init__(self, like: Pool, num_envs: int) -> None:
        """`like` is a pool of the same world on this machine; it may be closed afterwards."""
        self.name, self.env = like.name, like.env
        self.num_envs, self.num_rows = num_envs, num_envs * (like.num_rows // like.num_envs)
        self.played_by, self.num_players, self.mask_size = like.played_by, like.num_players, like.mask_size
        self.observation_space, self.action_space = like.observation_space, like.action_space
        self.is_guarded, self.has_time_limit = like.is_guarded, like.has_time_limit
        self.render_modes = like.render_modes
        self.seeds = EpisodeSeed(0)
        """The episodes that its actor begins with."""
        self.restarts = 0
        self._steps_taken = 0

    @property
    def steps_taken(self) -> int:
        return self._steps_taken

    def count(self, num_steps: int, restarts: int) -> None:
        """Count the steps of a trajectory that arrived, and how often envs failed in it."""
        self._steps_taken += num_steps
        self.restarts += restarts

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        """Choose the episodes that the actor will begin with; nothing is shown here before its first trajectory."""
        self.seeds, self._steps_taken = EpisodeSeed.of(seed), 0
        return self.allocate() if out is None else out

    def begin_again(self) -> EpisodeSeed:
        """Count a restart of the actor; returns the fresh episodes that it shall begin with."""
        self.restarts += 1
        return self.seeds.after("restarted", self._steps_taken, self.restarts)

    def _refuse(self) -> NoReturn:
        raise ConfigError(f"the envs of {self.name} are in processes of Ray's: their actors step them")

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        self._refuse()

    def snapshot(self) -> dict[str, np.ndarray]:
        self._refuse()

    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        self._refuse()

    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        self._refuse()

    def views(self) -> Any:
        self._refuse()

    def episodes(self) -> Episodes:
        self._refuse()

    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        self._refuse()


def remote_pools(like: Pool, num_actors: int, num_envs: int) -> ConcatenatedPool:
    """One pool for each of the remote actors, which divide `num_envs` envs; closes `like`, a pool of their world."""
    with contextlib.closing(like):
        like.prepare()
        return ConcatenatedPool([RemotePool(like, num_envs // num_actors) for _ in range(num_actors)])
