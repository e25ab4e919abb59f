"""Commands of scramjet as the ranks of one run, started as a shell's loop would: by the variables of a launcher."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.helpers.forked_commands import start
from tests.helpers.process_ranks import free_port


@dataclass(frozen=True)
class SetsVariables:
    """Sets variables of the environment in the process of a command."""

    variables: dict[str, str]

    def __call__(self) -> None:
        os.environ.update(self.variables)


class Ranks:
    """The processes of a command that is run by `size` ranks; what each prints is in `folder`."""

    def __init__(self, size: int, folder: Path, *words: str | Path, **changes: dict[str, str]) -> None:
        """`changes` are variables of one rank that differ, by rank as `rank_1`."""
        self.size, self._folder, port = size, folder, free_port()
        self.processes: list[BaseProcess] = []
        for rank in range(size):
            variables = {"WORLD_SIZE": str(size), "RANK": str(rank), "MASTER_PORT": str(port)}
            variables |= changes.get(f"rank_{rank}", {})
            self.processes.append(start(*words, output=self.output_file(rank), first=SetsVariables(variables)))

    def output_file(self, rank: int) -> Path:
        """The file with what a rank prints."""
        return self._folder / f"rank-{rank}"

    def output(self, rank: int) -> str:
        """What a rank has printed so far."""
        file = self.output_file(rank)
        return file.read_text() if file.exists() else ""

    def pid(self, rank: int) -> int:
        """The number of a rank's process."""
        pid = self.processes[rank].pid
        assert pid is not None
        return pid

    def exit_codes(self, seconds: float = 60.0) -> list[int | None]:
        """How the ranks ended, negative for a signal; None for one that has not within so many seconds."""
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        codes = [process.exitcode for process in self.processes]
        for process in self.processes:
            process.kill()
        return codes


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is true; fails if it is not within so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"it did not come true within {seconds:g} s"
        time.sleep(0.02)
