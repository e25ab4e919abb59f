"""Actors that step envs beside the learner, with weights that may be a few updates old.

For native worlds, an actor is a thread with its own pool of envs and its own copy of the policy (`ActorThreads`). For
envs of other libraries, see central_actors.py; for actors on other machines, ray/. All play trajectories into the slots
of an `Exchange`. To replay a recorded schedule, the learner's thread calls `do` for one event after the other, and no
actor has a thread.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.errors import ScramjetError
from scramjet.executors.choice import choose_executor
from scramjet.policies.policy import Policy
from scramjet.training.asynchronous.trajectories import Exchange, ScheduleError, Slot, Trajectory
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.others import Others
from scramjet.training.rollout.player import RolloutPlayer

MOST_RESTARTS = 10
"""Maximum number of restarts of one native actor in a row, without a finished trajectory in between."""


class Weights:
    """A copy of the newest weights, from which actors copy them."""

    def __init__(self, policy: Policy, device: torch.device) -> None:
        """Copy the weights of `policy` to `device`, where the actors' policies are."""
        self._kept = {name: tensor.detach().to(device, copy=True) for name, tensor in policy.state_dict().items()}

    @torch.no_grad()
    def take(self, policy: Policy) -> None:
        """Copy the weights of a policy into this copy."""
        for name, tensor in policy.state_dict().items():
            self._kept[name].copy_(tensor)
        wait_for_gpu(policy)

    @torch.no_grad()
    def give(self, policy: Policy) -> None:
        """Copy the kept weights into a policy."""
        for name, tensor in policy.state_dict().items():
            tensor.copy_(self._kept[name])
        wait_for_gpu(policy)

    def arrays(self) -> dict[str, np.ndarray]:
        """A copy of the kept weights, which are on the CPU, by name."""
        return {name: tensor.numpy().copy() for name, tensor in self._kept.items()}


def wait_for_gpu(policy: Policy) -> None:
    """Wait until the GPU has done what this thread asked for, so that other threads may use the results.

    Does nothing if the policy is on the CPU.
    """
    if policy.device.type == "cuda":
        torch.cuda.current_stream().synchronize()


class Actors(ABC):
    """All actors of a run, and the exchange that takes their trajectories."""

    leaves_values: bool
    """Whether the learner computes the values that the actors did not compute while they played."""

    def __init__(
        self, pool: ConcatenatedPool, policy: Policy, *, max_lag: int, num_steps: int, horizon: int | None
    ) -> None:
        """`policy` is the learner's. `num_steps` and `horizon` are those of a trajectory, `max_lag` bounds its lag."""
        self.pool = pool
        self.weights = Weights(policy, self._device_of(policy))
        self.exchange = Exchange(len(pool.pools), max_lag, self._slot)
        self._num_steps, self._horizon = num_steps, horizon
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def _device_of(self, policy: Policy) -> torch.device:
        """The device on which the actors choose actions; `policy` is the learner's."""

    @abstractmethod
    def _slot(self, actor: int) -> Slot:
        """Allocate a slot for an actor's trajectories."""

    @abstractmethod
    def _targets(self) -> list[Any]:
        """One function for each thread to run."""

    @property
    def is_running(self) -> bool:
        """Whether the actors' threads have been started."""
        return bool(self._threads)

    def start(self) -> None:
        """Start the threads in which the actors play."""
        for target in self._targets():
            thread = threading.Thread(target=self._guarded, args=(target,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _guarded(self, run: Any) -> None:
        try:
            run()
        except BaseException as error:  # the exchange raises it on the learner's thread
            self.exchange.fail(error)

    def close(self) -> None:
        """End all threads; closing the pool is left to the caller."""
        self.exchange.close()
        for thread in self._threads:
            thread.join(timeout=30.0)
        self._threads.clear()


class LocalActors(Actors):
    """Actors whose envs belong to this process, and which can repeat a recorded schedule."""

    kind: str
    """The key of the actors' events in a schedule: play or round."""

    @abstractmethod
    def do(self, event: dict[str, Any]) -> None:
        """Repeat one recorded event of the actors, on this thread."""

    @abstractmethod
    def begin_with(self, actor: int, first: RolloutBuffers) -> None:
        """Have an actor's first trajectory continue from the last row of `first`."""

    def begin(self) -> None:
        """Have each actor's first trajectory begin with what the pool shows now."""
        for actor in range(len(self.pool.pools)):
            first, shown = self._slot(actor).buffers, self.pool.shown.part(self.pool.rows_of(actor))
            _show(first.last, shown)
            self.begin_with(actor, first)

    def start(self) -> None:
        self.begin()
        super().start()


def _show(row: Transition, shown: Transition) -> None:
    """Copy the observations, masks and turns of `shown` into `row`."""
    for mine, its in zip(leaves(row.obs), leaves(shown.obs), strict=True):
        mine[:] = its
    row.mask[:], row.turn[:] = shown.mask, shown.turn


class ActorThreads(LocalActors):
    """Actors of native worlds: one thread for each pool; compiled code releases Python's lock while it runs."""

    kind = "play"
    leaves_values = False

    def __init__(
        self, pool: ConcatenatedPool, policy: Policy, *, max_lag: int, num_steps: int, horizon: int | None, seed: int,
        fused: bool, restarts: bool, others: Sequence[Others] = (), first_actor: int = 0,
    ) -> None:  # fmt: skip
        """`others`: the opponents in each actor's envs, if there are any. `first_actor`: the number of the first one
        among the actors of all processes."""
        super().__init__(pool, policy, max_lag=max_lag, num_steps=num_steps, horizon=horizon)
        self._policies = [copy.deepcopy(policy).cpu() for _ in pool.pools]
        numbers = range(first_actor, first_actor + len(pool.pools))
        self._generators = [torch.Generator().manual_seed(seed_of(seed, number)) for number in numbers]
        self._seed, self._restarts, self._others = seed, restarts, others
        self._first_actor = first_actor
        self._executors = [
            choose_executor(own, part, fused=fused) for own, part in zip(self._policies, pool.pools, strict=True)
        ]
        self._last: list[RolloutBuffers | None] = [None] * len(pool.pools)

    def _device_of(self, policy: Policy) -> torch.device:
        return torch.device("cpu")

    def begin_with(self, actor: int, first: RolloutBuffers) -> None:
        self._last[actor] = first

    def _slot(self, actor: int) -> RolloutPlayer:
        others = self._others[actor] if self._others else None
        return RolloutPlayer(
            self.pool.pools[actor], self._executors[actor], self._num_steps, self._horizon, others=others
        )

    def _targets(self) -> list[Any]:
        return [partial(self._run, i) for i in range(len(self.pool.pools))]

    def _run(self, actor: int) -> None:
        failures = 0
        while (trajectory := self.exchange.begin(actor)) is not None:
            try:
                self._play(trajectory)
                failures = 0
            except ScramjetError as error:
                failures += 1
                if not self._restarts or failures > MOST_RESTARTS:
                    raise
                self._begin_again(trajectory, error)

    def _begin_again(self, trajectory: Trajectory, error: ScramjetError) -> None:
        """Give up a trajectory whose envs failed, and begin new episodes for its actor."""
        actor, pool = trajectory.actor, self.pool.pools[trajectory.actor]
        self.exchange.give_up(trajectory)
        pool.restarts += 1
        pool.say(f"restarted: {error}")
        first = self._slot(actor).buffers
        pool.reset(seed_of(self._seed, self._first_actor + actor, pool.steps_taken), out=first.last)
        self.begin_with(actor, first)

    def _play(self, trajectory: Trajectory) -> None:
        actor, player = trajectory.actor, trajectory.slot
        policy = self._policies[actor]

        def look() -> None:
            self.weights.give(policy)
            self.exchange.record({"play": actor, "version": self.exchange.version})

        trajectory.version = self.exchange.look(look)
        trajectory.versions = float(trajectory.version)
        player.play(self._generators[actor], after=self._last[actor])
        self._last[actor] = player.buffers
        trajectory.episodes = player.pool.episodes()
        self.exchange.finish(trajectory)

    def do(self, event: dict[str, Any]) -> None:
        trajectory = self.exchange.begin(event["play"], wait=False)
        if trajectory is None:
            raise ScheduleError(
                f"actor {event['play']} may not run further ahead here; learn before, or allow more lag"
            )
        self._play(trajectory)


def seed_of(*parts: int) -> int:
    """A seed for an env, derived from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0]) >> 1  # below 2**31: every env takes such a seed
