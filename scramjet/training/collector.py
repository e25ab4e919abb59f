"""The interface of collectors, which give the training loop its rollouts, and the synchronous one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from scramjet.engine.pool import Episodes
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.search.player import SearchingPlayer
from scramjet.training.self_play.league import League


class Collector(ABC):
    """Gives the learner its rollouts."""

    num_rollouts: int | None = None
    """How many rollouts there are; None if there is no limit."""

    @abstractmethod
    def collect(self, gives_up: Callable[[], bool] | None = None) -> Rollout | None:
        """The next rollout to learn from. Returns None if `gives_up()` becomes true while it waits for envs."""

    @abstractmethod
    def learned(self, update: int, step: int) -> None:
        """Called after each update, when `step` env steps are trained: the policy has new weights."""

    @abstractmethod
    def episodes(self) -> Episodes:
        """The episodes that ended in what was collected since the last call."""

    def metrics(self) -> dict[str, float]:
        """Metrics of collecting since the last call, by name."""
        return {}

    def close(self) -> None:  # noqa: B027 - nothing runs beside
        """End the threads of this collector, if it has any."""


class Synchronous(Collector):
    """Plays a rollout with the weights as they are, while the learner waits."""

    def __init__(
        self, player: RolloutPlayer | SearchingPlayer, generator: torch.Generator, league: League | None = None
    ) -> None:
        """`generator` draws actions; `league` has the opponents, if there are any."""
        self._player, self._generator, self._league = player, generator, league

    def collect(self, gives_up: Callable[[], bool] | None = None) -> Rollout | None:
        if isinstance(self._player, SearchingPlayer):
            return self._player.play(self._generator, gives_up)
        rollout = self._player.play(self._generator)
        if self._league is not None:
            self._league.count(rollout)
        return rollout

    def learned(self, update: int, step: int) -> None:
        if self._league is not None:
            self._league.after_update(update, step)

    def metrics(self) -> dict[str, float]:
        return {} if self._league is None else self._league.metrics()

    def episodes(self) -> Episodes:
        return self._player.pool.episodes()
