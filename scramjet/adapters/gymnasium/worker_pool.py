"""Gymnasium envs in worker processes: results in shared memory, a few bytes over a pipe to say that they are there.

The memory has no name and the workers end when their pipe closes: nothing is left behind, even by kill -9.
"""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.adapters.factories import pickled
from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.gymnasium import process, protocol
from scramjet.adapters.gymnasium.pool import GymPool, SerialPool
from scramjet.adapters.gymnasium.process import (
    AnyWorker,
    WorkerFailedError,
    WorkerProcess,
    WorkerStarter,
    end_all,
    first_to_answer,
)
from scramjet.adapters.gymnasium.rows import Ended, EnvFacts, MakeEnv, Renewed, RowArrays, check_same_spaces
from scramjet.adapters.gymnasium.worker import anonymous_memory, mapped, mapped_bytes
from scramjet.adapters.library import NamedWorld, OnError, PoolRequest
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import check_count
from scramjet.errors import ConfigError, WorldError
from scramjet.runtime.machine import available_cores

SHARE_SECONDS = 60e-6
"""Envs that step in less, one after the other, gain nothing by another process: telling it to takes as long."""
QUICK_SECONDS = 2e-3
"""Where all envs step in less, this process steps a share of them itself. That is faster; but nothing guards the share
against an env that hangs or ends its process."""

MOST_RESTARTS = 10
"""Restarts in a row without a step finished in between."""
STEPS_PER_RESTART = 100
"""Over a whole run an env may fail once more for every so many of its steps."""
TOLD_ONE_BY_ONE, THEN_EVERY = 3, 10
"""Which restarts are reported: the first ones, and then every so many."""


def fastest_pool(world: NamedWorld, make_env: MakeEnv, request: PoolRequest) -> ForeignPool:
    """The pool of single envs that was asked for; where nobody chose, the one that is fastest by how long a step takes:
    in this process, in worker processes, or in both."""
    num_envs, workers = request.num_envs, request.workers
    num_workers = workers.num_workers
    at_once = -(-num_envs // 2) if workers.in_halves else num_envs
    is_quick = workers.is_free and at_once * world.trial.seconds < QUICK_SECONDS
    if is_quick:
        shares = int(at_once * world.trial.seconds / SHARE_SECONDS) if request.learns and world.trial.can_be_sent else 1
        num_workers = min(available_cores(), at_once, shares)
    if num_workers == 0 or (is_quick and num_workers == 1):
        return SerialPool(world.name, make_env, num_envs)
    return WorkerPool(
        world.name,
        make_env,
        num_envs,
        num_workers=num_workers,
        timeout=workers.timeout,
        on_error=workers.on_error,
        gives_way=workers.apart,
        takes_part=is_quick,
    )


@dataclass(slots=True, eq=False)
class Share:
    """The part of a step under way that one worker does."""

    worker: int
    send: slice  # all rows of the step
    envs: tuple[int, int]  # of the worker's own envs the first that steps, and the one after the last
    ended: list[Ended] | None = None  # its episodes that ended; None until the worker has stepped


class WorkerPool(GymPool):
    """Envs of others, several in each process. Row r belongs to worker r modulo the number of workers, so whichever
    part of the rows steps, all workers have a share.

    `recv` without rows hands over the rows of the `send` that is ready first. An env that raises, hangs longer than
    `timeout` seconds or dies is an error with its traceback; with on_error="restart" it is made anew and its episode
    ends as truncated. With `takes_part` the first share of the envs is stepped by this process itself: quick ones are
    done before another would have told so.
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
        gives_way: bool = False,
        takes_part: bool = False,
    ) -> None:
        """`num_workers` counts this process too, if it `takes_part`. With `gives_way` workers have a lower priority
        than this process, which decides for all."""
        check_count("num_envs", num_envs)
        num_workers = min(num_envs, available_cores()) if num_workers is None else num_workers
        check_count("num_workers", num_workers)
        if num_workers > num_envs:
            raise ConfigError(f"num_workers={num_workers} but num_envs={num_envs}; use at most one worker an env")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
            raise ConfigError(f"timeout={timeout!r} must be a number of seconds above 0")
        if on_error not in ("fail", "restart"):
            raise ConfigError(f"on_error={on_error!r} must be 'fail' or 'restart'")
        restarts = on_error == "restart"
        if takes_part and restarts:
            raise ConfigError("takes_part=True leaves nobody to restart envs here; leave it out")
        self.name, self.is_guarded, self.num_workers = name, not takes_part, num_workers
        self._restarts = RestartCounter() if restarts else None
        factory, self._memory = pickled(name, make_env), anonymous_memory()
        self._starter = WorkerStarter(name, make_env, factory, self._memory, timeout, restarts, gives_way, takes_part)
        self._workers: list[AnyWorker] = []
        self._shares: list[Share] = []  # of all steps begun and not collected yet, in the order they were begun
        self._close = weakref.finalize(self, end_all, self._workers, self._memory, os.getpid())
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
        self._lost = LostEpisodes(self._rows) if restarts else None

    def _start_all(self, num_envs: int) -> EnvFacts:
        """Start all workers, and check that their envs have the same spaces."""
        for first in range(self.num_workers):
            self._workers.append(self._starter.start(range(first, num_envs, self.num_workers)))
        facts: list[EnvFacts] = [self._answer(worker) for worker in self._workers]
        for worker, its in zip(self._workers, facts, strict=True):
            check_same_spaces(self.name, worker.rows[0], its, 0, facts[0])
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
        self._shares.clear()
        given = pickle.dumps(seeds)
        for worker in self._workers:
            worker.ask(protocol.RESET, given)
        for i in range(self.num_workers):
            while not self._has_reset(i):
                self._workers[i].ask(protocol.RESET, given)
        if self._lost is not None:
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

    def _begin(self, rows: slice) -> None:
        self._check_open()
        stride = self.num_workers
        for i in range(stride):
            first = rows.start + (i - rows.start) % stride
            if first < rows.stop:
                envs = first // stride, first // stride + len(range(first, rows.stop, stride))
                self._shares.append(Share(i, rows, envs))
                self._workers[i].ask(protocol.STEP, b"", *envs)

    def _finish(self, rows: slice) -> Iterable[Ended]:
        shares = [share for share in self._shares if share.send == rows]
        for share in shares:
            while share.ended is None:
                self._take_answer(share.worker)
        self._shares = [share for share in self._shares if share.send != rows]
        if self._lost is not None:
            self._lost.truncate(rows)
            self._lost.remember(rows)
        return [one for share in shares for one in share.ended or ()]

    def _take_answer(self, i: int) -> None:
        """Wait for worker i's oldest step and keep what it says of it."""
        share = next(share for share in self._shares if share.worker == i and share.ended is None)
        share.ended = self._step_answer(i)

    def _step_answer(self, i: int) -> list[Ended]:
        """Wait for worker i's oldest step; returns its episodes that ended. Restarts it or raises where it fails."""
        try:
            said = self._workers[i].answer()
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
        assert self._restarts is not None
        assert self._lost is not None
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
        if self._lost is None:
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

    def _ready_first(self) -> slice:
        """Of the sends under way the one whose workers have all stepped first."""
        if not self._under_way:
            raise ConfigError("recv() without send(): no row has an action; call send() first")
        while True:
            for send in self._under_way.sends:
                assert isinstance(send, slice)
                if all(share.ended is not None for share in self._shares if share.send == send):
                    return send
            for i in first_to_answer(self._workers):
                self._take_answer(i)

    @property
    def waiting(self) -> list[tuple[int, float]]:
        return [(worker.answers, worker.seconds_left) for worker in self._processes if worker.asked]

    @property
    def _processes(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if isinstance(worker, WorkerProcess)]

    @property
    def worker_pids(self) -> list[int]:
        """The process of each worker."""
        return [worker.pid for worker in self._processes]

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
            worker.wait_closed(process.CLOSING_SECONDS)
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

    def close(self) -> None:
        """End all workers; again does nothing. Done by itself when the pool is forgotten and when Python ends."""
        self._close()


# --- envs that fail and are restarted


class LostEpisodes:
    """Episodes that end with the worker process that played them: what each row showed last, and whether its episode is
    lost and not handed over as truncated yet."""

    def __init__(self, rows: RowArrays) -> None:
        """`rows`: where envs write their results."""
        self._rows = rows
        self._last_seen = tuple(np.zeros_like(leaf) for leaf in rows.obs)
        self._finished_steps = np.zeros(len(rows.reward), np.int64)
        self._is_lost = np.zeros(len(rows.reward), np.bool_)

    def remember(self, rows: slice) -> None:
        """Keep what these rows show after a step or a reset: all that is left of an episode whose worker dies."""
        self._finished_steps[rows] += 1
        for last, now in zip(self._last_seen, self._rows.obs, strict=True):
            last[rows] = now[rows]

    def finished_steps(self, rows: range) -> int:
        """Maximum number of steps and resets that an env of these rows has finished since the start."""
        return int(self._finished_steps[rows.start : rows.stop : rows.step].max())

    def add(self, rows: range) -> None:
        """The worker of these rows was restarted: their episodes are lost."""
        self._is_lost[rows.start :: rows.step] = True

    def truncate(self, rows: slice) -> None:
        """Of these rows, write those that are lost as truncated, with what was seen last."""
        if True not in self._is_lost.tobytes():  # of few envs, any() takes longer
            return
        lost = rows.start + np.flatnonzero(self._is_lost[rows])
        self._rows.reward[lost], self._rows.terminated[lost], self._rows.truncated[lost] = 0.0, False, True
        for final, last in zip(self._rows.final_obs, self._last_seen, strict=True):
            final[lost] = last[lost]
        self._is_lost[lost] = False

    def forget(self) -> None:
        """All envs were reset: no episode is lost any more."""
        self._is_lost[:] = False


class RestartCounter:
    """Counts the restarts of a pool; envs that fail together, those of one worker, are counted by their rows."""

    def __init__(self) -> None:
        self.total = 0
        self._failures: dict[range, int] = {}
        self._streaks: dict[range, tuple[int, int]] = {}  # steps finished at the last restart; restarts in a row

    def note(self, rows: range, finished: int, problem: str) -> str:
        """Count a restart of the envs of `rows`, which have `finished` so many steps.

        Returns what to tell the user, "" for nothing; raises a WorldError where the envs fail too often to go on.
        """
        self.total += 1
        last, in_a_row = self._streaks.get(rows, (-2, 0))
        in_a_row = in_a_row + 1 if finished - last <= 1 else 1  # the step that failed counts as finished
        self._streaks[rows] = (finished, in_a_row)
        failures = self._failures[rows] = self._failures.get(rows, 0) + 1
        if in_a_row > MOST_RESTARTS:
            raise WorldError(f"restarted {MOST_RESTARTS} times in a row, and failed again: {problem}")
        if failures > MOST_RESTARTS + finished / STEPS_PER_RESTART:
            raise WorldError(f"restarted {failures - 1} times in {finished} steps, and failed again: {problem}")
        is_told = self.total <= TOLD_ONE_BY_ONE or self.total % THEN_EVERY == 0
        return f"restarted: {problem.splitlines()[0]} (restart {self.total})" if is_told else ""
