"""`scramjet sync`: send past and running runs to a tool that shows them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.command_line import parse
from scramjet.errors import ConfigError, ScramjetError, printable
from scramjet.reports.groups import find_runs
from scramjet.runtime.locks import is_in_use
from scramjet.runtime.runs import Run
from scramjet.settings import Positional
from scramjet.telemetry.tracking.feed import Feed, State
from scramjet.telemetry.tracking.tracker import TrackerName, make_tracker, require_installed

DESCRIPTION = """Send runs to TensorBoard, Aim, Weights & Biases, MLflow or Trackio, from their metrics.jsonl.

What a tool has is remembered in the run's folder: the same command again sends what is new, and no step twice.

  scramjet sync runs/cartpole-1 --to tensorboard
  scramjet sync runs/* --to aim                     every run there is
  scramjet sync cartpole-1 --to wandb --follow      as it trains, until it ends
"""


@dataclass(frozen=True)
class Arguments:
    """Which runs to send, and where."""

    runs: Annotated[tuple[str, ...], Positional("RUN ...")] = ()
    """Runs: their folders, or their names in --runs-dir."""
    to: tuple[TrackerName, ...] = ()
    """The tools to send them to: tensorboard, aim, wandb, mlflow, trackio."""
    follow: bool = False
    """Go on with runs that are being trained until they end, or until Ctrl-C."""
    project: str | None = None
    """The project or experiment in the tool; none: the run's own track_project, else as for --track."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for runs given by name."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet sync", description=DESCRIPTION),)


_FOLLOW_SECONDS = 1.0
_TOLD_EVERY_SECONDS = 2.0


def sync_command(given: Arguments) -> int:
    """Run `scramjet sync ...`; returns the exit code."""
    if not given.runs:
        raise ConfigError("scramjet sync needs RUN, such as: scramjet sync runs/cartpole-1 --to aim")
    if not given.to:
        raise ConfigError(f"--to says where to send the runs: scramjet sync {given.runs[0]} --to tensorboard")
    require_installed(given.to)
    runs, has_missed = _runs(given)
    tools = dict.fromkeys(given.to)  # one that is named twice is sent to once
    transfers = [_Transfer(run, name, given.project) for run in runs for name in tools]
    try:
        for each in transfers:
            each.send()
        while given.follow and any(each.is_going_on for each in transfers):
            time.sleep(_FOLLOW_SECONDS)
            for each in transfers:
                each.send()
    except KeyboardInterrupt:
        if not given.follow:
            raise
    finally:
        for each in transfers:
            each.close()
    return 2 if has_missed or any(each.has_failed for each in transfers) else 0


def _runs(given: Arguments) -> tuple[list[Run], bool]:
    """The runs, each once, and whether some were none: `runs/*` may name notes beside runs. Raises if none is one."""
    runs: dict[Path, Run] = {}
    mistakes: list[ScramjetError] = []
    for text in given.runs:
        try:
            for run in find_runs([text], given.runs_dir):
                path = run.path.resolve()
                runs.setdefault(path, Run.open(path))
        except ScramjetError as error:
            mistakes.append(error)
    if not runs:
        raise mistakes[0]
    for mistake in mistakes:
        print(printable(f"left out: {mistake}"), file=sys.stderr)
    return list(runs.values()), bool(mistakes)


class _Transfer:
    """One run on its way to one tool. What goes wrong is told, and others go on."""

    def __init__(self, run: Run, name: str, project: str | None) -> None:
        self._run, self._name, self._project = run, name, project
        self._feed: Feed | None = None
        self._sent = 0
        self._was_running = True
        self._told_at = 0.0
        self.has_failed = False

    @property
    def is_going_on(self) -> bool:
        """Whether more may come: a process trained the run when it was last looked at."""
        return self._was_running and not self.has_failed

    def send(self) -> None:
        """Send what is new, the first time after opening the tool."""
        if self.has_failed:
            return
        self._was_running = is_in_use(self._run.path)  # before reading: what it wrote last is read too
        try:
            feed = self._feed or self._open()
            with _quiet():
                sent = feed.send()
            while sent:
                self._sent += sent
                self._tell_progress(feed)
                with _quiet():
                    sent = feed.send()
        except Exception as error:
            self._fail(error)

    def close(self) -> None:
        """End the run in the tool and say what was sent."""
        feed, self._feed = self._feed, None
        if feed is None:
            return
        try:
            if not self.has_failed:
                with _quiet():
                    feed.close(self._state(feed))
                where = f"at step {feed.step:,}" if feed.step >= 0 else "without a step yet"
                news = f"{self._sent:,} updates sent" if self._sent else "nothing new"
                damaged = f"; {feed.num_unreadable} unreadable lines left out" if feed.num_unreadable else ""
                print(f"{printable(self._run.name)}: {news} to {self._name}, {where}{damaged}", flush=True)
        except Exception as error:
            self._fail(error)
        finally:
            feed.release()

    def _open(self) -> Feed:
        with _quiet():
            self._feed = feed = Feed(self._name, self._run, make_tracker(self._name), self._project)
            feed.open()
        if feed.note:
            print(feed.note, flush=True)
        self._told_at = time.monotonic()
        return feed

    def _state(self, feed: Feed) -> State:
        if self._was_running and is_in_use(self._run.path):
            return "running"
        return "finished" if feed.is_finished else "stopped"

    def _tell_progress(self, feed: Feed) -> None:
        now = time.monotonic()
        if now >= self._told_at + _TOLD_EVERY_SECONDS:
            self._told_at = now
            print(
                f"{printable(self._run.name)}: {self._sent:,} updates to {self._name}, at step {feed.step:,}",
                flush=True,
            )

    def _fail(self, error: Exception) -> None:
        self.has_failed = True
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = str(error) if isinstance(error, ScramjetError) else f"{type(error).__name__}: {lines[0]}"
        print(f"{printable(self._run.name)}: not sent to {self._name}: {printable(text)[:1000]}", file=sys.stderr)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop what a tool's package prints inside."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield
