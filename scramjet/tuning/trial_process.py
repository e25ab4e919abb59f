"""The process of one trial: trains or resumes its run, pauses it at a step, and ends when the study's process is gone.

It reads one JSON object from its standard input, and then watches that: the end of it means that the study has died.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scramjet.errors import ScramjetError
from scramjet.training.callbacks import Callback
from scramjet.training.config.files import load_frozen
from scramjet.training.loop import train
from scramjet.training.session import Session
from scramjet.training.worlds.trust import Caller

PATIENCE_SECONDS = 20.0
"""How long a run has to save itself when the study is gone."""


class StopAt(Callback):
    """Ends a run, with a checkpoint, at the first update that reaches a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        """Look at the step after each update."""
        if record["step"] >= self.step:
            session.stop(f"it has reached step {self.step:,}")


def main() -> int:
    """Run the request on the standard input; returns the exit code, a user's error is one message on stderr."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_study, daemon=True).start()
    try:
        return train_as_asked(request)
    except ScramjetError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except MemoryError:
        print("not enough memory; lower num_envs, num_steps or policy.hidden, or run fewer trials at once: --parallel",
              file=sys.stderr)  # fmt: skip
        return 2


def train_as_asked(request: Mapping[str, Any]) -> int:
    """Begin, fork or resume a run in this process, and pause it where the request says; returns the exit code."""
    stop_step = request["stop_step"]
    callbacks = [] if stop_step is None else [StopAt(stop_step)]
    where: dict[str, Any] = {"runs_dir": request["runs_dir"], "display": "quiet", "callbacks": callbacks}
    if request["resume"]:
        return train(resume=request["resume"], trust=request["trust"], **where).exit_code
    # The study wrote this config just now, and has asked for trust where its world needs it.
    config = load_frozen(Path(request["config"]), Caller(trust=True))
    return train(config, run_name=request["run_name"], fork=request["fork"], **where).exit_code


def _end_with_the_study() -> None:
    """Wait for the end of the standard input; then stop the run with a checkpoint, or at once if that takes long."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
