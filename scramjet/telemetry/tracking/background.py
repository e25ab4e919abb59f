"""Trackers of a run that trains: each in a process of its own, which can neither slow, stop nor kill the training.

A tool's package may take Python's lock for milliseconds, so a process at a low priority uses it. Its queue is
metrics.jsonl itself: the training loop appends each update there anyway, and the process takes what is new once a
second. It is told of videos and of the run's end by lines of JSON on its standard input, and answers on its standard
output; a thread here waits for the answers. A slow tool falls behind and loses nothing; one that raises or hangs is
left, told once, and `scramjet sync` sends the rest later. If the training is killed, the process sends what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from scramjet.errors import RunError, printable
from scramjet.runtime.runs import Run
from scramjet.telemetry.readable import short_path
from scramjet.telemetry.sinks import BuiltInSink
from scramjet.telemetry.tracking.feed import Feed, State
from scramjet.telemetry.tracking.tracker import make_tracker

INTERVAL_SECONDS = 1.0
"""How often a thread looks for new points: rarely enough that its work comes in batches."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for all trackers together."""
_PATIENCE_SECONDS = 1.5
_MAX_VIDEOS = 16
_MODULE = "scramjet.telemetry.tracking.background"
_LAST_SECONDS = 60.0  # that it may take after the end
_LOCKED_SECONDS = 30.0  # that it waits for the process of a run that was killed
_NICENESS = 10


# --- this side of the process that sends


class ProcessFeed:
    """A feed whose work another process does; it has the methods of `Feed`."""

    def __init__(self, name: str, run: Run) -> None:
        self._name, self._run = name, run
        self._process: subprocess.Popen[bytes] | None = None
        self.note = ""
        """What to tell the user about what was kept of an earlier time; often empty."""

    def open(self, goes_on_from: int) -> None:
        """Start the process, and return once it has begun or continued the run in the tool."""
        root = Path(__file__).parents[3]  # where this package lies
        paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, self._name, str(self._run.path), str(goes_on_from)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C is for the training
        )
        self.note = self._answer()

    def send(self) -> int:
        """Nothing is left to send: the process does it. Raises what it told if it has failed."""
        assert self._process is not None
        if self._process.poll() is not None:
            self._answer()
        return 0

    def video(self, path: Path, step: int) -> None:
        """Have a video or picture sent that was made at `step`."""
        self._tell({"video": str(path), "step": step})

    def close(self, state: State) -> None:
        """Have the run ended in the tool; returns once that is done."""
        self._tell({"end": state})
        self._answer()

    def release(self) -> None:
        """Tell the process that nothing more comes."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended
                self._process.stdin.close()

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: its answer says why
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _answer(self) -> str:
        """Wait for a line of the process; returns its note, or raises its error."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RunError(f"its process ended with exit code {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RunError(answer["error"])
        return str(answer["note"])


AnyFeed = Feed | ProcessFeed


# --- a thread for each tracker


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
        make: Callable[[str, Run], AnyFeed] = ProcessFeed,
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


# --- the process that sends


def main(words: list[str]) -> None:
    """Send a run to a tool until told of its end, as the process that `ProcessFeed` starts."""
    name, path, goes_on_from = words
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever a package prints
    os.nice(_NICENESS)

    def answer(**values: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            print(json.dumps(values), file=answers, flush=True)

    threading.Thread(target=_end_after_parent, daemon=True).start()
    try:
        feed = Feed(name, Run.open(Path(path)), make_tracker(name))
        _open(feed, int(goes_on_from))
        answer(note=feed.note)
        _send_until_the_end(feed, sys.stdin.buffer)
        feed.release()
        answer(note="")
    except BaseException as error:  # whatever a package raises, SystemExit too
        answer(error=str(error).strip() or type(error).__name__)
    os._exit(0)  # packages may have threads that do not end


def _open(feed: Feed, goes_on_from: int) -> None:
    """Open a feed; while the process of a run that was killed still sends, wait for it."""
    deadline = time.monotonic() + _LOCKED_SECONDS
    while feed.is_in_use and time.monotonic() < deadline:
        time.sleep(0.2)
    feed.open(goes_on_from)


def _send_until_the_end(feed: Feed, orders: IO[bytes]) -> None:
    """Send what is new and the videos that are told of, until the end is told or the parent is gone.

    Points go first: a tool may take none at a step before that of a video which it has.
    """
    ending: State | None = None
    rest = b""
    while ending is None:
        videos: list[dict[str, Any]] = []
        if select.select([orders], [], [], INTERVAL_SECONDS)[0]:
            data = os.read(orders.fileno(), 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            ending = None if data else "stopped"
            for message in map(json.loads, lines):
                ending = message.get("end", ending)
                if "video" in message:
                    videos.append(message)
        if ending is not None:
            _end_at_last()
        while feed.send():
            pass
        for video in videos:
            feed.video(Path(video["video"]), video["step"])
    feed.close(ending)


def _end_after_parent() -> None:
    """Wait until the parent is gone, then end in a minute at the latest: a tool may hang before it has begun a run."""
    ends = select.poll()
    ends.register(sys.stdin.buffer, 0)  # being hung up is always told
    ends.poll()
    _end_at_last()


def _end_at_last() -> None:
    """End this process in a minute at the latest: a package may hang."""
    timer = threading.Timer(_LAST_SECONDS, os._exit, [1])
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main(sys.argv[1:])
