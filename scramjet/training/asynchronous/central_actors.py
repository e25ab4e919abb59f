"""Actors whose envs step outside this process: one thread chooses the actions of all actors that are ready, in one
forward pass."""

from __future__ import annotations

import copy
import select
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scramjet.engine.pool import Pool
from scramjet.engine.trees import arrays_of, map_leaves
from scramjet.engine.wrappers import ConcatenatedPool
from scramjet.executors.choice import choose_executor
from scramjet.executors.cuda_graphs import Stage, stage
from scramjet.executors.executor import Executor
from scramjet.policies.policy import Policy
from scramjet.training.asynchronous.actors import LocalActors, seed_of, wait_for_gpu
from scramjet.training.asynchronous.trajectories import Trajectory
from scramjet.training.rollout import checks
from scramjet.training.rollout.acting import Acting
from scramjet.training.rollout.buffers import RolloutBuffers
from scramjet.training.rollout.parts import Part
from scramjet.training.rollout.rollout import Rollout


class Slot(Part):
    """The buffers of one actor's trajectory, and NumPy views of them: indexing a torch tensor of few rows takes longer
    than copying them."""

    def __init__(self, pool: Pool, buffers: RolloutBuffers, value: Any) -> None:
        super().__init__(pool, buffers, slice(0, pool.num_rows), value)
        rollout = self.rollout
        self.shown = [leaf.numpy() for leaf in _shown(rollout)]
        self.action, self.log_prob, self.value = rollout.action.numpy(), rollout.log_prob.numpy(), rollout.value.numpy()
        self.states, self.kept_states = rollout.recurrent.states.numpy(), rollout.states.numpy()


class ActorEnvs:
    """The envs of one actor, and how far they are in their trajectory."""

    def __init__(self, number: int, pool: Pool) -> None:
        self.number, self.pool = number, pool
        self.trajectory: Trajectory | None = None
        self.before: RolloutBuffers | None = None  # the buffers of the last trajectory
        self.t = 0
        self.versions = 0  # sum of the weights' versions over the steps so far
        self.idle_since = time.perf_counter()  # since when the actor waits to begin a trajectory

    @property
    def slot(self) -> Slot:
        """The slot of the trajectory under way."""
        assert self.trajectory is not None
        slot: Slot = self.trajectory.slot
        return slot


class JointDecision:
    """Chooses the actions of one step of several actors, whose rows are concatenated, in one forward pass."""

    def __init__(self, executor: Executor, now: Rollout) -> None:
        """`now` is a rollout of one step, in whose buffers the policy acts."""
        policy = executor.policy
        self._acting, self._executor = Acting(executor, now), executor
        self.noise = now.noise
        recurrent = [now.recurrent.states] * now.recurrent.is_used
        seen = [leaf[0] for leaf in _shown(now)] + recurrent
        self._decided = [now.action[0], now.log_prob[0]] + [now.value[0]] * (not policy.splits) + recurrent
        self._is_on_gpu = now.action.is_cuda
        here = [self._here(leaf) for leaf in seen]
        self._sent = list(zip(here, seen, strict=True)) if self._is_on_gpu else []
        self._fetched = [self._here(leaf) for leaf in (policy.distribution.env_action(now.action[0]), *self._decided)]
        self.rows = [leaf.numpy() for leaf in here]  # to fill: observations, mask, alive, then recurrent states
        self.given, self.action, self.log_prob, *more = (leaf.numpy() for leaf in self._fetched)
        self.value = None if policy.splits else more[0]
        self.states = more[-1] if recurrent else None
        self._stage: Stage[Tensor] = stage("a decision", policy.device)

    def _here(self, leaf: Tensor) -> Tensor:
        """A tensor like `leaf` in pinned memory of the CPU; `leaf` itself if it is on the CPU already."""
        return torch.empty_like(leaf, device="cpu", pin_memory=True) if self._is_on_gpu else leaf

    def decide(self) -> None:
        """Draw actions for what is in `rows`; writes them to `given` and `action`, and likewise the other results."""
        for here, there in self._sent:
            there.copy_(here, non_blocking=True)
        given = self._stage.run(partial(self._acting.act, 0), version=self._executor.version)
        if self._is_on_gpu:
            for here, there in zip(self._fetched, (given, *self._decided), strict=True):
                here.copy_(there, non_blocking=True)
            torch.cuda.current_stream().synchronize()
        else:
            self._fetched[0].copy_(given)


class CentralActors(LocalActors):
    """Actors whose envs run in worker processes or on ALE's threads.

    Whenever the envs of some actors have stepped, one forward pass chooses the actions of all of these. On the GPU it
    runs on its own stream, so that it does not wait for the learner's work.
    """

    kind = "round"
    leaves_values = True

    def __init__(
        self, pool: ConcatenatedPool, policy: Policy, *, max_lag: int, num_steps: int, horizon: int | None, seed: int,
        fused: bool, first_actor: int = 0,
    ) -> None:  # fmt: skip
        """`first_actor`: the number of the first one among the actors of all processes."""
        super().__init__(pool, policy, max_lag=max_lag, num_steps=num_steps, horizon=horizon)
        self._policy = copy.deepcopy(policy)
        is_on_gpu = policy.device.type == "cuda"
        self._home = copy.deepcopy(policy).cpu() if is_on_gpu else self._policy  # fits the slots, which are on the CPU
        # On the GPU torch's operators act: rows are few, and they run every network.
        self._executor = choose_executor(self._policy, pool, fused=fused and not is_on_gpu)
        self._generator = torch.Generator(policy.device).manual_seed(seed_of(seed, first_actor))
        self._actors = [ActorEnvs(i, part) for i, part in enumerate(pool.pools)]
        now = RolloutBuffers.allocate(pool, self._policy, 1, apart=False).rollout
        size = pool.pools[0].num_rows
        self._decisions = [  # for one actor, for two actors, ...
            JointDecision(self._executor, now.part(slice(0, (k + 1) * size))) for k in range(len(self._actors))
        ]
        self._version = -1
        self._stream = torch.cuda.Stream(priority=-1) if is_on_gpu else None
        wait_for_gpu(policy)

    def _device_of(self, policy: Policy) -> torch.device:
        return policy.device

    def begin_with(self, actor: int, first: RolloutBuffers) -> None:
        self._actors[actor].before = first

    def _slot(self, actor: int) -> Slot:
        pool, pinned = self.pool.pools[actor], self._stream is not None
        buffers = RolloutBuffers.allocate(pool, self._home, self._num_steps, self._horizon, pinned=pinned)
        return Slot(pool, buffers, self._value_into)

    def _targets(self) -> list[Any]:
        return [self._run]

    def _run(self) -> None:
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            while not self.exchange.is_closed:
                ready = [each for each in self._actors if each.trajectory is None and self.exchange.may_begin()]
                ready += ready_actors(self._actors, wait=not ready)
                if ready:
                    self._round(ready)

    def do(self, event: dict[str, Any]) -> None:
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            self._round([self._actors[i] for i in event["round"]])

    def _round(self, ready: Sequence[ActorEnvs]) -> None:
        """Take in the steps of these actors, choose their next actions and send those to the envs.

        Actors without a trajectory begin one if they may.
        """
        begun: list[ActorEnvs] = []
        going: list[ActorEnvs] = []  # actors with a trajectory; the others may not begin one yet

        def look() -> None:
            if self.exchange.version != self._version:
                self.weights.give(self._policy)
            begun.extend(each for each in ready if each.trajectory is None and self._begin(each))
            going.extend(each for each in ready if each.trajectory is not None)
            self.exchange.record({"round": [each.number for each in going], "version": self.exchange.version})

        version = self.exchange.look(look)
        if version != self._version:
            self._version = version
            self._executor.refresh()
        for each in going:
            if each not in begun:
                self._take_in(each)
        acting = [each for each in going if each.trajectory is not None]
        if acting:
            self._decide(acting)

    def _begin(self, actor: ActorEnvs) -> bool:
        """Begin a trajectory for an actor; returns whether it may."""
        trajectory = self.exchange.begin(actor.number, wait=False)
        if trajectory is None:
            return False
        self.exchange.waits.actors += time.perf_counter() - actor.idle_since
        actor.trajectory, actor.t, actor.versions = trajectory, 0, 0
        actor.slot.buffers.begin_after(actor.before or actor.slot.buffers)
        actor.slot.begin()
        return True

    def _take_in(self, actor: ActorEnvs) -> None:
        """Receive the results of an actor's step; a trajectory that is complete goes to the exchange."""
        slot, t = actor.slot, actor.t
        actor.pool.recv(slot.rows, slot.transitions[t])
        slot.take_in(t)
        actor.t += 1
        if actor.t < slot.rollout.num_steps:
            return
        slot.end()
        checks.check(actor.pool, slot.rollout)
        trajectory = actor.trajectory
        assert trajectory is not None
        trajectory.versions = actor.versions / slot.rollout.num_steps
        trajectory.episodes = actor.pool.episodes()
        actor.before, actor.trajectory, actor.idle_since = slot.buffers, None, time.perf_counter()
        self.exchange.finish(trajectory)

    def _value_into(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        """Write the values of episodes' last observations; slots and the policy may be on different devices."""
        device = self._policy.device
        there = torch.empty(value.shape, device=device) if device.type != "cpu" else value
        moved = map_leaves(lambda leaf: torch.as_tensor(leaf).to(device), obs)
        self._executor.values(moved, None if state is None else state.to(device), there)
        if there is not value:
            value.copy_(there)

    def _decide(self, actors: Sequence[ActorEnvs]) -> None:
        """Choose the actions of these actors in one forward pass, and send them to their envs."""
        decision, size = self._decisions[len(actors) - 1], actors[0].pool.num_rows
        places = [slice(i * size, (i + 1) * size) for i in range(len(actors))]
        for actor, rows in zip(actors, places, strict=True):
            slot, t = actor.slot, actor.t
            for place, seen in zip(decision.rows, slot.shown, strict=False):
                place[rows] = seen[t]
            if decision.states is not None:
                if t % slot.rollout.horizon == 0:
                    slot.kept_states[t // slot.rollout.horizon] = slot.states
                decision.rows[-1][rows] = slot.states
        self._policy.distribution.noise(1, len(decision.noise[0]), self._generator, out=decision.noise)
        decision.decide()
        for actor, rows in zip(actors, places, strict=True):
            slot, t = actor.slot, actor.t
            slot.action[t], slot.log_prob[t] = decision.action[rows], decision.log_prob[rows]
            if decision.value is not None:
                slot.value[t] = decision.value[rows]
            if decision.states is not None:
                slot.states[:] = decision.states[rows]
            actor.versions += self._version
            actor.pool.send(decision.given[rows], slot.rows)


def _shown(rollout: Rollout) -> list[Tensor]:
    """The tensors that players see (observations, mask, alive), each [T + 1, R, ...]."""
    return list(arrays_of(rollout, "obs", "mask", "alive"))


def ready_actors(actors: Sequence[ActorEnvs], *, wait: bool) -> list[ActorEnvs]:
    """The actors whose envs have stepped, or whose time to step is over.

    With `wait`, wait up to 50 ms for the first of them.
    """
    waiting: dict[int, ActorEnvs] = {}
    seconds = 0.05 if wait else 0.0
    late: list[ActorEnvs] = []
    for actor in actors:
        if actor.trajectory is None:
            continue
        for descriptor, left in actor.pool.waiting or ():
            waiting[descriptor] = actor
            if left <= 0:
                late.append(actor)
    poller = select.poll()
    for descriptor in waiting:
        poller.register(descriptor, select.POLLIN)
    if not waiting:
        time.sleep(min(seconds, 0.002))  # no actor has a trajectory: all wait for the learner
    found = poller.poll(seconds * 1000) if waiting else []
    return list(dict.fromkeys([waiting[descriptor] for descriptor, _ in found] + late))
