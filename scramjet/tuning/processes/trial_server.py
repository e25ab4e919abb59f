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
from scramjet.training.callbacks import Callback
from scramjet.training.config.files import load_frozen
from scramjet.training.loop import train
from scramjet.training.session import Session
from scramjet.training.worlds.trust import Caller

PATIENCE_SECONDS = 20.0
"""How long a run has to save itself when the study is gone."""
LOOKING_SECONDS = 0.02
"""How often it looks whether a trial has ended."""


class StopAt(Callback):
    """Ends a run, with a checkpoint, at the first update that reaches a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        """Look at the step after each update."""
        if record["step"] >= self.step:
            session.stop(f"it has reached step {self.step:,}")


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
        os.dup2(os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666), 2)
        threading.Thread(target=_end_with_the_study, args=(alive,), daemon=True).start()
        code = train_as_asked(request)
    except KeyboardInterrupt:  # before the run could hear signals
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def train_as_asked(request: dict[str, Any]) -> int:
    """Train as requested; returns the exit code. A user's error is one message on the standard error output."""
    stop_step = request["stop_step"]
    callbacks = [] if stop_step is None else [StopAt(stop_step)]
    where: dict[str, Any] = {"runs_dir": request["runs_dir"], "display": "quiet", "callbacks": callbacks}
    try:
        if request["resume"]:
            return train(resume=request["resume"], trust=request["trust"], **where).exit_code
        # The study wrote this config just now, and has asked for trust where its world needs it.
        config = load_frozen(Path(request["config"]), Caller(trust=True))
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
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
