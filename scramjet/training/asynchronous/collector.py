"""Collects rollouts from actors that play beside the learner, or that replay a recorded schedule on this thread.

A schedule is a file with the order in which actors played and the learner learned, one event a line.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from scramjet.engine.pool import Episodes
from scramjet.engine.wrappers import ConcatenatedPool, concatenate_episodes
from scramjet.errors import ConfigError, shortened
from scramjet.runs.world_files import placeless_name
from scramjet.runtime.files import (
    explain_disk_errors,
    open_regular,
    parse_json,
    read_regular,
    require_size,
    why_unreadable,
)
from scramjet.training.asynchronous.actors import Actors, LocalActors, wait_for_gpu
from scramjet.training.asynchronous.trajectories import ScheduleError, Trajectory
from scramjet.training.collector import Collector
from scramjet.training.learner import Learner
from scramjet.training.rollout.acting import value_rollout
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.self_play.league import League

_MAX_SCHEDULE_BYTES = 1 << 28  # millions of events
_MAX_REPLAYED_BYTES = 1 << 26


# --- collectors


class Asynchronous(Collector):
    """Takes trajectories of actors that play beside the learner; they start with the first call of `collect`."""

    def __init__(
        self,
        actors: Actors,
        pool: ConcatenatedPool,
        learner: Learner,
        rollout: Rollout,
        league: League | None = None,
    ) -> None:
        """`league` has the opponents, if there are any."""
        self._actors, self._pool, self._learner, self._rollout = actors, pool, learner, rollout
        self._league = league
        self._policy = learner.policy
        self._earned = [torch.zeros(0)] * len(pool.pools)  # each actor's discounted returns of unfinished episodes
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
        """Copy trajectories side by side into the learner's rollout, and give their slots back."""
        version = self._exchange.version
        for i, trajectory in enumerate(taken):
            trajectory.rollout.copy_to(self._rollout, self._pool.rows_of(i))
            self._carry_returns(trajectory, i)
        if self._actors.leaves_values:
            self._value()
        wait_for_gpu(self._policy)
        mean = sum(version - trajectory.versions for trajectory in taken) / len(taken)
        self._lags = mean, max(version - trajectory.version for trajectory in taken)
        self._taken = taken
        self._exchange.give_back(taken)
        if self._league is not None:
            self._league.count(self._rollout)
        return self._rollout

    @torch.inference_mode()
    def _value(self) -> None:
        """Compute the values of the whole rollout with the learner's current weights."""
        self._learner.executor.refresh()
        value_rollout(self._learner.executor, self._rollout)

    def _carry_returns(self, trajectory: Trajectory, place: int) -> None:
        """Set the discounted returns from which the reward scaler continues for this trajectory.

        They are those after the last trajectory of the same actor, which may have been at another `place`.
        """
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

    def learned(self, update: int, step: int) -> None:
        if self._league is not None:
            self._league.after_update(update, step)
        wait_for_gpu(self._policy)  # here, so that actors need not wait
        self._exchange.publish(lambda: self._actors.weights.take(self._policy))

    def episodes(self) -> Episodes:
        ended = list(self._taken)
        while self._exchange.unlearned:  # actors may add to it at the same time
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
            **({} if self._league is None else self._league.metrics()),
        }

    def close(self) -> None:
        self._actors.close()


class Replayed(Asynchronous):
    """Runs the actors on this thread and repeats the events of a recorded schedule one after the other."""

    def __init__(
        self,
        actors: LocalActors,
        pool: ConcatenatedPool,
        learner: Learner,
        rollout: Rollout,
        schedule: Path,
        settings: dict[str, Any],
        league: League | None = None,
    ) -> None:
        """`settings` by name must equal those that the schedule was recorded with."""
        super().__init__(actors, pool, learner, rollout, league)
        self._players = actors
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
            self._players.begin()
            self._has_begun = True
        try:
            return self._load(self._follow())
        except ScheduleError as problem:
            raise ConfigError(f"the schedule '{self._path}' cannot be followed, line {self._line}: {problem}") from None

    def _follow(self) -> list[Trajectory]:
        """Repeat the events up to the next update, and those after it that do not need its weights.

        Returns the trajectories that this update learns from.
        """
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
                break  # played with the weights after this update
            else:
                self._check_version(event)
                self._players.do(event)
            self._go_on()
        if taken is None:
            raise ScheduleError("it ends here")
        return taken


# --- schedules


class ScheduleLog:
    """Writes events to a file, one a line; the first line holds the settings that a replay must share."""

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
    """Cut a schedule after its first `num_updates` updates, when a run is resumed from there."""
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
    """Read a schedule; returns its events with their line numbers, checked.

    `kind` is the key of the actors' events: play or round. `settings` must equal those in the first line.
    """
    try:
        lines = read_regular(path, _MAX_REPLAYED_BYTES, follow_links=True).decode().splitlines()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or an impossible path
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
    """Raise a ConfigError unless this run has the settings that the schedule was recorded with."""
    for name, value in recorded.items():
        if name == "env" and isinstance(value, str):
            value = placeless_name(value)  # older schedules have the whole path
        is_known = name in settings or name.startswith("env.")
        if is_known and settings.get(name) != value:
            shown = shortened(value).strip("'")
            flag = shown if name == "env" else f"--{name.replace('_', '-')} {shown}"
            here = f"{name} is {settings[name]}" if name in settings else f"there is no {name}"
            raise ConfigError(f"the schedule '{path}' was recorded with {flag}, and {here}; use {flag}")


def _problem_of(event: Any, num_actors: int, kind: str) -> str | None:
    """What is wrong with an event, in words; None if nothing is."""
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
