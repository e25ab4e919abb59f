"""The exchange of trajectories between actors and the learner, and the rules by which they wait for each other.

A trajectory is T steps of the envs of one actor, in a slot that is allocated once. An update learns from as many
trajectories as there are actors: those that are complete first, from whichever actors. The version of weights is the
number of updates made before; a trajectory's lag is the number of updates between the weights it began with and the
update that learns from it.
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
"""Maximum number of updates for which actors begin trajectories in advance; more would only wait and grow old."""


class ScheduleError(Exception):
    """A schedule that cannot be followed; the collector adds its file and line to the message."""


class Slot(Protocol):
    """The memory for one trajectory of one actor; allocated once and reused."""

    buffers: RolloutBuffers


@dataclass(slots=True)
class Trajectory:
    """T steps of the envs of one actor."""

    actor: int
    slot: Any  # a `Slot` of the class that the actors use
    version: int = 0  # of the weights it began with
    versions: float = 0.0  # the mean version of the weights that acted, over its steps
    episodes: Episodes | None = None  # the episodes that ended in it

    @property
    def rollout(self) -> Rollout:
        """The rollout that was played into the slot."""
        slot: Slot = self.slot
        return slot.buffers.rollout


@dataclass(slots=True)
class Waits:
    """Seconds that actors and the learner waited for each other, and how many trajectories became too old."""

    actors: float = 0.0
    learner: float = 0.0
    num_stale: int = 0
    since: float = field(default_factory=time.perf_counter)


class Exchange:
    """Hands slots to actors and their trajectories to the learner; methods may be called on any thread.

    Actors wait if they are too far ahead of the learner; the learner waits for enough trajectories, from any actors.
    Trajectories whose lag is above `max_lag` are dropped.
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
        self.drops_stale = True  # if False, only `drop` drops trajectories
        self.unlearned: list[Trajectory] = []  # dropped trajectories; their episodes are still reported
        self.record: Callable[[dict[str, Any]], None] = _nothing  # receives all events in order, for a replay

    @property
    def is_closed(self) -> bool:
        """Whether actors shall stop."""
        return self._is_closed

    def may_begin(self) -> bool:
        """Whether an actor may begin a trajectory without running too far ahead of the learner."""
        return self._num_begun < (self.version + self.most_ahead + 1) * self.num_actors

    def begin(self, actor: int, *, wait: bool = True) -> Trajectory | None:
        """Begin a trajectory of an actor, waiting until it may.

        Returns None if the exchange is closed, or, with `wait` False, if the actor may not begin now.
        """
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
        """Hand over a complete trajectory; it is dropped if it is too old by now."""
        with self._changed:
            self._done.append(trajectory)
            self._drop_stale()
            self._changed.notify_all()

    def give_up(self, trajectory: Trajectory) -> None:
        """Take back the slot of a trajectory that will not be completed; its actor may begin another."""
        with self._changed:
            self._put_back(trajectory)

    def take(
        self, actors: Sequence[int] | None = None, *, gives_up: Callable[[], bool] | None = None
    ) -> list[Trajectory]:
        """Take as many trajectories as an update learns from, the oldest first.

        Waits for them until `gives_up()` is true, then returns an empty list. With `actors`, takes the oldest
        trajectory of each of these without waiting; raises `ScheduleError` if there is none.
        """
        started = time.perf_counter()
        with self._changed:
            while actors is None and len(self._done) < self.num_actors:
                if self._failure is not None:
                    raise self._failure
                if gives_up is not None and gives_up():
                    return []
                self._changed.wait(0.5)  # signals are handled between waits
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
        """Drop an actor's oldest trajectory: it is not learned from."""
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
        """Free the slots of trajectories that were copied."""
        with self._changed:
            for trajectory in taken:
                self._free[trajectory.actor].append(trajectory.slot)

    def publish(self, copy: Callable[[], None]) -> None:
        """Publish new weights: `copy` writes them while no actor reads them."""
        with self._changed:
            copy()
            self.version += 1
            self._drop_stale()
            self._changed.notify_all()

    def look(self, copy: Callable[[], None]) -> int:
        """Call `copy`, which reads the weights, while nobody writes them; returns their version."""
        with self._changed:
            copy()
            return self.version

    def fail(self, error: BaseException) -> None:
        """Report that an actor failed; the error is raised on the learner's thread."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def close(self) -> None:
        """Tell the actors to stop; each does at its next call."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def depth(self) -> int:
        """Number of complete trajectories that are not taken yet."""
        return len(self._done)

    @property
    def num_in_flight(self) -> int:
        """Number of trajectories begun and not learned from yet."""
        return self._num_begun - self.version * self.num_actors

    def read_waits(self) -> Waits:
        """The waits since the last call."""
        with self._changed:
            waits, self.waits = self.waits, Waits()
            return waits


def _nothing(event: dict[str, Any]) -> None:
    pass
