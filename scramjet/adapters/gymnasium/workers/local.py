"""A share of a pool's envs in this process, in the place of a worker process.

Where steps are quick, whoever waits for workers may as well step some envs itself.
"""

from __future__ import annotations

import math
import pickle
from collections import deque
from typing import Any

from scramjet.adapters.gymnasium.env_results import EnvFailedError, MakeEnv
from scramjet.adapters.gymnasium.runner import GymRows
from scramjet.adapters.gymnasium.workers.process import Question, WorkerFailedError
from scramjet.adapters.gymnasium.workers.worker import Worker
from scramjet.errors import ScramjetError


class LocalWorker:
    """Is asked and answers as a `WorkerProcess` does; what was asked is done when the answer is wanted."""

    seconds_left = math.inf

    def __init__(self, name: str, make_env: MakeEnv, rows: range, memory: int) -> None:
        self.name, self.rows = name, rows
        self._make_env, self._memory = make_env, memory
        self._worker: Worker | None = None
        self._commands: deque[tuple[int, int, int, bytes]] = deque()

    @property
    def asked(self) -> list[Question]:
        """What has no answer yet."""
        return [Question(kind, first, last) for kind, first, last, _ in self._commands]

    def ask(self, kind: int, payload: bytes = b"", first: int = 0, last: int = 0) -> None:
        """For the next `answer`."""
        self._commands.append((kind, first, last, payload))

    def answer(self) -> Any:
        """Do what was asked first."""
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
        """They are."""
