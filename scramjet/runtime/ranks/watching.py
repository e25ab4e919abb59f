"""Tells who each rank is, notices one that died, hangs or failed, and tells all others which one it was and why.

Every rank counts up a number in the store that all share, twice a second, on a thread with a connection of its own.
Rank 0 looks at everybody's number, the others at rank 0's. Whoever finds one missing writes a verdict there; the first
verdict counts, so all ranks end for the same reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch.distributed as dist

from scramjet.errors import RankError, ScramjetError, printable
from scramjet.version import __version__

PERIOD = 0.5
"""Seconds between two signs of life."""
SHORT_TIMEOUT = 4.0
"""Seconds of silence that are enough once a connection to another rank has broken."""
GRACE = 10.0
"""Seconds that the main thread has to end when another rank is lost; then its process is ended."""
LEAVING = 5.0
"""Seconds that a rank waits for others to have read why it leaves."""
_MAX_REASON = 2_000
VERDICT, READERS = "verdict", "readers"
"""Keys in the store: why all must end, empty while nothing is wrong; how many ranks have read it."""


@dataclass(frozen=True)
class Verdict:
    """Why all ranks must end."""

    rank: int
    """The rank that is the reason; -1: none of them, but the launcher."""
    text: str
    kind: Literal["lost", "failed", "interrupted"]

    def to_bytes(self) -> bytes:
        """The verdict as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Verdict:
        """The verdict that `to_bytes` wrote."""
        found = json.loads(data)
        return cls(int(found["rank"]), str(found["text"])[:_MAX_REASON], found["kind"])


class Watch:
    """Watches the other ranks on a thread, from `start` to `finish` or `fail`."""

    def __init__(
        self,
        store: dist.Store,
        beats: dist.Store,
        everyone: Sequence[RankProcess],
        rank: int,
        *,
        timeout: float,
        is_store_of_launcher: bool,
        before_exit: Callable[[], None] | None = None,
    ) -> None:
        """`store` and `beats` are two connections to the same keys: the main thread's, and that of the watch."""
        self._store, self._beats, self._everyone, self._me = store, beats, everyone, everyone[rank]
        self._timeout, self._is_store_of_launcher, self._before_exit = timeout, is_store_of_launcher, before_exit
        self.exchanges = 0
        """How many times this rank has exchanged something with the others."""
        self.advice = "what was saved is kept: go on with --resume"
        """What the user can do when a rank was lost."""
        self._verdict: Verdict | None = None
        self._is_suspicious = self._is_raised = self._is_store_lost = False
        self._rounds = self._rounds_seen = 0
        self._checked_at, self._silence = time.monotonic(), 0.0  # how long the store has not answered
        self._heard: dict[int, tuple[bytes, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ranks", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._beat()
        self._thread.start()

    @property
    def is_decided(self) -> bool:
        """Whether all must end, and `check` raises."""
        return self._verdict is not None

    def check(self) -> None:
        """Raise the error that all must end with, if there is one. Called every `PERIOD` or more while a rank waits."""
        now = time.monotonic()
        passed = min(now - self._checked_at, PERIOD)  # time in which this process was stopped does not count
        self._silence = self._silence + passed if self._rounds == self._rounds_seen else 0.0
        self._rounds_seen, self._checked_at = self._rounds, now
        if self._silence > self._timeout and self._verdict is None:
            self._verdict = self._store_lost("does not answer: it hangs or was stopped")
            if self._verdict.rank == 0:
                self._everyone[0].end(self._me.machine)
        if self._verdict is not None:
            self._is_raised = True
            raise self._error(self._verdict)

    def is_ending(self) -> bool:
        """Whether a rank was lost or has failed, as far as can be told at once."""
        return self._verdict is not None or any(each.is_gone(self._me.machine) for each in self._everyone)

    def explained(self, error: Exception) -> BaseException:
        """The error to raise when an exchange failed with `error`: one that names the rank that was lost, if any."""
        self._is_suspicious = True
        end = time.monotonic() + SHORT_TIMEOUT + 4 * PERIOD
        while self._verdict is None and time.monotonic() < end:
            time.sleep(PERIOD / 10)
        self._is_raised = True
        if self._verdict is None:
            reason = printable(str(error).partition("\n")[0])
            self._judge(Verdict(self._me.rank, f"has lost its connection to another rank ({reason})", "lost"))
        assert self._verdict is not None
        return self._error(self._verdict)

    def late(self, seconds: float) -> BaseException:
        """The error to raise when some ranks have not come to an exchange for so many seconds."""
        beats = self._store.multi_get([_beat_key(each.rank) for each in self._everyone])
        behind = [each for each, beat in zip(self._everyone, beats, strict=True) if _exchanges(beat) < self.exchanges]
        named = ", ".join(map(str, behind)) or "none of them"
        first = behind[0].rank if behind else self._me.rank
        text = f"has not come to the exchange that other ranks have waited at for {seconds:,.0f} s (so far {named})"
        self._judge(Verdict(first, text, "lost"))
        assert self._verdict is not None
        return self._error(self._verdict)

    def fail(self, error: BaseException) -> bool:
        """Tell the others why this rank leaves, and wait until they know; returns whether they do."""
        is_interrupt = isinstance(error, KeyboardInterrupt)
        if self._verdict is None:
            name = "" if isinstance(error, ScramjetError) else f"{type(error).__name__}: "
            text = f"{name}{error}"[:_MAX_REASON]
            self._judge(Verdict(self._me.rank, text, "interrupted" if is_interrupt else "failed"))
        self._over.set()
        try:
            return not self._is_store_lost and self._is_read_by_all()
        except RuntimeError:  # the store is gone
            return False

    def finish(self) -> None:
        """End together: every rank leaves once rank 0 is done."""
        if self._me.rank != 0:
            while not self._store.check(["done"]):
                self.check()
                time.sleep(PERIOD / 10)
        self._over.set()
        self._thread.join(2 * PERIOD)
        with contextlib.suppress(RuntimeError):
            if self._me.rank != 0:
                self._store.add("left", 1)
                return
            self._store.set("done", "1")
            end = time.monotonic() + LEAVING
            while self._store.add("left", 0) < len(self._everyone) - 1 and time.monotonic() < end:
                time.sleep(PERIOD / 50)

    def _run(self) -> None:
        """Give signs of life and look for those of others, until the watch is over or there is a verdict."""
        last = time.monotonic()
        while not self._over.wait(PERIOD):
            now = time.monotonic()
            if now - last > 4 * PERIOD:  # this process was stopped itself, and knows nothing of the others
                self._heard.clear()
            last = now
            try:
                self._beat()
                self._look(now)
            except RuntimeError:
                if not self._over.is_set() and self._verdict is None:  # else it went with the rank that `check` ended
                    self._verdict = self._store_lost("is gone")
            self._rounds += 1
            if self._verdict is not None:
                break
        if self._verdict is not None:
            self._see_to_the_end()

    def _beat(self) -> None:
        self._beats.set(_beat_key(self._me.rank), f"{self._rounds} {self.exchanges}")

    def _look(self, now: float) -> None:
        """Read the verdict of others, and the signs of life of those that this rank watches."""
        is_wide = self._me.rank == 0 or self._is_suspicious
        watched = [each for each in self._everyone if each is not self._me and (is_wide or each.rank == 0)]
        verdict, *beats = self._beats.multi_get([VERDICT, *(_beat_key(each.rank) for each in watched)])
        if verdict:
            self._accept(verdict)
            return
        timeout = min(self._timeout, SHORT_TIMEOUT) if self._is_suspicious else self._timeout
        for process, beat in zip(watched, beats, strict=True):
            known = self._heard.get(process.rank)
            if known is None or known[0] != beat:
                self._heard[process.rank] = beat, now
            elif now - known[1] > timeout:
                text = f"has given no sign of life for {timeout:g} s: it hangs, was stopped, or cannot be reached"
                self._judge(Verdict(process.rank, text, "lost"))
                process.end(self._me.machine)
                return
            if process.is_gone(self._me.machine):
                self._judge(Verdict(process.rank, "has ended: it was killed, or crashed", "lost"))
                return

    def _judge(self, verdict: Verdict) -> None:
        """Write a verdict for all, unless there is one already, which then counts."""
        try:
            found = self._store.compare_set(VERDICT, "", verdict.to_bytes().decode())
            self._accept(found or verdict.to_bytes())
        except RuntimeError:  # the store is gone with its host
            self._verdict = self._verdict or verdict

    def _accept(self, data: bytes) -> None:
        is_new, self._verdict = self._verdict is None, Verdict.from_bytes(data)
        if is_new:
            self._store.add(READERS, 1)

    def _is_read_by_all(self) -> bool:
        """Wait until all ranks that still live have read the verdict; returns False if some do not in time."""
        end = time.monotonic() + LEAVING
        while time.monotonic() < end:
            living = [each for each in self._everyone if not each.is_gone(self._me.machine)]
            if self._store.add(READERS, 0) >= len(living):
                return True
            time.sleep(PERIOD / 10)
        return False

    def _store_lost(self, what: str) -> Verdict:
        self._is_store_lost = True
        if self._is_store_of_launcher:
            return Verdict(-1, f"the launcher that started all ranks {what}", "lost")
        if self._me.rank != 0 and self._everyone[0].is_gone(self._me.machine):
            what = "has ended: it was killed, or crashed"
        return Verdict(0, what, "lost")

    def _error(self, verdict: Verdict) -> BaseException:
        """The error that a verdict ends this rank with. Rank 0 tells the user of it; rank 1 if rank 0 is lost."""
        if verdict.kind == "interrupted":
            return KeyboardInterrupt()
        if verdict.rank < 0:
            error = RankError(f"{verdict.text}; {self.advice}")
        elif verdict.kind == "failed":
            error = RankError(f"{self._everyone[verdict.rank]}: {verdict.text}")
        else:
            error = RankError(f"{self._everyone[verdict.rank]} {verdict.text}; {self.advice}")
        speaker = 1 if verdict == Verdict(0, verdict.text, "lost") else 0
        error.is_told = self._me.rank != speaker
        return error

    def _see_to_the_end(self) -> None:
        """End this process if its main thread does not, because it waits for something that never comes."""
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            if self._is_raised or self._over.is_set():
                return
            time.sleep(PERIOD)
        assert self._verdict is not None
        error = self._error(self._verdict)
        if self._before_exit is not None:
            with contextlib.suppress(Exception):
                self._before_exit()
        if not getattr(error, "is_told", True):
            with contextlib.suppress(OSError):
                os.write(2, f"scramjet: {error}\n".encode(errors="backslashreplace"))
        os._exit(RankError.exit_code)


def _beat_key(rank: int) -> str:
    return f"beat/{rank}"


def _exchanges(beat: bytes) -> int:
    """How many exchanges a rank had made at its last sign of life."""
    return int(beat.split()[1])


# --- Who a rank is: its machine and process, and whether that process is still there


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
        state = process_state(self.pid)
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

    state = process_state(os.getpid())
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


def process_state(pid: int) -> tuple[str, str] | None:
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
