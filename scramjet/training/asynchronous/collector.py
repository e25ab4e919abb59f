"""Collects rollouts from actors that play beside the learner, or that replay a recorded schedule on this thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from scramjet.engine.pool import Episodes
from scramjet.engine.wrappers.concatenated_pool import ConcatenatedPool, concatenate_episodes
from scramjet.errors import ConfigError
from scramjet.training.asynchronous.actors import Actors, LocalActors, wait_for_gpu
from scramjet.training.asynchronous.schedule import read_schedule
from scramjet.training.asynchronous.trajectories import ScheduleError, Trajectory
from scramjet.training.collector import Collector
from scramjet.training.learner import Learner
from scramjet.training.rollout.acting import value_rollout
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.self_play.league import League


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
