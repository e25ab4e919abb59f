"""A display that also writes what it tells to the run's log."""

from __future__ import annotations

from scramjet.runtime.logs import RunLog
from scramjet.telemetry.metrics import Record, findings
from scramjet.training.display.interface import Display, RunInfo, Summary
from scramjet.training.display.text import summary_title


class LoggedDisplay:
    """Shows a run by another display, and logs its beginning, events, warnings (each once) and end."""

    def __init__(self, display: Display, log: RunLog) -> None:
        self._display, self._log = display, log
        self._warned: set[str] = set()

    def start(self, info: RunInfo) -> None:
        note = f", {info.note}" if info.note else ""
        self._log.write(f"training {info.env} from step {info.first_step:,} to {info.total_steps:,}{note}")
        self._display.start(info)

    def record(self, record: Record) -> None:
        for name, text in findings(record).items():
            if name not in self._warned:
                self._warned.add(name)
                self._log.write(f"warning: {text}")
        self._display.record(record)

    def event(self, text: str) -> None:
        self._log.write(text)
        self._display.event(text)

    def progress(self, text: str) -> None:
        self._display.progress(text)

    def finish(self, summary: Summary) -> None:
        self._log.write(summary_title(summary))
        self._display.finish(summary)

    def close(self) -> None:
        self._display.close()
