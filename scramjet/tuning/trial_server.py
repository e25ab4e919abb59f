"""The program that trials are forked from: it loads torch and scramjet once, so that a trial starts in milliseconds.

It reads requests from its standard input, one JSON object a line, forks a process for each, and tells their numbers and
exit codes on its standard output. A trial trains or resumes its run, pauses it at a step, and ends with a checkpoint
when this program is gone; this program ends when the study is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from scramjet.errors import ScramjetError
from scramjet.runtime.files import emptied
from scramjet.training.callbacks import Callback
from scramjet.training.config.files import handed_config
from scramjet.training.loop import train
from scramjet.training.session import Session

PATIENCE_SECONDS = 20.0
"""How long a run has to save itself when the study is gone."""
PAUSE = signal.SIGUSR1
"""The signal that asks a trial to save itself and end."""
LOOKING_SECONDS = 0.02
"""How often it looks whether a trial has ended."""


class Pausing(Callback):
    """Ends a run, with a checkpoint, after the update that reaches a step, or in which `PAUSE` came.

    Unlike Ctrl-C it lets an evaluation end first: a run without its last evaluation would be finished without a score.
    """

    def __init__(self, step: int | None) -> None:
        self.step = step
        self.is_asked = False

    def hear(self, number: int, frame: object) -> None:
        """Handle the signal."""
        self.is_asked = True

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        """Look at the step after each update."""
        if self.step is not None and record["step"] >= self.step:
            session.stop(f"it has reached step {self.step:,}")
        if self.is_asked:
            session.stop("its study stops")


def main() -> None:
    """Serve until the standard input ends."""
    answers = os.dup(1)
    os.set_inheritable(answers, False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    alive, held = os.pipe()  # trials notice the end of this process by the end of the pipe
    ids: dict[int, int] = {}
    unread = b""
    while True:
        if select.select([0], [], [], LOOKING_SECONDS)[0]:
            came = os.read(0, 1 << 16)
            if not came:
                return
            *lines, unread = (unread + came).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    os.close(held)
                    _be_a_trial(request, alive)
                ids[pid] = request["id"]
                _tell(answers, {"id": request["id"], "pid": pid})
        while ids and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(ended[1])
            _tell(answers, {"id": ids.pop(ended[0]), "code": code})


def _tell(answers: int, message: dict[str, int]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, json.dumps(message).encode() + b"\n")


def _be_a_trial(request: dict[str, Any], alive: int) -> NoReturn:
    """Train in this forked process, and end it."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(emptied(Path(request["errors"])), 2)
        pausing = Pausing(request["stop_step"])
        signal.signal(PAUSE, pausing.hear)
        threading.Thread(target=_end_with_the_study, args=(alive,), daemon=True).start()
        code = train_as_asked(request, pausing)
    except KeyboardInterrupt:  # before the run could hear signals
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def train_as_asked(request: dict[str, Any], pausing: Pausing) -> int:
    """Train as requested; returns the exit code. A user's error is one message on the standard error output."""
    where: dict[str, Any] = {"runs_dir": request["runs_dir"], "display": "quiet", "callbacks": [pausing]}
    try:
        if request["resume"]:
            return train(resume=request["resume"], trust=request["trust"], **where).exit_code
        config = handed_config(Path(request["config"]), request["approved"])
        return train(config, run_name=request["run_name"], fork=request["fork"], **where).exit_code
    except ScramjetError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except MemoryError:
        print("not enough memory; lower num_envs, num_steps or policy.hidden, or run fewer trials at once: --parallel",
              file=sys.stderr)  # fmt: skip
        return 2


def _end_with_the_study(alive: int) -> None:
    """Wait for the end of the pipe; then stop the run with a checkpoint, or at once if that takes long."""
    os.read(alive, 1)
    os.kill(os.getpid(), PAUSE)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
