"""Actors whose envs step beside this process: one thread decides for all that are ready, in one forward pass."""

from __future__ import annotations

import copy
import select
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scramjet.accelerate.cuda_graphs import Recorder
from scramjet.accelerate.numba.executor import native_play
from scramjet.engine.pool import Pool
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool
from scramjet.policies.policy import Policy
from scramjet.training.asynchronous.actors import Actors, carry_over, seed_of, wait_for_gpu
from scramjet.training.asynchronous.trajectories import Trajectory
from scramjet.training.rollout import checks as soundness
from scramjet.training.rollout.acting import act, value_into
from scramjet.training.rollout.final_observations import FinalsOnCPU
from scramjet.training.rollout.rollout import Rollout, allocate_rollout


class Crew:
    """The envs of one actor, and the trajectory they are at."""

    def __init__(self, number: int, pool: Pool) -> None:
        self.number, self.pool = number, pool
        self.rows = slice(0, pool.num_rows)
        self.trajectory: Trajectory | None = None
        self.before: Rollout | None = None  # the slot of the last one
        self.finals: FinalsOnCPU | None = None
        self.views: _Views | None = None
        self.t = 0
        self.versions = 0  # the sum over its steps
        self.idle_since = time.perf_counter()  # where it waits for leave to begin

    @property
    def slot(self) -> Rollout:
        assert self.trajectory is not None
        return self.trajectory.rollout


class _Views:
    """NumPy's views of a slot: of few rows, torch takes longer to find its place than to copy."""

    def __init__(self, slot: Rollout) -> None:
        self.shown = [leaf.numpy() for leaf in _shown(slot)]
        self.action, self.log_prob, self.value = slot.action.numpy(), slot.log_prob.numpy(), slot.value.numpy()
        self.states, self.kept_states = slot.memories.states.numpy(), slot.states.numpy()


class _Desk:
    """Where so many crews are decided for at once: one step, their rows side by side."""

    def __init__(self, now: Rollout, policy: Policy) -> None:
        self.now = now
        remembered = [now.memories.states] * now.memories.is_used
        seen = [leaf[0] for leaf in _shown(now)] + remembered
        self._decided = [now.action[0], now.log_prob[0]] + [now.value[0]] * (not policy.splits) + remembered
        self._is_on_gpu = now.action.is_cuda
        here = [self._here(leaf) for leaf in seen]
        self._sent = list(zip(here, seen, strict=True)) if self._is_on_gpu else []
        self._fetched = [self._here(leaf) for leaf in (policy.distribution.env_action(now.action[0]), *self._decided)]
        self.rows = [leaf.numpy() for leaf in here]  # what players see, then what they remember
        self.given, self.action, self.log_prob, *more = (leaf.numpy() for leaf in self._fetched)
        self.value = None if policy.splits else more[0]
        self.states = more[-1] if remembered else None

    def _here(self, leaf: Tensor) -> Tensor:
        """Its copy in memory that the GPU reads and writes itself; where there is no GPU, the tensor."""
        return torch.empty_like(leaf, device="cpu", pin_memory=True) if self._is_on_gpu else leaf

    def send(self) -> None:
        """What is in `rows` to the GPU, if it is decided there."""
        for here, there in self._sent:
            there.copy_(here, non_blocking=True)

    def fetch(self, given: Tensor) -> None:
        """What was decided, and the actions as envs receive them."""
        if self._is_on_gpu:
            for here, there in zip(self._fetched, (given, *self._decided), strict=True):
                here.copy_(there, non_blocking=True)
            torch.cuda.current_stream().synchronize()
        else:
            self._fetched[0].copy_(given)


class CentralActors(Actors):
    """Envs in worker processes, or on ALE's threads: whenever some have stepped, one pass decides for all of them.

    On the GPU that is on a stream of its own: the learner's work there takes long, and is not waited for.
    """

    kind = "round"
    leaves_values = True

    def __init__(
        self, pool: ConcatenatedPool, policy: Policy, *, max_lag: int, num_steps: int, horizon: int | None, seed: int,
        fused: bool,
    ) -> None:  # fmt: skip
        super().__init__(pool, policy, max_lag=max_lag, num_steps=num_steps, horizon=horizon)
        self._policy = copy.deepcopy(policy)
        self._home = copy.deepcopy(policy).cpu() if policy.device.type == "cuda" else self._policy  # where slots are
        self._generator = torch.Generator(policy.device).manual_seed(seed_of(seed, 0))
        self._crews = [Crew(i, part) for i, part in enumerate(pool.pools)]
        now = allocate_rollout(pool, self._policy, 1, apart=False)
        size = pool.pools[0].num_rows
        self._desks = [_Desk(now.part(slice(0, (k + 1) * size)), self._policy) for k in range(len(self._crews))]
        if fused:
            for desk in self._desks:
                desk.now.native = native_play(self._policy, desk.now)
        self._version = -1
        is_on_gpu = policy.device.type == "cuda"
        self._stream = torch.cuda.Stream(priority=-1) if is_on_gpu else None
        self._recorders = [Recorder[Tensor]("a decision") for _ in self._desks] if is_on_gpu else None
        wait_for_gpu(policy)

    def _device_of(self, policy: Policy) -> torch.device:
        return policy.device

    def begin_with(self, actor: int, first: Rollout) -> None:
        self._crews[actor].before = first

    def _slot(self, actor: int) -> Rollout:
        pool, pinned = self.pool.pools[actor], self._stream is not None
        slot = allocate_rollout(pool, self._home, self._num_steps, self._horizon, pinned=pinned)
        slot.halves = []
        return slot

    def _targets(self) -> list[Any]:
        return [self._run]

    def _run(self) -> None:
        poller = _Readiness(self._crews)
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            while not self.exchange.is_closed:
                ready = [crew for crew in self._crews if crew.trajectory is None and self.exchange.may_begin()]
                ready += poller.ready(wait=not ready)
                if ready:
                    self._round(ready)

    def do(self, event: dict[str, Any]) -> None:
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            self._round([self._crews[i] for i in event["round"]])

    def _round(self, ready: Sequence[Crew]) -> None:
        """Take in what these crews' envs have done, and have them go on; those that may begin a trajectory do."""
        begun: list[Crew] = []
        going: list[Crew] = []  # the rest may not begin yet

        def look() -> None:
            if self.exchange.version != self._version:
                self.weights.give(self._policy)
            begun.extend(crew for crew in ready if crew.trajectory is None and self._begin(crew))
            going.extend(crew for crew in ready if crew.trajectory is not None)
            self.exchange.record({"round": [crew.number for crew in going], "version": self.exchange.version})

        version = self.exchange.look(look)
        if version != self._version:
            self._version = version
            for desk in self._desks:
                if desk.now.native is not None:
                    desk.now.native.network.refresh()
        for crew in going:
            if crew not in begun:
                self._take_in(crew)
        acting = [crew for crew in going if crew.trajectory is not None]
        if acting:
            self._decide(acting)

    def _take_in(self, crew: Crew) -> None:
        """The results of a step; a trajectory that is done is handed over."""
        slot, t = crew.slot, crew.t
        crew.pool.recv(crew.rows, slot.rows[t])
        assert crew.finals is not None
        crew.finals.keep(t)
        if slot.memories.is_used:
            slot.memories.forget_ended(slot.turn(t), slot.rows[t].terminated, slot.rows[t].truncated)
        crew.t += 1
        if crew.t < slot.num_steps:
            return
        crew.finals.value_all()
        soundness.check(crew.pool, slot)
        trajectory = crew.trajectory
        assert trajectory is not None
        trajectory.versions = crew.versions / slot.num_steps
        trajectory.episodes = crew.pool.episodes()
        crew.before, crew.trajectory, crew.idle_since = slot, None, time.perf_counter()
        self.exchange.finish(trajectory)

    def _value_into(self, obs: Any, state: Tensor | None, value: Tensor) -> None:
        """For last observations of episodes: slots and the policy may be on different devices."""
        device = self._policy.device
        there = torch.empty(value.shape, device=device) if device.type != "cpu" else value
        moved = map_leaves(lambda leaf: torch.as_tensor(leaf).to(device), obs)
        value_into(self._policy, self._desks[0].now.fast, moved, None if state is None else state.to(device), there)
        if there is not value:
            value.copy_(there)

    def _begin(self, crew: Crew) -> bool:
        trajectory = self.exchange.begin(crew.number, wait=False)
        if trajectory is None:
            return False
        self.exchange.waits.actors += time.perf_counter() - crew.idle_since
        slot = trajectory.rollout
        carry_over(crew.before, slot)
        crew.views = _Views(slot)
        for leaf in crew.views.shown:
            leaf[0] = leaf[-1]
        crew.trajectory, crew.t, crew.versions = trajectory, 0, 0
        crew.finals = FinalsOnCPU(crew.pool, slot, self._value_into)
        return True

    def _decide(self, crews: Sequence[Crew]) -> None:
        """One forward pass for all of them; their envs step on."""
        desk = self._desks[len(crews) - 1]
        now, has_memory, size = desk.now, desk.now.memories.is_used, crews[0].pool.num_rows
        for i, crew in enumerate(crews):
            views, t, rows = crew.views, crew.t, slice(i * size, (i + 1) * size)
            assert views is not None
            for place, seen in zip(desk.rows, views.shown, strict=False):
                place[rows] = seen[t]
            if has_memory:
                if t % crew.slot.horizon == 0:
                    views.kept_states[t // crew.slot.horizon] = views.states
                desk.rows[-1][rows] = views.states
        desk.send()
        self._policy.distribution.noise(1, len(now.action[0]), self._generator, out=now.noise)
        desk.fetch(self._act(len(crews) - 1))
        for i, crew in enumerate(crews):
            views, t, rows = crew.views, crew.t, slice(i * size, (i + 1) * size)
            assert views is not None
            views.action[t], views.log_prob[t] = desk.action[rows], desk.log_prob[rows]
            if desk.value is not None:
                views.value[t] = desk.value[rows]
            if desk.states is not None:
                views.states[:] = desk.states[rows]
            crew.versions += self._version
            crew.pool.send(desk.given[rows], crew.rows)

    def _act(self, place: int) -> Tensor:
        """Draw the actions at a desk."""
        work = partial(act, self._policy, self._desks[place].now, 0)
        return work() if self._recorders is None else self._recorders[place].run(work)


def _shown(rollout: Rollout) -> list[Tensor]:
    """What players see, each [T + 1, R, ...]."""
    parts = (rollout.obs, rollout.mask, rollout.alive)
    return [leaf for part in parts if part is not None for leaf in leaves(part)]


class _Readiness:
    """Which crews' envs have stepped."""

    def __init__(self, crews: Sequence[Crew]) -> None:
        self._crews = crews

    def ready(self, *, wait: bool) -> list[Crew]:
        """Those that have, or have not for too long; waits a little for the first of them if asked to."""
        waiting: dict[int, Crew] = {}
        seconds = 0.05 if wait else 0.0
        late: list[Crew] = []
        for crew in self._crews:
            if crew.trajectory is None:
                continue
            for descriptor, left in crew.pool.waiting or ():
                waiting[descriptor] = crew
                if left <= 0:
                    late.append(crew)
        poller = select.poll()
        for descriptor in waiting:
            poller.register(descriptor, select.POLLIN)
        if not waiting:
            time.sleep(min(seconds, 0.002))  # all wait for the learner
        found = poller.poll(seconds * 1000) if waiting else []
        return list(dict.fromkeys([waiting[descriptor] for descriptor, _ in found] + late))
