"""Who a rank is: its machine and process, and whether that process is still there."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from scramjet.errors import RankError
from scramjet.version import __version__

_MAX_TEXT = 300


@dataclass(frozen=True)
class RankProcess:
    """One rank, as it tells the others of itself when it joins."""

    rank: int
    size: int
    host: str
    pid: int
    started_at: str
    """What the system counts as the start of the process, by which it is told from a later one of the same number."""
    machine: str
    """The same for processes that see each other's numbers."""
    scramjet: str
    torch: str
    gpu: str = ""
    """The GPU that it has taken, as CUDA names it; empty where there is none, or no NCCL to reach others by."""

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"

    def to_bytes(self) -> bytes:
        """The record as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RankProcess:
        """The record that `to_bytes` wrote."""
        try:
            found = json.loads(data)
            rank, size, pid = (int(found[name]) for name in ("rank", "size", "pid"))
            names = ("host", "started_at", "machine", "scramjet", "torch", "gpu")
            host, *others = (str(found[name])[:_MAX_TEXT] for name in names)
            return cls(rank, size, host, pid, *others)
        except (ValueError, KeyError, TypeError) as error:
            raise RankError("another program writes to the store of the ranks; choose another MASTER_PORT") from error

    def is_gone(self, machine: str) -> bool:
        """Whether the process has ended, as far as a process on `machine` can see; False if it cannot."""
        if machine != self.machine:
            return False
        state = _state(self.pid)
        if state is None:
            with contextlib.suppress(PermissionError):
                try:
                    os.kill(self.pid, 0)
                except ProcessLookupError:
                    return True
            return False
        return state[0] in "ZX" or state[1] != self.started_at

    def end(self, machine: str) -> None:
        """Kill the process, which does not answer any more, if it can be seen from `machine`."""
        if machine == self.machine and self.started_at and not self.is_gone(machine):
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)


def this_process(rank: int, size: int, gpu: str = "") -> RankProcess:
    """What this process tells the other ranks of itself."""
    import torch

    state = _state(os.getpid())
    return RankProcess(
        rank,
        size,
        socket.gethostname()[:_MAX_TEXT],
        os.getpid(),
        "" if state is None else state[1],
        _machine(),
        f"{__version__} ({_code_digest()})",
        str(torch.__version__),
        gpu,
    )


def _state(pid: int) -> tuple[str, str] | None:
    """A process's state and start as the system tells them; None where it does not or there is no such process."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return None


def _machine() -> str:
    """A text that is the same for processes that share a kernel and its process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _code_digest() -> str:
    """A short hash of scramjet's source: ranks with other code would train something else."""
    import hashlib

    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        with contextlib.suppress(OSError):
            digest.update(source.relative_to(package).as_posix().encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()[:8]
