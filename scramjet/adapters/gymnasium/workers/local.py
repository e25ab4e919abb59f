"""Some of a pool's envs in this process, in place of a worker process.

Where steps are quick, the process that waits for workers is faster if it steps some envs itself.
"""

from __future__ import annotations

import math
import pickle
from collections import deque
from typing import Any

from scramjet.adapters.gymnasium.env_results import EnvFailedError, MakeEnv
from scramjet.adapters.gymnasium.runner import GymRows
from scramjet.adapters.gymnasium.workers.process import PendingCommand, WorkerFailedError
from scramjet.adapters.gymnasium.workers.worker import Worker
from scramjet.errors import ScramjetError


class LocalWorker:
    """Has the methods of a `WorkerProcess`, without a process: a command is carried out in `answer`."""

    seconds_left = math.inf

    def __init__(self, name: str, make_env: MakeEnv, rows: range, memory: int) -> None:
        self.name, self.rows = name, rows
        self._make_env, self._memory = make_env, memory
        self._worker: Worker | None = None
        self._commands: deque[tuple[int, int, int, bytes]] = deque()

    @property
    def asked(self) -> list[PendingCommand]:
        """Commands that have no answer yet, oldest first."""
        return [PendingCommand(kind, first, last) for kind, first, last, _ in self._commands]

    def ask(self, kind: int, payload: bytes = b"", first: int = 0, last: int = 0) -> None:
        """Keep a command for `answer`."""
        self._commands.append((kind, first, last, payload))

    def answer(self) -> Any:
        """Carry out the oldest command and return its answer."""
        command = self._commands.popleft()
        try:
            if self._worker is None:
                envs = GymRows(self.name, self._make_env, self.rows)
                self._worker = Worker(self._memory, envs)
                return envs.facts
            said = self._worker.do(*command)
        except (EnvFailedError, ScramjetError) as error:
            raise WorkerFailedError(str(error)) from error
        return pickle.loads(said) if said else None

    def ask_to_close(self) -> None:
        """Close its envs."""
        if self._worker is not None:
            self._worker.close()

    def wait_closed(self, seconds: float) -> None:
        """Nothing to wait for: `ask_to_close` has closed the envs."""
