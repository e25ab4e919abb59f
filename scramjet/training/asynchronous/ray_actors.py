"""Actors in processes of Ray's, on this machine or on others: the learner's side.

One thread hands out work and takes in trajectories. Each actor has at most two of them under way, so that it need not
wait for the learner's answer, and is sent the newest weights with each. Weights are put into Ray's object store once an
update. An actor that dies, alone or with its machine, is made anew where there is room, with fresh episodes.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from scramjet.adapters.gymnasium.worker_pool import QUICK_SECONDS
from scramjet.adapters.registry import ForeignWorld
from scramjet.distributed.ray_cluster import CONNECT_SECONDS, RayCluster, RemotePool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.errors import ScramjetError, TrainingError, shortened
from scramjet.policies.policy import Policy
from scramjet.runs.world_files import world_fingerprint
from scramjet.training.asynchronous.actors import MOST_RESTARTS, Actors
from scramjet.training.asynchronous.remote_actor import Greeting, Order, Played, RemoteActor, SentWorld
from scramjet.training.asynchronous.trajectories import Trajectory
from scramjet.training.config.run_config import RunConfig
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.rollout import Rollout
from scramjet.version import __version__

MOST_UNDER_WAY = 2
"""Maximum number of trajectories that one actor is asked for in advance."""
PLACE_SECONDS = 60.0
"""Seconds after which an actor that found no free CPU is placed without one."""
_WAIT_SECONDS = 0.01
_ROLLOUTS_IN_STORE = 6
"""Room of an object store of our own, in rollouts: those under way, those being copied, and weights."""


def make_ray_actors(
    config: RunConfig, pool: ConcatenatedPool, policy: Policy, rollout: Rollout, *, seed: int, first_actor: int = 0
) -> RayActors:
    """The actors of a run with `--actors ray`; raises a ConfigError if Ray is missing or does not answer.

    `first_actor`: the number of the first one among the actors of all processes.
    """
    assert isinstance(config.num_actors, int)
    assert isinstance(config.num_steps, int)
    num_envs = pool.pools[0].num_envs
    order = Order(
        actor=first_actor,
        config=replace(config, num_workers=_num_workers(pool.env, num_envs)),
        world=SentWorld.of(config.env),
        num_envs=num_envs,
        episodes=EpisodeSeed(0),
        seed=seed,
    )
    num_bytes = sum(tensor.nbytes for tensor in rollout.learned_tensors)
    cluster = RayCluster(config.ray_address, num_cpus=config.num_actors, store_bytes=_ROLLOUTS_IN_STORE * num_bytes)
    return RayActors(
        pool,
        policy,
        cluster,
        order,
        max_lag=config.max_policy_lag,
        num_steps=config.num_steps,
        horizon=config.ppo.bptt_horizon,
        rules=world_fingerprint(pool.env),
    )


def _num_workers(world: object, num_envs: int) -> int:
    """Worker processes of one actor: none for quick envs, which step in the actor's own process, else one.

    A worker can be ended if an env hangs, and replaces only the env that failed; but telling it to step takes time.
    """
    if not isinstance(world, ForeignWorld) or not world.makes_single_envs:
        return 0
    return int(num_envs * world.trial.seconds >= QUICK_SECONDS)


class RemoteSlot:
    """The buffers of one trajectory, and NumPy views of what arrives from the actor."""

    def __init__(self, buffers: RolloutBuffers) -> None:
        self.buffers = buffers
        self._arrays = [tensor.numpy() for tensor in buffers.rollout.learned_tensors]

    def fill(self, arrays: list[np.ndarray]) -> None:
        """Copy what an actor sent into the buffers."""
        for mine, its in zip(self._arrays, arrays, strict=True):
            np.copyto(mine, its)


@dataclass(slots=True)
class Asked:
    """An actor as the learner's side sees it: its handle at Ray, and what was asked of it."""

    number: int
    pool: RemotePool
    handle: Any = None
    placed: Any = None  # the answer to `place`, until it is there
    greeting: Any = None  # the answer to `begin`, until it is there
    node: str = ""
    since: float = 0.0  # when it was made
    episodes: EpisodeSeed | None = None  # those it began with
    has_begun: bool = False
    version: int = -1  # of the weights that it was sent last
    failures: int = 0  # deaths since it finished a trajectory
    under_way: deque[tuple[Any, Trajectory]] = field(default_factory=deque)

    @property
    def awaited(self) -> list[Any]:
        """The next answers of this actor."""
        first = [self.under_way[0][0]] if self.under_way else []
        return [each for each in (self.placed, self.greeting) if each is not None] + first


class RayActors(Actors):
    """Actors in processes of Ray's, each with its part of the envs and a copy of the policy on the CPU."""

    leaves_values = False

    def __init__(
        self, pool: ConcatenatedPool, policy: Policy, cluster: RayCluster, order: Order, *, max_lag: int,
        num_steps: int, horizon: int | None, rules: str,
    ) -> None:  # fmt: skip
        """`order` is that of the first actor. `rules`: a hash of the world's rules, the same on every machine."""
        self._home = copy.deepcopy(policy).cpu()
        super().__init__(pool, policy, max_lag=max_lag, num_steps=num_steps, horizon=horizon)
        self._cluster, self._ray, self._order, self._rules = cluster, cluster.ray, order, rules
        self._actors: list[Asked] = []
        self._sent: tuple[int, Any] = -1, None  # the version and the reference of the weights in the object store
        self._policy: Any = None

    def _device_of(self, policy: Policy) -> torch.device:
        return torch.device("cpu")

    def _slot(self, actor: int) -> RemoteSlot:
        pool = self.pool.pools[actor]
        return RemoteSlot(RolloutBuffers.allocate(pool, self._home, self._num_steps, self._horizon))

    def _targets(self) -> list[Any]:
        return [self._run]

    def _run(self) -> None:
        self._policy = self._ray.put(self._home)
        for number, pool in enumerate(self.pool.pools):
            assert isinstance(pool, RemotePool)
            self._actors.append(Asked(number, pool))
        has_room = self._cluster.free_cpus() >= len(self._actors)
        for actor in self._actors:
            self._make(actor, actor.pool.seeds, num_cpus=int(has_room))
        while not self.exchange.is_closed:
            for actor in self._actors:
                self._ask(actor)
            self._take_in()
            self._check_cluster()

    def _make(self, actor: Asked, episodes: EpisodeSeed, *, num_cpus: int) -> None:
        """Have Ray make the process of an actor, on any machine with room for it."""
        order = replace(self._order, actor=self._order.actor + actor.number, episodes=episodes)
        made = self._ray.remote(RemoteActor).options(num_cpus=num_cpus, scheduling_strategy="SPREAD", max_restarts=0)
        actor.handle = made.remote(order)
        actor.placed, actor.greeting = actor.handle.place.remote(), actor.handle.begin.remote(self._policy)
        actor.since, actor.episodes, actor.has_begun, actor.version = time.monotonic(), episodes, False, -1

    def _ask(self, actor: Asked) -> None:
        """Ask an actor for trajectories, as many as it may have under way."""
        while actor.has_begun and len(actor.under_way) < MOST_UNDER_WAY:
            trajectory = self.exchange.begin(actor.number, wait=False)
            if trajectory is None:
                return
            version, weights = self._newest_weights()
            trajectory.version = version
            is_new = version != actor.version
            played = actor.handle.play.remote(version, weights if is_new else None)
            actor.version = version
            actor.under_way.append((played, trajectory))

    def _newest_weights(self) -> tuple[int, Any]:
        """The version of the newest weights and their reference in the object store, where they are put once."""
        if self.exchange.version != self._sent[0]:
            found: list[Any] = []
            version = self.exchange.look(lambda: found.append(self.weights.arrays()))
            self._sent = version, self._ray.put(found[0])
        return self._sent

    def _take_in(self) -> None:
        """Take in what actors have answered; waits a moment for the first answer."""
        awaited = {each: actor for actor in self._actors for each in actor.awaited}
        if not awaited:
            time.sleep(_WAIT_SECONDS)
            return
        ready, _ = self._ray.wait(list(awaited), num_returns=1, timeout=_WAIT_SECONDS)
        if ready and len(awaited) > 1:
            ready, _ = self._ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        for each in ready:
            actor = awaited[each]
            if each in actor.awaited:  # it may have been made anew meanwhile
                self._hear(actor, each)

    def _hear(self, actor: Asked, answer: Any) -> None:
        """Take in one answer of an actor; one that died is made anew."""
        try:
            answered = self._ray.get(answer)
        except self._ray.exceptions.RayTaskError as error:
            raise _explained(error, actor.number) from error
        except self._ray.exceptions.RayError as error:
            self._begin_again(actor, error)
            return
        if isinstance(answered, Played):
            self._finish(actor, answered)
        elif isinstance(answered, Greeting):
            self._check(actor, answered)
            actor.greeting, actor.has_begun = None, True
        else:
            actor.placed, actor.node = None, answered

    def _finish(self, actor: Asked, played: Played) -> None:
        """Hand a trajectory over to the learner."""
        _, trajectory = actor.under_way.popleft()
        trajectory.slot.fill(played.arrays)
        trajectory.versions, trajectory.episodes = float(played.version), played.episodes
        actor.failures = 0
        actor.pool.count(self._num_steps, played.restarts)
        for message in played.messages:
            actor.pool.say(message)
        self.exchange.waits.actors += played.idle_seconds
        self.exchange.finish(trajectory)

    def _check(self, actor: Asked, greeting: Greeting) -> None:
        """Refuse an actor on a machine with another scramjet or another world."""
        if greeting.version != __version__:
            raise TrainingError(
                f"actor {actor.number} runs scramjet {greeting.version}, and this is {__version__}; install "
                f"scramjet=={__version__} on every machine of the Ray cluster"
            )
        if greeting.rules != self._rules:
            raise TrainingError(
                f"{actor.pool.name} has other rules where actor {actor.number} runs; install the same version of it on "
                f"every machine of the Ray cluster"
            )

    def _begin_again(self, actor: Asked, error: Exception) -> None:
        """Make an actor anew that has died, alone or with its machine."""
        actor.failures += 1
        reason = self._why_dead(actor, error)
        if actor.failures > MOST_RESTARTS:
            raise TrainingError(
                f"actor {actor.number} died {actor.failures} times without finishing a trajectory: {reason}"
            )
        self._give_up(actor)
        actor.pool.say(f"restarted: {reason}")
        self._make(actor, actor.pool.begin_again(), num_cpus=int(self._cluster.free_cpus() >= 1))

    def _why_dead(self, actor: Asked, error: Exception) -> str:
        """Why an actor has to be made anew, in words."""
        errors = self._ray.exceptions
        if actor.node and not self._cluster.is_alive(actor.node):
            return "its machine is gone"
        if isinstance(error, errors.OutOfMemoryError):
            return "its machine ran out of memory"
        if isinstance(error, errors.ActorUnavailableError):
            return "its process or its machine does not answer"
        if isinstance(error, errors.RayActorError):
            return (
                "its process died" if "No module named 'scramjet'" not in str(error) else "its machine has no scramjet"
            )
        return _first_line(error)

    def _give_up(self, actor: Asked) -> None:
        """End an actor's process, if it still has one, and take back what it was asked for."""
        self._ray.kill(actor.handle)
        while actor.under_way:
            self.exchange.give_up(actor.under_way.pop()[1])

    def _check_cluster(self) -> None:
        """Place actors for which no CPU became free, and notice if the whole cluster is gone."""
        if self._cluster.seconds_silent > CONNECT_SECONDS:
            raise TrainingError(
                f"the Ray cluster at {self._cluster.address} has not answered for {CONNECT_SECONDS:.0f} s; start it "
                f"again, then go on from the last checkpoint with scramjet train --resume"
            )
        now = time.monotonic()
        for actor in self._actors:
            if actor.placed is not None and actor.episodes is not None and now - actor.since > PLACE_SECONDS:
                self._give_up(actor)
                self._make(actor, actor.episodes, num_cpus=0)

    def close(self) -> None:
        """End the actors' processes and leave the cluster."""
        super().close()
        if self._cluster.seconds_silent < CONNECT_SECONDS:
            for actor in self._actors:
                self._give_up(actor)
        self._cluster.close()


def _explained(error: Any, number: int) -> Exception:
    """What an actor raised, as this process raises it."""
    cause = error.cause
    if isinstance(cause, ScramjetError):
        return cause
    return TrainingError(f"actor {number} failed: {type(cause).__name__}: {shortened(str(cause))}")


def _first_line(error: Exception) -> str:
    """Why an actor died, in Ray's words but in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shortened(lines[0] if lines else type(error).__name__)
