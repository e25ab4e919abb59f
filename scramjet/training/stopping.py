"""When and why a run stops before its last update: a signal, a callback that asked for it, or the time limit."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable
from types import TracebackType

from scramjet.engine.worlds.hanging import what_hangs
from scramjet.runtime.signals import StopSignal
from scramjet.training.display.interface import Display, StoppedBy
from scramjet.training.session import Session

SHORT_EVALUATION = 2.0
"""Seconds that an evaluation within a run may still take to finish after the run was asked to stop."""
_STOPPED_BY: dict[signal.Signals, StoppedBy] = {
    signal.SIGINT: "ctrl-c",
    signal.SIGTERM: "sigterm",
    signal.SIGHUP: "sighup",
}


class Stopping:
    """Hears signals while it is entered, and says whether the run is to stop. The time limit counts from its making."""

    def __init__(self, session: Session, display: Display) -> None:
        self._session = session
        limit = session.config.time_limit_seconds if session.ranks.is_first else None  # one clock for all ranks
        self.deadline = math.inf if limit is None else time.perf_counter() + limit
        """When the time limit is reached, by `time.perf_counter`; infinite where there is none."""
        self._number: int | None = None  # of the signal that stops all ranks
        self._display = display
        self._signal = StopSignal(notify=self._tell, before_exit=display.close, describe=what_hangs)

    def _tell(self, text: str) -> None:
        """Show that a signal came; not where a rank was lost, which makes launchers signal all others."""
        if not self._session.ranks.is_ending():
            self._display.event(text)

    def is_signalled(self) -> bool:
        """Whether Ctrl-C, SIGTERM or SIGHUP came."""
        return self._signal.was_requested()

    def breaks_off(self) -> bool:
        """Whether to break a rollout off: Ctrl-C, SIGTERM or SIGHUP came, or the time is over for a search, whose
        rollouts may take minutes."""
        is_over = self._session.config.traits.search is not None and time.perf_counter() >= self.deadline
        return self.is_signalled() or is_over

    def reason(self) -> StoppedBy | None:
        """Why the run has to stop now; None if it goes on. All ranks ask together, and what one has heard stops all."""
        session = self._session
        heard = self._signal.requested, session.stop_reason, time.perf_counter() >= self.deadline
        told = [heard] if session.ranks.is_alone else self._told_by_all(heard)
        numbers, reasons, limits = zip(*told, strict=True)
        self._number = next((number for number in numbers if number is not None), None)
        session.stop_reason = next((reason for reason in reasons if reason is not None), None)
        if self._number is not None:
            return _STOPPED_BY[signal.Signals(self._number)]
        if session.stop_reason is not None:
            return "callback"
        return "time limit" if any(limits) else None

    def _told_by_all(self, heard: tuple[int | None, str | None, bool]) -> list[tuple[int | None, str | None, bool]]:
        """What all ranks have heard: the number of a signal, a callback's reason, whether the time limit is reached."""
        return [json.loads(each) for each in self._session.ranks.gather(json.dumps(heard).encode())]

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0, or 128 and the signal's number, the same on all ranks."""
        if self._session.ranks.is_alone:
            return self._signal.exit_code
        return 0 if self._number is None else 128 + self._number

    def __enter__(self) -> Stopping:
        self._signal.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signal.__exit__(kind, error, trace)


class GraceTime:
    """Returns True, when called, once `seconds` have passed since a stop was asked for or the time limit reached."""

    def __init__(self, is_asked: Callable[[], bool], ends_at: float, *, seconds: float) -> None:
        """`ends_at`: the time limit, by `time.perf_counter`; infinite where there is none."""
        self._is_asked, self._ends_at, self._seconds = is_asked, ends_at, seconds
        self._asked_at = math.inf

    def __call__(self) -> bool:
        now = time.perf_counter()
        if self._asked_at == math.inf and (now >= self._ends_at or self._is_asked()):
            self._asked_at = now
        return now >= self._asked_at + self._seconds
