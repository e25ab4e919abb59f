"""A tracker in a process of its own, for packages that would take Python's lock from the training for milliseconds.

The process reads metrics.jsonl by itself, and runs at a low priority. It is told of videos and of the run's end by
lines of JSON on its standard input, and answers on its standard output. If its parent is killed, it sends what is left.
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
from pathlib import Path
from typing import IO, Any

from scramjet.errors import RunError
from scramjet.runtime.runs import Run
from scramjet.training.telemetry.tracking.feed import Feed, State
from scramjet.training.telemetry.tracking.registry import make_tracker

_MODULE = "scramjet.training.telemetry.tracking.process"
_INTERVAL_SECONDS = 1.0
_LAST_SECONDS = 60.0  # that it may take after the end
_LOCKED_SECONDS = 30.0  # that it waits for the process of a run that was killed
_NICENESS = 10


class ProcessFeed:
    """A feed whose work another process does; it has the methods of `Feed`."""

    def __init__(self, name: str, run: Run) -> None:
        self._name, self._run = name, run
        self._process: subprocess.Popen[bytes] | None = None
        self.note = ""
        """What to tell the user about what was kept of an earlier time; often empty."""

    def open(self, goes_on_from: int) -> None:
        """Start the process, and return once it has begun or continued the run in the tool."""
        root = Path(__file__).parents[4]  # where this package lies
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
        if select.select([orders], [], [], _INTERVAL_SECONDS)[0]:
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
