"""Gymnasium envs in worker processes: results in shared memory, a few bytes over a pipe to say that they are there.

The memory has no name and the workers end when their pipe closes: nothing is left behind, even by kill -9.
"""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from scramjet.adapters.factories import pickled
from scramjet.adapters.gymnasium.env_results import Ended, EnvFacts, MakeEnv, Renewed, check_same_spaces
from scramjet.adapters.gymnasium.pool import GymPool
from scramjet.adapters.gymnasium.workers import protocol
from scramjet.adapters.gymnasium.workers.group import AnyWorker, WorkerStarter, end_all, first_to_answer
from scramjet.adapters.gymnasium.workers.lost_episodes import LostEpisodes
from scramjet.adapters.gymnasium.workers.process import CLOSING_SECONDS, WorkerFailedError, WorkerProcess
from scramjet.adapters.gymnasium.workers.restart_counter import RestartCounter
from scramjet.adapters.gymnasium.workers.settings import check_settings
from scramjet.adapters.gymnasium.workers.shared_memory import anonymous_memory, mapped, mapped_bytes
from scramjet.adapters.gymnasium.workers.shares import Share, Shares
from scramjet.adapters.library import OnError
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Rows, check_count
from scramjet.errors import ConfigError, WorldError
from scramjet.runtime.machine import available_cores


class WorkerPool(GymPool):
    """Envs of others, several in each process.

    `recv` without rows hands over the rows of the `send` that is ready first; with `batch_size`, the first so many rows
    whose workers are ready. An env that raises, hangs longer than `timeout` seconds or dies is an error with its
    traceback; with on_error="restart" it is made anew and its episode ends as truncated. With `takes_part` the first
    share of the envs is stepped by this process itself: quick ones are done before another would have told so.
    """

    def __init__(
        self,
        name: str,
        make_env: MakeEnv,
        num_envs: int,
        *,
        num_workers: int | None = None,
        timeout: float = 60.0,
        on_error: OnError = "fail",
        batch_size: int | None = None,
        gives_way: bool = False,
        takes_part: bool = False,
    ) -> None:
        """`num_workers` counts this process too, if it `takes_part`. With `gives_way` workers have a lower priority
        than this process, which decides for all."""
        check_count("num_envs", num_envs)
        num_workers = min(num_envs, available_cores()) if num_workers is None else num_workers
        check_settings(num_envs, num_workers, timeout, on_error, batch_size)
        if takes_part and (on_error == "restart" or (batch_size or num_envs) < num_envs):
            raise ConfigError("takes_part=True leaves nobody to restart envs here or to see who is first; leave it out")
        self.num_workers, self.batch_size = num_workers, None if batch_size == num_envs else batch_size
        self._hands_over_parts = self.batch_size is not None
        self._restarts = RestartCounter()
        self._on_error, factory, self._memory = on_error, pickled(name, make_env), anonymous_memory()
        self._starter = WorkerStarter(
            name, make_env, factory, self._memory, timeout, on_error == "restart", gives_way, takes_part
        )
        self._workers: list[AnyWorker] = []
        self._close = weakref.finalize(self, end_all, self._workers, self._memory, os.getpid())
        self.name, self.is_guarded = name, not takes_part
        others = num_workers - takes_part
        self.processes = f"{others} worker process{'es' * (others > 1)}{' and this one' * takes_part}"
        try:
            facts = self._start_all(num_envs)
            super().__init__(name, facts, num_envs)
            size = mapped_bytes(self._row_layout)
            os.ftruncate(self._memory, size)
            self._rows = mapped(mmap.mmap(self._memory, size), self._row_layout)
            self._rows.mask[:] = True
            self._ask_all(protocol.BIND, [self._row_layout] * num_workers)
        except BaseException:
            self.close()
            raise
        self._lost = LostEpisodes(self._rows, is_used=on_error == "restart")
        self._shares = Shares(num_envs, num_workers)

    def _start_all(self, num_envs: int) -> EnvFacts:
        """Start all workers, and check that their envs have the same spaces."""
        for first in range(self.num_workers):
            self._workers.append(self._starter.start(range(first, num_envs, self.num_workers)))
        facts: list[EnvFacts] = [self._answer(worker) for worker in self._workers]
        first_spaces = (facts[0].observation_space, facts[0].action_space)
        for worker, its in zip(self._workers, facts, strict=True):
            given = (its.observation_space, its.action_space)
            check_same_spaces(self.name, worker.rows[0], given, 0, first_spaces)
        return facts[0]

    def _answer(self, worker: AnyWorker) -> Any:
        """The answer to a worker's oldest command; where it fails, the pool is closed and the failure raised."""
        try:
            return worker.answer()
        except WorkerFailedError as failure:
            self.close()
            raise WorldError(str(failure)) from None

    def _check_open(self) -> None:
        if not self._close.alive:
            raise ConfigError(f"this pool of {self.name} was closed; make a new one")

    def _ask_all(self, kind: int, given: list[Any]) -> list[Any]:
        self._check_open()
        for worker, its in zip(self._workers, given, strict=True):
            worker.ask(kind, b"" if its is None else pickle.dumps(its))
        return [self._answer(worker) for worker in self._workers]

    def _reset_envs(self, seeds: EpisodeSeed) -> None:
        self._check_open()
        for i in range(self.num_workers):  # what was begun is not wanted any more
            while self._workers[i].asked:
                self._step_answer(i)
        self._shares.under_way.clear()
        given = pickle.dumps(seeds)
        for worker in self._workers:
            worker.ask(protocol.RESET, given)
        for i in range(self.num_workers):
            while not self._has_reset(i):
                self._workers[i].ask(protocol.RESET, given)
        self._lost.forget()
        self._lost.remember(slice(None))

    def _has_reset(self, i: int) -> bool:
        """Whether worker i has reset its envs; if it died since it last stepped, it is restarted or an error raised."""
        try:
            self._workers[i].answer()
        except WorkerFailedError as failure:
            self._restart(i, failure)
            return False
        return True

    def _sendable(self, rows: Rows | None) -> Rows:
        return self._shares.sendable(rows)

    def _receivable(self, rows: Rows) -> Rows:
        return self._shares.receivable(rows)

    def _begin(self, rows: Rows) -> None:
        self._check_open()
        for share in self._shares.divide(rows):
            self._workers[share.worker].ask(protocol.STEP, b"", *share.envs)

    def _finish(self, rows: Rows) -> Iterable[Ended]:
        shares = self._shares.of_rows(rows)
        for share in shares:
            while share.ended is None:
                self._take_answer(share.worker)
        self._shares.remove(shares)
        self._lost.truncate(rows)
        self._lost.remember(rows)
        return [one for share in shares for one in share.ended or ()]

    def _take_answer(self, i: int) -> Share:
        """Wait for worker i's oldest step and keep what it says of it."""
        share = self._shares.oldest_of(i)
        share.ended = self._step_answer(i)
        return share

    def _step_answer(self, i: int) -> list[Ended]:
        """Wait for worker i's oldest step; returns its episodes that ended. Restarts it or raises where it fails."""
        worker = self._workers[i]
        try:
            said = worker.answer()
        except WorkerFailedError as failure:
            self._restart(i, failure)
            return []
        if said is None:
            return []
        ended: list[Ended] = said[0]
        renewed: list[Renewed] = said[1]
        for one in renewed:
            self._note_restart(range(one.row, one.row + 1), one.problem)
        return ended

    def _note_restart(self, rows: range, problem: str) -> None:
        """Count a restart and tell the user; where they are too many, close the pool and raise."""
        try:
            told = self._restarts.note(rows, self._lost.finished_steps(rows), problem)
        except WorldError:
            self.close()
            raise
        finally:
            self.restarts = self._restarts.total
        if told:
            self.say(told)

    def _restart(self, i: int, failure: WorkerFailedError) -> None:
        """A new process in place of one that failed; the episodes of all its envs end as truncated."""
        old = self._workers[i]
        if self._on_error == "fail":
            self.close()
            raise WorldError(str(failure)) from None
        assert isinstance(old, WorkerProcess)
        old.kill()
        self._note_restart(old.rows, str(failure))
        new = self._begun_anew(i)
        while isinstance(new, WorkerFailedError):  # it may fail as it starts, too
            self._note_restart(old.rows, str(new))
            new = self._begun_anew(i)
        self._lost.add(old.rows)
        for step in old.asked:  # waited for elsewhere, and the new envs' now
            new.ask(step.kind, b"", step.first, step.last)

    def _begun_anew(self, i: int) -> WorkerProcess | WorkerFailedError:
        """A new process for worker i's envs, reset; or why there is none."""
        new = self._workers[i] = self._starter.start_process(self._workers[i].rows)
        fresh_seeds = self._seeds.after("restarted", self._tick, self.restarts)
        try:
            new.answer()
            for kind, given in ((protocol.BIND, self._row_layout), (protocol.RESET, fresh_seeds)):
                new.ask(kind, pickle.dumps(given))
                new.answer()
        except WorkerFailedError as failure:
            new.kill()
            return failure
        return new

    def _ready_first(self) -> Rows:
        """Of the sends under way the one whose workers have all stepped first; with `batch_size`, so many rows of the
        workers that have, in the order they did."""
        if not self._under_way:
            raise ConfigError("recv() without send(): no row has an action; call send() first")
        if self.batch_size is not None:
            return self._first_rows(self.batch_size)
        while True:
            for send in self._under_way.sends:
                if self._shares.has_stepped(send):
                    return send
            for i in first_to_answer(self._workers):
                self._take_answer(i)

    def _first_rows(self, count: int) -> np.ndarray:
        """At least so many rows, of the workers that step first."""
        num_sent = sum(len(share.rows) for share in self._shares.under_way)
        if num_sent < count:
            raise ConfigError(f"recv() waits for {count} rows, and {num_sent} have actions: call send() first")
        ready = [share for share in self._shares.under_way if share.ended is not None]
        while sum(len(share.rows) for share in ready) < count:
            ready += [self._take_answer(i) for i in first_to_answer(self._workers)]
        rows: list[int] = []
        for share in ready:
            if len(rows) < count:
                rows += share.rows
        return np.array(rows)

    @property
    def waiting(self) -> list[tuple[int, float]]:
        return [(worker.answers, worker.seconds_left) for worker in self._processes if worker.asked]

    @property
    def _processes(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if isinstance(worker, WorkerProcess)]

    def call(self, row: int, method: str) -> Any:
        """What a method of one env returns; for what Gymnasium's interface does not have."""
        self._check_open()
        worker = self._workers[row % self.num_workers]
        worker.ask(protocol.CALL, pickle.dumps(method), row // self.num_workers)
        return self._answer(worker)

    def _try_saving(self) -> str | None:
        worker = self._starter.start_process(range(2))  # one of its own: whatever comes of it, the pool goes on
        try:
            worker.answer()
            worker.ask(protocol.TRY_SAVING)
            why: str | None = worker.answer()
            worker.ask_to_close()
            worker.wait_closed(CLOSING_SECONDS)
        except WorkerFailedError as failure:
            return str(failure)
        finally:
            worker.kill()
        return why

    def _capture(self) -> list[bytes]:
        states: list[bytes] = [b""] * self.num_envs
        for i, its in enumerate(self._ask_all(protocol.CAPTURE, [None] * self.num_workers)):
            states[i :: self.num_workers] = its
        return states

    def _put_back(self, states: list[bytes], seeds: EpisodeSeed) -> str | None:
        given = [(states[i :: self.num_workers], seeds) for i in range(self.num_workers)]
        problems = self._ask_all(protocol.RESTORE, given)
        return next((problem for problem in problems if problem is not None), None)

    @property
    def worker_pids(self) -> list[int]:
        """The process of each worker."""
        return [worker.pid for worker in self._processes]

    def close(self) -> None:
        """End all workers; again does nothing. Done by itself when the pool is forgotten and when Python ends."""
        self._close()
