"""The workers of one pool: how each is started, which of them answers first, and how all are ended."""

from __future__ import annotations

import os
import pickle
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass

from scramjet.adapters.gymnasium.env_results import MakeEnv
from scramjet.adapters.gymnasium.workers import protocol
from scramjet.adapters.gymnasium.workers.local import LocalWorker
from scramjet.adapters.gymnasium.workers.process import CLOSING_SECONDS, WorkerProcess
from scramjet.envs.beside import ImportPaths

AnyWorker = WorkerProcess | LocalWorker


@dataclass(frozen=True, slots=True)
class WorkerStarter:
    """Starts the workers of a pool."""

    name: str
    make_env: MakeEnv
    factory: bytes  # `make_env` as worker processes receive it
    memory: int  # descriptor of the memory that results are written to
    timeout: float
    renews: bool  # whether an env that raises is made anew
    gives_way: bool  # whether workers have a lower priority than this process
    takes_part: bool  # whether this process steps the envs of the first worker itself

    def start(self, rows: range) -> AnyWorker:
        """The worker of these rows, told to make its envs; its answer is their `EnvFacts`."""
        if not self.takes_part or rows.start != 0:
            return self.start_process(rows)
        local = LocalWorker(self.name, self.make_env, rows, self.memory)
        local.ask(protocol.START)
        return local

    def start_process(self, rows: range) -> WorkerProcess:
        """A process of its own for these rows, told to make its envs."""
        worker = WorkerProcess(
            self.name, rows, self.memory, self.timeout, gives_way=self.gives_way, looks_out=self.takes_part
        )
        start = (ImportPaths.here(), self.name, self.factory, rows, self.renews)
        worker.ask(protocol.START, pickle.dumps(start))
        return worker


def first_to_answer(workers: Sequence[AnyWorker]) -> list[int]:
    """Wait for workers that have a command; the numbers of those that have answered, or of one that is hung."""
    asked = [(i, worker) for i, worker in enumerate(workers) if worker.asked]
    local = [i for i, worker in asked if isinstance(worker, LocalWorker)]
    if local:
        return local
    waiting = {worker.answers: i for i, worker in asked if isinstance(worker, WorkerProcess)}
    left = {i: workers[i].seconds_left for i in waiting.values()}
    poller = select.poll()
    for descriptor in waiting:
        poller.register(descriptor, select.POLLIN)
    found = [waiting[descriptor] for descriptor, _ in protocol.wait_for(poller, min(left.values()))]
    return found or [min(left, key=lambda i: left[i])]


def end_all(workers: Sequence[AnyWorker], memory: int, owner: int) -> None:
    """End all workers and close their memory, if this is the process `owner` and not a fork of it."""
    if os.getpid() != owner:
        return
    for worker in reversed(workers):  # what this process has itself comes last, as it is waited for
        worker.ask_to_close()
    deadline = time.monotonic() + CLOSING_SECONDS
    for worker in workers:
        worker.wait_closed(max(0.0, deadline - time.monotonic()))
    os.close(memory)
