"""Trackers of a run that trains: each on a thread of its own, which can neither slow, stop nor kill the training.

The queue of a tracker is metrics.jsonl itself: the training loop appends each update there anyway, and the thread takes
what is new once a second, or has a process do so (process.py). A tool that is slow falls behind and loses nothing; one
that raises or hangs is left, told once, and `scramjet sync` sends the rest later. Videos wait in a queue of their own,
which is bounded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scramjet.errors import printable
from scramjet.runtime.runs import Run
from scramjet.training.display.text import short_path
from scramjet.training.telemetry.sinks import BuiltInSink
from scramjet.training.telemetry.tracking.feed import Feed, State
from scramjet.training.telemetry.tracking.process import ProcessFeed
from scramjet.training.telemetry.tracking.quiet import quiet
from scramjet.training.telemetry.tracking.registry import make_tracker

AnyFeed = Feed | ProcessFeed
IN_THIS_PROCESS = ("tensorboard",)
"""Tools that take less than half a percent of the time of 23 ms updates; the others get a process of their own."""

INTERVAL_SECONDS = 1.0
"""How often a thread looks for new points: rarely enough that its work comes in batches."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for all trackers together."""
_PATIENCE_SECONDS = 1.5
_MAX_VIDEOS = 16


class BackgroundTracker:
    """One tracker of a run under way, on its thread."""

    def __init__(
        self, name: str, run: Run, goes_on_from: int, tell: Callable[[str], Any], make: Callable[[str, Run], AnyFeed]
    ) -> None:
        self.name = name
        self.is_left = False
        """Nobody waits for it any more."""
        self._run, self._goes_on_from, self._tell, self._make = run, goes_on_from, tell, make
        self._ending: State | None = None
        self._wake = threading.Event()
        self._videos: deque[tuple[Path, int]] = deque()
        self._dropped_videos = 0
        self._thread = threading.Thread(target=self._work, name=f"scramjet-track-{name}", daemon=True)
        self._thread.start()

    def video(self, path: Path, step: int) -> None:
        """Send a video or picture, if fewer than 16 wait already."""
        if len(self._videos) < _MAX_VIDEOS:
            self._videos.append((path, step))
            return
        self._dropped_videos += 1
        if self._dropped_videos == 1 and self._thread.is_alive():
            self._tell(f"{self.name} is behind: videos are not sent there while {_MAX_VIDEOS} wait")

    def end(self, state: State) -> None:
        """Ask the thread to send what is left and to end the run in the tool."""
        self._ending = state
        self._wake.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the thread's end for so long at most; says whether it has ended."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _work(self) -> None:
        """Open the tool, send what is new until the run ends, close the tool; an error is told and ends this."""
        feed: AnyFeed | None = None
        with quiet():
            try:
                feed = self._make(self.name, self._run)
                feed.open(self._goes_on_from)
                if feed.note:
                    self._tell(feed.note)
                self._send_until_the_end(feed)
            except BaseException as error:  # whatever a package raises, SystemExit too
                if not self.is_left:
                    self._tell(_failure(self.name, error, self._run.path))
            finally:
                if feed is not None:
                    feed.release()

    def _send_until_the_end(self, feed: AnyFeed) -> None:
        ending: State | None = None
        while ending is None:
            self._wake.wait(INTERVAL_SECONDS)
            ending = self._ending
            while not self.is_left and feed.send():
                pass
            while self._videos and not self.is_left:
                feed.video(*self._videos.popleft())
        if not self.is_left:
            feed.close(ending)


def make_feed(name: str, run: Run) -> AnyFeed:
    """The feed of a run to a tool, on the thread itself or in another process."""
    return Feed(name, run, make_tracker(name)) if name in IN_THIS_PROCESS else ProcessFeed(name, run)


class Tracking(BuiltInSink):
    """The trackers of a run under way, as one of its sinks."""

    def __init__(
        self,
        names: Iterable[str],
        run: Run,
        goes_on_from: int,
        last_step: int,
        tell: Callable[[str], Any],
        show: Callable[[str], Any],
        make: Callable[[str, Run], AnyFeed] = make_feed,
    ) -> None:
        """`goes_on_from` is the step that the training goes on from, `last_step` the one that it ends at.

        `tell` takes messages for the user from any thread, `show` from the training thread, and shows them at once.
        """
        self._run, self._last_step, self._step, self._show = run, last_step, -1, show
        self._trackers = [BackgroundTracker(name, run, goes_on_from, tell, make) for name in names]

    def record(self, record: dict[str, Any]) -> None:
        """Remember the step; the threads find the record in metrics.jsonl, which has it already."""
        self._step = record["step"]

    def video(self, path: Path, step: int) -> None:
        """Send a video or picture to every tracker that takes them."""
        for tracker in self._trackers:
            tracker.video(path, step)

    def close(self) -> None:
        """End the run in every tool; one that has not ended after 30 seconds is left and told."""
        deadline = time.monotonic() + CLOSE_SECONDS
        for tracker in self._trackers:
            tracker.end("finished" if self._step >= self._last_step else "stopped")
        slow = [each for each in self._trackers if not each.wait(deadline - CLOSE_SECONDS + _PATIENCE_SECONDS - _now())]
        if slow:
            self._show(f"waiting for {', '.join(each.name for each in slow)} to take the last points")
        for tracker in slow:
            if not tracker.wait(deadline - _now()):
                tracker.is_left = True
                self._show(f"{tracker.name} did not end within {CLOSE_SECONDS:.0f} s and was left; "
                           f"{_remedy(tracker.name, self._run.path)}")  # fmt: skip


def _now() -> float:
    return time.monotonic()


def _failure(name: str, error: BaseException, run: Path) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"tracking by {name} stopped, training goes on: {printable(lines[0])[:200]}; {_remedy(name, run)}"


def _remedy(name: str, run: Path) -> str:
    return f"`scramjet sync {short_path(run)} --to {name}` sends the rest"
