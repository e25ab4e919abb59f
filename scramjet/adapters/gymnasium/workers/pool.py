"""Gymnasium envs in worker processes: results in shared memory, a few bytes over a pipe to say that they are there.

Row r belongs to worker r modulo the number of workers, so whichever part of the rows steps, all workers have a share.
The memory has no name and the workers end when their pipe closes: nothing is left behind, even by kill -9.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import tempfile
import time
import weakref
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from scramjet.adapters.gymnasium.pool import GymPool, Rows
from scramjet.adapters.gymnasium.runner import Ended, EnvFacts, MakeEnv, Renewed, check_same_spaces
from scramjet.adapters.gymnasium.workers import protocol
from scramjet.adapters.gymnasium.workers.local import LocalWorker
from scramjet.adapters.gymnasium.workers.process import CLOSING_SECONDS, WorkerFailedError, WorkerProcess
from scramjet.adapters.gymnasium.workers.restarts import Restarts
from scramjet.adapters.gymnasium.workers.worker import mapped, mapped_bytes
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.pool import Batch, check_count
from scramjet.envs.beside import ImportPaths
from scramjet.errors import ConfigError, WorldError
from scramjet.runtime.machine.cores import available_cores

OnError = Literal["fail", "restart"]


class WorkerPool(GymPool):
    """Envs of others, several in each process.

    `step`, parts of steps, or `send` and `recv`: with `batch_size` the latter hands over the first so many rows that
    are ready. An env that raises, hangs longer than `timeout` seconds or dies is an error with its traceback; with
    on_error="restart" it is made anew and its episode ends as truncated. With `takes_part` the first share of the envs
    is stepped by this process itself: quick ones are done before another would have told so.
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
        """`num_workers` with this process, where it `takes_part`. `gives_way`: where cores are short, to the process
        that decides for all."""
        check_count("num_envs", num_envs)
        num_workers = min(num_envs, available_cores()) if num_workers is None else num_workers
        _check_settings(num_envs, num_workers, timeout, on_error, batch_size)
        if takes_part and (on_error == "restart" or (batch_size or num_envs) < num_envs):
            raise ConfigError("takes_part=True leaves nobody to restart envs here or to see who is first; leave it out")
        self.num_workers, self.batch_size = num_workers, batch_size or num_envs
        self._restarts = Restarts()
        self._make_env, self._factory = make_env, pickled(name, make_env)
        self._timeout, self._on_error, self._gives_way, self._takes_part = timeout, on_error, gives_way, takes_part
        self._memory = _anonymous_memory()
        self._workers: list[WorkerProcess | LocalWorker] = []
        self._close = weakref.finalize(self, _end, self._workers, self._memory, os.getpid())
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
        self._last_seen = tuple(np.zeros_like(leaf) for leaf in self._rows.obs)
        self._finished_steps = np.zeros(num_envs, np.int64)  # since the start; counted where restarts are
        self._lost = np.zeros(num_envs, np.bool_)  # episodes that ended with their worker, not yet told
        self._sent = np.zeros(num_envs, np.bool_)  # rows with actions that were not received

    def _start_all(self, num_envs: int) -> EnvFacts:
        for first in range(self.num_workers):
            self._workers.append(self._started(range(first, num_envs, self.num_workers)))
        facts: list[EnvFacts] = [self._answer(worker) for worker in self._workers]
        first_spaces = (facts[0].observation_space, facts[0].action_space)
        for worker, its in zip(self._workers, facts, strict=True):
            given = (its.observation_space, its.action_space)
            check_same_spaces(self.name, worker.rows[0], given, 0, first_spaces)
        return facts[0]

    def _started(self, rows: range) -> WorkerProcess | LocalWorker:
        if self._takes_part and rows.start == 0:
            share = LocalWorker(self.name, self._make_env, rows, self._memory)
            share.ask(protocol.START)
            return share
        return self._process(rows)

    def _process(self, rows: range) -> WorkerProcess:
        worker = WorkerProcess(
            self.name, rows, self._memory, self._timeout, gives_way=self._gives_way, looks_out=self._takes_part
        )
        start = (ImportPaths.here(), self.name, self._factory, rows, self._on_error == "restart")
        worker.ask(protocol.START, pickle.dumps(start))
        return worker

    def _answer(self, worker: WorkerProcess | LocalWorker) -> Any:
        """Where there is no other way than to fail."""
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
        self._sent[:] = False
        given = pickle.dumps(seeds)
        for worker in self._workers:
            worker.ask(protocol.RESET, given)
        for i in range(self.num_workers):
            while not self._has_reset(i):
                self._workers[i].ask(protocol.RESET, given)
        self._lost[:] = False
        self._remember(slice(None))

    def _has_reset(self, i: int) -> bool:
        """Whether worker i did; it may have died since it last stepped, and is restarted then, if that is wanted."""
        try:
            self._workers[i].answer()
        except WorkerFailedError as failure:
            self._restart(i, failure)
            return False
        return True

    def _share(self, worker: WorkerProcess | LocalWorker, rows: slice) -> tuple[int, int]:
        """Which of a worker's envs are among neighbouring rows: the first, and the one after the last."""
        first, stride = worker.rows[0], self.num_workers
        return max(0, -(-(rows.start - first) // stride)), max(0, -(-(rows.stop - first) // stride))

    def _begin(self, rows: slice) -> None:
        self._check_open()
        for worker in self._workers:
            start, stop = self._share(worker, rows)
            if start < stop:
                worker.ask(protocol.STEP, b"", start, stop)

    def _finish(self, rows: slice) -> Iterable[Ended]:
        told: list[Ended] = []
        for i in range(self.num_workers):
            start, stop = self._share(self._workers[i], rows)
            if start < stop:
                told += self._step_answer(i)
        self._tell_lost(np.arange(rows.start, rows.stop))
        self._remember(rows)
        return told

    def _step_answer(self, i: int) -> list[Ended]:
        """Worker i's answer to its oldest step; one that fails is restarted, if that is wanted."""
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
        """Say so, or give up."""
        try:
            told = self._restarts.note(rows, max(int(self._finished_steps[row]) for row in rows), problem)
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
        self._lost[old.rows.start :: old.rows.step] = True
        for step in old.asked:  # waited for elsewhere, and the new envs' now
            new.ask(step.kind, b"", step.first, step.last)

    def _begun_anew(self, i: int) -> WorkerProcess | WorkerFailedError:
        """A new process for worker i's envs, reset; or why there is none."""
        new = self._workers[i] = self._process(self._workers[i].rows)
        try:
            new.answer()
            for kind, given in ((protocol.BIND, self._row_layout), (protocol.RESET, self._fresh_seeds())):
                new.ask(kind, pickle.dumps(given))
                new.answer()
        except WorkerFailedError as failure:
            new.kill()
            return failure
        return new

    def _fresh_seeds(self) -> EpisodeSeed:
        return self._seeds.after("restarted", self._tick, self.restarts)

    def _tell_lost(self, rows: np.ndarray) -> None:
        """Mark as truncated what ended with its worker."""
        lost = rows[self._lost[rows]]
        if len(lost):
            self._rows.reward[lost], self._rows.terminated[lost], self._rows.truncated[lost] = 0.0, False, True
            for final, last in zip(self._rows.final_obs, self._last_seen, strict=True):
                final[lost] = last[lost]
            self._lost[lost] = False

    def _remember(self, rows: Rows) -> None:
        """What was seen last: all that is left of an episode whose worker dies."""
        if self._on_error == "restart":
            self._finished_steps[rows] += 1
            for last, now in zip(self._last_seen, self._rows.obs, strict=True):
                last[rows] = now[rows]

    def send(self, actions: np.ndarray, rows: slice | np.ndarray | None = None) -> None:
        """Actions [len(rows), ...] of all envs of some workers, such as the rows that `recv` handed over."""
        given = np.arange(self.num_rows)[slice(None) if rows is None else rows]
        self._check_actions(actions, (len(given), *self._action_shape[1:]))
        chosen = np.unique(given % self.num_workers)
        whole = sum(len(self._workers[i].rows) for i in chosen.tolist())
        if len(np.unique(given)) != len(given) or whole != len(given):
            raise ConfigError(
                f"rows={given.tolist()[:8]} are not all rows of their workers: row r is worker r % {self.num_workers}'s"
            )
        if self._sent[given].any():
            raise ConfigError("some of these rows have actions already: call recv() first")
        self._refuse_parts("send()")
        self._rows.action[given] = actions
        self._sent[given] = True
        for i in chosen.tolist():
            self._workers[i].ask(protocol.STEP, b"", 0, len(self._workers[i].rows))

    def recv(self) -> Batch:
        """The first `batch_size` rows that are ready, in the order their workers finished (all: in their own order)."""
        if self._sent.sum() < self.batch_size:
            raise ConfigError(
                f"recv() waits for {self.batch_size} rows, and {int(self._sent.sum())} have actions: call send() first"
            )
        told: list[Ended] = []
        ready: list[int] = []
        while sum(len(self._workers[i].rows) for i in ready) < self.batch_size:
            for i in self._first_ready(ready)[: self._workers_needed(ready)]:
                told += self._step_answer(i)
                ready.append(i)
        if self.batch_size == self.num_envs:
            rows = np.arange(self.num_rows)
        else:
            rows = np.concatenate([np.arange(self.num_rows)[i :: self.num_workers] for i in ready])
        self._tell_lost(rows)
        self._remember(rows)
        self._sent[rows] = False
        self._tick += bool((rows == 0).any())
        out = self.allocate().part(slice(0, len(rows)))
        self._write(rows, slice(0, len(rows)), out, told)
        return Batch(slice(0, self.num_rows) if self.batch_size == self.num_envs else rows, out)

    @property
    def answering(self) -> list[tuple[int, float]]:
        return [(worker.answers, worker.seconds_left) for worker in self._processes if worker.asked]

    @property
    def _processes(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers if isinstance(worker, WorkerProcess)]

    def _workers_needed(self, ready: list[int]) -> int:
        if self.batch_size == self.num_envs:
            return self.num_workers
        return self.batch_size // (self.num_envs // self.num_workers) - len(ready)

    def _first_ready(self, without: list[int]) -> list[int]:
        """Workers that have answered, or will not; waits for the first."""
        asked = [(i, w) for i, w in enumerate(self._workers) if w.asked and i not in without]
        mine = [i for i, worker in asked if isinstance(worker, LocalWorker)]
        if mine:
            return mine
        waiting = {worker.answers: i for i, worker in asked if isinstance(worker, WorkerProcess)}
        left = {i: self._workers[i].seconds_left for i in waiting.values()}
        poller = select.poll()
        for descriptor in waiting:
            poller.register(descriptor, select.POLLIN)
        found = [waiting[descriptor] for descriptor, _ in protocol.wait_for(poller, min(left.values()))]
        return found or [min(left, key=lambda i: left[i])]

    def _refuse_parts(self, what: str) -> None:
        super()._refuse_if_busy(what)

    def _refuse_if_busy(self, what: str) -> None:
        super()._refuse_if_busy(what)
        if self._sent.any():
            raise ConfigError(f"{what} while envs step: call recv() first")

    def call(self, row: int, method: str) -> Any:
        """What a method of one env returns; for what Gymnasium's interface does not have."""
        self._check_open()
        worker = self._workers[row % self.num_workers]
        worker.ask(protocol.CALL, pickle.dumps(method), row // self.num_workers)
        return self._answer(worker)

    def _try_saving(self) -> str | None:
        worker = self._process(range(2))  # one of its own: whatever comes of it, the pool goes on
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


def _end(workers: list[WorkerProcess | LocalWorker], memory: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the process that has the workers
    for worker in reversed(workers):  # what this process has itself comes last, as it is waited for
        worker.ask_to_close()
    deadline = time.monotonic() + CLOSING_SECONDS
    for worker in workers:
        worker.wait_closed(max(0.0, deadline - time.monotonic()))
    os.close(memory)


def _check_settings(num_envs: int, num_workers: int, timeout: float, on_error: str, batch_size: int | None) -> None:
    check_count("num_workers", num_workers)
    if num_workers > num_envs:
        raise ConfigError(f"num_workers={num_workers} but num_envs={num_envs}; use at most one worker an env")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ConfigError(f"timeout={timeout!r} must be a number of seconds above 0")
    if on_error not in ("fail", "restart"):
        raise ConfigError(f"on_error={on_error!r} must be 'fail' or 'restart'")
    if batch_size is None:
        return
    check_count("batch_size", batch_size)
    share = num_envs // num_workers
    if batch_size > num_envs or (batch_size < num_envs and (num_envs % num_workers or batch_size % share)):
        raise ConfigError(
            f"batch_size={batch_size} must be the envs of whole workers, and num_envs={num_envs} split evenly over "
            f"num_workers={num_workers}; num_workers={num_envs} allows any"
        )


def can_be_sent(make_env: MakeEnv) -> bool:
    """Whether other processes can make these envs."""
    try:
        pickled("", make_env)
    except ConfigError:
        return False
    return True


def pickled(name: str, make_env: MakeEnv) -> bytes:
    """A factory as worker processes receive it; by value where it stands in a script or a notebook."""
    import cloudpickle  # type: ignore[import-untyped]

    if not callable(make_env):
        raise ConfigError(f"make_env={make_env!r} must be a function that makes a gymnasium.Env")
    try:
        factory: bytes = cloudpickle.dumps(make_env)
    except Exception as error:
        raise ConfigError(
            f"{name}: the factory {_name_of(make_env)!r} cannot be sent to worker processes "
            f"({type(error).__name__}: {error}); make it a function at the top of a module that opens files, locks, "
            f"sockets and the env itself when it is called, or step all envs in this process: --num-workers 0 (with "
            f"--mode async there is no such way)"
        ) from error
    return factory


def _name_of(make_env: Any) -> str:
    """Of a function, also where it comes with its arguments."""
    inner = next((word for word in getattr(make_env, "args", ()) if callable(word)), make_env)
    return str(getattr(inner, "__name__", inner))


def _anonymous_memory() -> int:
    """A descriptor of memory without a name, which is gone with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("scramjet")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
