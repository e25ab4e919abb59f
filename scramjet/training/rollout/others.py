"""Whoever else chooses actions in a rollout: the interface between rollouts and the opponents of self-play."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from scramjet.engine.transition import Transition
from scramjet.training.rollout.rollout import Rollout


class BoundOthers(ABC):
    """Others who choose some actions of one rollout, with the addresses of its buffers looked up."""

    @abstractmethod
    def act(self, t: int, at: Tensor | None = None) -> None:
        """Write the actions that others choose in step t over those of the policy, and which rows are the policy's.

        `at` [1] is the number of the step within the rollout, where `t` counts the steps of smaller buffers.
        """

    @abstractmethod
    def take_in(self, t: int) -> None:
        """Take in the results of step t: games that ended are scored, and the next ones get their players."""

    @abstractmethod
    def end(self) -> None:
        """End the rollout."""


class Others(ABC):
    """Others who choose actions in the envs of one pool."""

    @abstractmethod
    def begin(self, num_steps: int) -> None:
        """Get ready for a rollout: draw its random numbers, and change opponents if that is due.

        Called before each rollout, outside of what is recorded as a CUDA graph.
        """

    @abstractmethod
    def bind(self, acting: Rollout, rollout: Rollout, shown: Sequence[Transition]) -> BoundOthers:
        """Get ready to act in these buffers, which must not move.

        `acting` is where actions are chosen: the rollout itself, or buffers of one step. `shown[t]` is what the envs
        show before step t, for players that look at the envs themselves.
        """
