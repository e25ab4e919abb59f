"""What goes from actors to the learner: trajectories in slots that are allocated once, and the rules of who waits.

A trajectory is T steps of the envs of one actor. An update learns from as many of them as there are actors, whoever
they are from: those that are done first. The weights have a version, the number of updates they have seen; a
trajectory's lag is how many updates came between the weights it began with and the update that learns from it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scramjet.engine.pool import Episodes
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.rollout import Rollout

MOST_AHEAD = 2
"""Updates' worth of trajectories that actors begin before the weights are there: more would only grow old."""


class ScheduleError(Exception):
    """A schedule that cannot be followed; told with its file and line by whoever reads it."""


class Slot(Protocol):
    """Where one actor plays a trajectory; allocated once and used again."""

    buffers: RolloutBuffers


@dataclass(slots=True)
class Trajectory:
    """One actor's T steps."""

    actor: int
    slot: Any  # a `Slot`, of the kind that the actors allocate
    version: int = 0  # of the weights it began with
    versions: float = 0.0  # of the weights that acted, the mean over its steps
    episodes: Episodes | None = None  # that ended in it

    @property
    def rollout(self) -> Rollout:
        """What was played."""
        slot: Slot = self.slot
        return slot.buffers.rollout


@dataclass(slots=True)
class Waits:
    """Seconds that actors and the learner waited for each other, and the trajectories that were too old."""

    actors: float = 0.0
    learner: float = 0.0
    num_stale: int = 0
    since: float = field(default_factory=time.perf_counter)


class Exchange:
    """Hands slots to actors and their trajectories to the learner, on any threads.

    Actors wait where they would run ahead of the learner; the learner waits for enough trajectories, of any actors.
    What has become older than `max_lag` is not learned from.
    """

    def __init__(self, num_actors: int, max_lag: int, allocate: Callable[[int], Slot]) -> None:
        """`allocate(actor)` makes one more slot."""
        self.num_actors, self.max_lag = num_actors, max_lag
        self.version = 0
        self.most_ahead = min(max_lag, MOST_AHEAD)
        self._allocate = allocate
        self._free: list[list[Slot]] = [[] for _ in range(num_actors)]
        self._done: deque[Trajectory] = deque()
        self._num_begun = 0
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._is_closed = False
        self.waits = Waits()
        self.drops_stale = True  # else only what it is told to
        self.unlearned: list[Trajectory] = []  # what was dropped: episodes ended in it
        self.record: Callable[[dict[str, Any]], None] = _nothing  # what happened, in order, for a replay

    @property
    def is_closed(self) -> bool:
        """Whether actors are to end."""
        return self._is_closed

    def may_begin(self) -> bool:
        """Whether one more trajectory would be learned from within the bound."""
        return self._num_begun < (self.version + self.most_ahead + 1) * self.num_actors

    def begin(self, actor: int, *, wait: bool = True) -> Trajectory | None:
        """A slot to play in, as soon as the actor may; None when the end has come, or it may not and does not wait."""
        started = time.perf_counter()
        with self._changed:
            while not self._is_closed and not self.may_begin():
                if not wait:
                    return None
                self._changed.wait()
            self.waits.actors += time.perf_counter() - started
            if self._is_closed:
                return None
            self._num_begun += 1
            free = self._free[actor]
            slot = free.pop() if free else self._allocate(actor)
            return Trajectory(actor, slot, self.version)

    def finish(self, trajectory: Trajectory) -> None:
        """A trajectory is done; one that is too old by now goes back at once."""
        with self._changed:
            self._done.append(trajectory)
            self._drop_stale()
            self._changed.notify_all()

    def give_up(self, trajectory: Trajectory) -> None:
        """A trajectory will not be done: its actor begins another."""
        with self._changed:
            self._put_back(trajectory)

    def take(
        self, actors: Sequence[int] | None = None, *, gives_up: Callable[[], bool] | None = None
    ) -> list[Trajectory]:
        """As many trajectories as an update learns from, the oldest first; waits for them, or gives up and returns
        none. `actors`: these, of each the oldest, without waiting."""
        started = time.perf_counter()
        with self._changed:
            while actors is None and len(self._done) < self.num_actors:
                if self._failure is not None:
                    raise self._failure
                if gives_up is not None and gives_up():
                    return []
                self._changed.wait(0.5)  # a signal is seen between waits
            self.waits.learner += time.perf_counter() - started
            wanted = [trajectory.actor for trajectory in self._done][: self.num_actors] if actors is None else actors
            taken = [self._remove(actor) for actor in wanted]
            self.record({"learn": list(wanted)})
            return taken

    def _remove(self, actor: int) -> Trajectory:
        for trajectory in self._done:
            if trajectory.actor == actor:
                self._done.remove(trajectory)
                return trajectory
        raise ScheduleError(
            f"it takes what actor {actor} has done, which is nothing yet; play before, or drop the line"
        )

    def drop(self, actor: int) -> None:
        """Do not learn from an actor's oldest trajectory."""
        with self._changed:
            dropped = self._remove(actor)
            self.waits.num_stale += 1
            self.unlearned.append(dropped)
            self._put_back(dropped)
            self.record({"drop": actor})

    def _put_back(self, trajectory: Trajectory) -> None:
        self._num_begun -= 1
        self._free[trajectory.actor].append(trajectory.slot)
        self._changed.notify_all()

    def _drop_stale(self) -> None:
        if self.drops_stale:
            for trajectory in list(self._done):
                if self.version - trajectory.version > self.max_lag:
                    self.drop(trajectory.actor)

    def give_back(self, taken: list[Trajectory]) -> None:
        """What was learned from, or copied, may be played in again."""
        with self._changed:
            for trajectory in taken:
                self._free[trajectory.actor].append(trajectory.slot)

    def publish(self, copy: Callable[[], None]) -> None:
        """New weights: `copy` puts them where actors look, while none does."""
        with self._changed:
            copy()
            self.version += 1
            self._drop_stale()
            self._changed.notify_all()

    def look(self, copy: Callable[[], None]) -> int:
        """Have `copy` read the weights while nobody writes them; their version."""
        with self._changed:
            copy()
            return self.version

    def fail(self, error: BaseException) -> None:
        """An actor cannot go on: the learner is told."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def close(self) -> None:
        """Actors end as soon as they look."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def depth(self) -> int:
        """Trajectories that are done and not taken."""
        return len(self._done)

    @property
    def num_in_flight(self) -> int:
        """Trajectories begun and not learned from."""
        return self._num_begun - self.version * self.num_actors

    def read_waits(self) -> Waits:
        """Since the last reading."""
        with self._changed:
            waits, self.waits = self.waits, Waits()
            return waits


def _nothing(event: dict[str, Any]) -> None:
    pass
