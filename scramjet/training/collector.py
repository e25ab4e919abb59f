"""Where the loop's rollouts come from: played when they are asked for, or by actors beside the learner."""

from __future__ import annotations

import json
import mmap
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from scramjet.engine.pool import Episodes, Pool
from scramjet.engine.trees import leaves
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool, concatenate_episodes
from scramjet.errors import ConfigError, shortened
from scramjet.policies.policy import Policy
from scramjet.runtime.files import explain_disk_errors, open_regular, read_regular, require_size, why_unreadable
from scramjet.runtime.strict_json import parse_json
from scramjet.training.asynchronous.actors import Actors, wait_for_gpu
from scramjet.training.asynchronous.trajectories import ScheduleError, Trajectory
from scramjet.training.learner import Learner
from scramjet.training.rollout.acting import value_rows
from scramjet.training.rollout.rollout import Rollout, collect
from scramjet.training.worlds.world_files import placeless_name

_MAX_SCHEDULE_BYTES = 1 << 28  # of millions of events
_MAX_REPLAYED_BYTES = 1 << 26


class Collector(ABC):
    """Gives the learner its rollouts."""

    num_rollouts: int | None = None
    """How many there are; None: without end."""

    @abstractmethod
    def collect(self, gives_up: Callable[[], bool] | None = None) -> Rollout | None:
        """The next rollout to learn from; None where it `gives_up` waiting for envs."""

    @abstractmethod
    def learned(self) -> None:
        """The policy has new weights."""

    @abstractmethod
    def episodes(self) -> Episodes:
        """That ended in what was collected since the last call."""

    def metrics(self) -> dict[str, float]:
        """How collecting went since the last call."""
        return {}

    def close(self) -> None:  # noqa: B027 - nothing runs beside
        """End what runs beside this thread."""


class Synchronous(Collector):
    """Plays a rollout with the weights as they are, while the learner waits."""

    def __init__(self, pool: Pool, policy: Policy, rollout: Rollout, generator: torch.Generator) -> None:
        self._pool, self._policy, self._rollout, self._generator = pool, policy, rollout, generator

    def collect(self, gives_up: Callable[[], bool] | None = None) -> Rollout | None:
        return collect(self._pool, self._policy, self._rollout, self._generator)

    def learned(self) -> None:
        pass

    def episodes(self) -> Episodes:
        return self._pool.episodes()


class Asynchronous(Collector):
    """Takes what actors have played beside the learner; they begin with the first rollout that is asked for."""

    def __init__(self, actors: Actors, pool: ConcatenatedPool, learner: Learner, rollout: Rollout) -> None:
        self._actors, self._pool, self._learner, self._rollout = actors, pool, learner, rollout
        self._policy = learner.policy
        self._earned = [torch.zeros(0)] * len(pool.pools)  # each actor's discounted returns under way
        self._exchange = actors.exchange
        self._taken: list[Trajectory] = []
        self._lags: tuple[float, int] = (0.0, 0)

    def collect(self, gives_up: Callable[[], bool] | None = None) -> Rollout | None:
        if not self._actors.is_running:
            self._actors.weights.take(self._policy)
            self._actors.start()
        taken = self._exchange.take(gives_up=gives_up)
        return self._load(taken) if taken else None

    def _load(self, taken: list[Trajectory]) -> Rollout:
        """Copy trajectories side by side into the learner's rollout; their slots are free again."""
        version = self._exchange.version
        for i, trajectory in enumerate(taken):
            _copy(trajectory.rollout, self._rollout, self._pool.rows_of(i))
            self._carry_returns(trajectory, i)
        if self._actors.leaves_values:
            self._value()
        wait_for_gpu(self._policy)
        mean = sum(version - trajectory.versions for trajectory in taken) / len(taken)
        self._lags = mean, max(version - trajectory.version for trajectory in taken)
        self._taken = taken
        self._exchange.give_back(taken)
        return self._rollout

    @torch.inference_mode()
    def _value(self) -> None:
        """All at once, and with the weights that learn from it."""
        if self._rollout.native is not None:
            self._rollout.native.network.refresh()
        value_rows(self._policy, self._rollout)

    def _carry_returns(self, trajectory: Trajectory, place: int) -> None:
        """Rewards are scaled by discounted returns, which go on from an actor's last trajectory, wherever it stood."""
        scaler, slot = self._learner.reward_scaler, trajectory.rollout
        if scaler is None:
            return
        own = scaler.running_return.view(len(self._pool.pools), -1)[place]
        before = self._earned[trajectory.actor]
        own.copy_(before if before.numel() else torch.zeros_like(own))
        reward = self._learner.clipped(slot.reward.to(own.device))
        ended = (slot.terminated | slot.truncated).to(own.device)
        alive = None if slot.alive is None else slot.alive.to(own.device)
        self._earned[trajectory.actor] = scaler.earned_after(reward, ended, alive, own)

    def learned(self) -> None:
        wait_for_gpu(self._policy)  # before actors have to
        self._exchange.publish(lambda: self._actors.weights.take(self._policy))

    def episodes(self) -> Episodes:
        ended = list(self._taken)
        while self._exchange.unlearned:  # actors may add to it meanwhile
            ended.append(self._exchange.unlearned.pop(0))
        told = [(t.episodes, t.actor) for t in ended if t.episodes is not None]
        return concatenate_episodes([part for part, _ in told], self._pool.pools[0].num_envs, [i for _, i in told])

    def metrics(self) -> dict[str, float]:
        waits = self._exchange.read_waits()
        passed = max(time.perf_counter() - waits.since, 1e-9)
        frames = self._rollout.action.shape[0] * self._pool.pools[0].num_envs
        return {
            "async/policy_lag_mean": self._lags[0],
            "async/policy_lag_max": self._lags[1],
            "async/queue_depth": self._exchange.depth,
            "async/frames_in_flight": self._exchange.num_in_flight * frames,
            "async/stale_trajectories": waits.num_stale,
            "async/env_restarts": self._pool.restarts,
            "async/learner_idle": min(1.0, waits.learner / passed),
            "async/actors_idle": min(1.0, waits.actors / passed / self._exchange.num_actors),
        }

    def close(self) -> None:
        self._actors.close()


class Replayed(Asynchronous):
    """The same actors on this thread, doing what a schedule says, event by event."""

    def __init__(
        self,
        actors: Actors,
        pool: ConcatenatedPool,
        learner: Learner,
        rollout: Rollout,
        schedule: Path,
        settings: dict[str, Any],
    ) -> None:
        """`settings`: what must be as it was when the schedule was recorded."""
        super().__init__(actors, pool, learner, rollout)
        self._exchange.drops_stale, self._exchange.most_ahead = False, self._exchange.max_lag
        events = read_schedule(schedule, len(pool.pools), actors.kind, settings)
        self.num_rollouts = sum("learn" in event for _, event in events)
        self._events = iter(events)
        self._line = 0
        self._next: dict[str, Any] | None = None
        self._path = schedule
        self._has_begun = False
        self._go_on()

    def _go_on(self) -> None:
        self._line, self._next = next(self._events, (self._line + 1, None))

    def _check_version(self, event: dict[str, Any]) -> None:
        if event["version"] != self._exchange.version:
            raise ScheduleError(
                f"it plays with the weights of update {event['version']}, and there are those of update "
                f"{self._exchange.version}; to try a lag, play earlier and learn later"
            )

    def collect(self, gives_up: Callable[[], bool] | None = None) -> Rollout | None:
        if not self._has_begun:
            self._actors.weights.take(self._policy)
            self._actors.begin()
            self._has_begun = True
        try:
            return self._load(self._follow())
        except ScheduleError as problem:
            raise ConfigError(f"the schedule '{self._path}' cannot be followed, line {self._line}: {problem}") from None

    def _follow(self) -> list[Trajectory]:
        """Do what comes up to the next update, and what is played before its weights are there."""
        taken: list[Trajectory] | None = None
        while self._next is not None:
            event = self._next
            if "learn" in event:
                if taken is not None:
                    break
                taken = self._exchange.take(event["learn"])
            elif "drop" in event:
                self._exchange.drop(event["drop"])
            elif taken is not None and event["version"] > self._exchange.version:
                break  # that was played with the weights that come of this
            else:
                self._check_version(event)
                self._actors.do(event)
            self._go_on()
        if taken is None:
            raise ScheduleError("it ends here")
        return taken


class ScheduleLog:
    """Writes events to a file, one a line, after a line with the settings that a replay must have too."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        with explain_disk_errors(path):
            self._file = os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a")
        if self._file.tell() == 0:
            self({"run": settings})

    def __call__(self, event: dict[str, Any]) -> None:
        with explain_disk_errors(self._path):
            self._file.write(json.dumps(event) + "\n")
            if "learn" in event:
                self._file.flush()


def cut_schedule(path: Path, num_updates: int) -> None:
    """Leave what led to the first so many updates: the rest was lost with the process that recorded it."""
    with explain_disk_errors(path), open(open_regular(path, os.O_RDWR), "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        require_size(size, _MAX_SCHEDULE_BYTES)
        if size == 0:  # an empty file cannot be mapped
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            end = 0
            for _ in range(num_updates):
                learned = content.find(b'"learn"', end)
                end = content.find(b"\n", learned) + 1 if learned >= 0 else 0
                if end == 0:
                    return
        if end > 0:
            file.truncate(end)
            os.fsync(file.fileno())


def read_schedule(path: Path, num_actors: int, kind: str, settings: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The events of a file with their lines, checked; `kind` is what these actors do: play or round."""
    try:
        lines = read_regular(path, _MAX_REPLAYED_BYTES, follow_links=True).decode().splitlines()
    except (OSError, ValueError) as error:  # the latter of text that is none, or a path that cannot be
        reason = why_unreadable(error) if isinstance(error, OSError) else "is no text"
        raise ConfigError(
            f"the schedule '{path}' cannot be read: it {reason}; --record-schedule writes one to RUN/schedule.jsonl"
        ) from None
    events: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = parse_json(line)
        except ValueError:
            event = None
        if not events and isinstance(event, dict) and isinstance(event.get("run"), dict):
            _check_settings(path, event["run"], settings)
            continue
        problem = _problem_of(event, num_actors, kind)
        if problem:
            raise ConfigError(f"'{path}' is no schedule of this run, line {number}: {problem}")
        events.append((number, event))
    if not any("learn" in event for _, event in events):
        raise ConfigError(
            f"the schedule '{path}' has no update in it; --record-schedule writes one to RUN/schedule.jsonl"
        )
    return events


def _check_settings(path: Path, recorded: dict[str, Any], settings: dict[str, Any]) -> None:
    """Refuse to replay with others than those it was recorded with: that would be another run."""
    for name, value in recorded.items():
        if name == "env" and isinstance(value, str):
            value = placeless_name(value)  # older ones have the path
        is_known = name in settings or name.startswith("env.")
        if is_known and settings.get(name) != value:
            shown = shortened(value).strip("'")
            flag = shown if name == "env" else f"--{name.replace('_', '-')} {shown}"
            here = f"{name} is {settings[name]}" if name in settings else f"there is no {name}"
            raise ConfigError(f"the schedule '{path}' was recorded with {flag}, and {here}; use {flag}")


def _problem_of(event: Any, num_actors: int, kind: str) -> str | None:
    """What is wrong with an event."""
    if not isinstance(event, dict) or len(event.keys() & {"play", "round", "learn", "drop"}) != 1:
        return f"an event has one of {kind}, learn and drop"
    if not event.keys() & {kind, "learn", "drop"}:
        recorded = "a native world" if "play" in event else "an env of another library"
        return f"it was recorded with {recorded}: there actors have other events ({next(iter(event))}, not {kind})"
    named = event.get("learn", event.get("round", [event.get("play", event.get("drop"))]))
    if not isinstance(named, list) or not all(type(actor) is int and 0 <= actor < num_actors for actor in named):
        return f"actors are numbers from 0 to {num_actors - 1}; was it recorded with another --num-actors?"
    if "learn" in event and len(named) != num_actors:
        return f"an update learns from {num_actors} trajectories, and it lists {len(named)}"
    if "round" in event and len(set(named)) != len(named):
        return "an actor is in a round once"
    version = event.get("version")
    if kind in event and (type(version) is not int or version < 0):
        return "its version must be a number of updates"
    return None


@torch.inference_mode()
def _copy(source: Rollout, target: Rollout, rows: slice) -> None:
    """A trajectory into some rows of the learner's rollout."""
    names = (
        "obs", "mask", "alive", "seat", "action", "log_prob", "value", "reward", "terminated", "truncated",
        "final_value",
    )  # fmt: skip
    for name in names:
        here, there = getattr(source, name), getattr(target, name)
        if here is not None:
            for mine, its in zip(leaves(here), leaves(there), strict=True):
                its[:, rows].copy_(mine, non_blocking=True)
    if source.memories.is_used:
        slots = target.memories.slots(rows)
        target.states[:, slots].copy_(source.states, non_blocking=True)
        target.memories.states[slots].copy_(source.memories.states, non_blocking=True)
