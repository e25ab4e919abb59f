"""What Ray Tune runs: a search algorithm that suggests what a study asks for, and a trial on a node.

The trial is the same process as on the study's own machine, watched and signalled there. This module loads Ray.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import time
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from scramjet.errors import ScramjetError
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.files import read_regular
from scramjet.tuning.ray.server import REQUESTS, SIGNAL, tell
from scramjet.tuning.trials import TrialServer

POLL_SECONDS = 0.2


def trial(config: dict[str, Any]) -> None:
    """What Ray Tune runs on a node: one ordinary run, or a stretch of it."""
    from ray import tune

    tune.report(run_trial(config["request"]))


def run_trial(request: dict[str, Any]) -> dict[str, float]:
    """Train as `request` says; returns the exit code, and the step and the return that the run has reached."""
    if not Path(request["runs_dir"]).is_dir():
        raise FileNotFoundError(
            f"{request['runs_dir']} is not on this node; keep studies on a file system that all share"
        )
    server, signals = TrialServer(), Path(request["errors"] + SIGNAL)
    with contextlib.closing(server):
        process = server.start(request)
        while (code := process.poll()) is None:
            with contextlib.suppress(OSError, ValueError):
                number = signal.Signals(int(read_regular(signals, 10)))
                signals.unlink()
                process.send_signal(number)
            time.sleep(POLL_SECONDS)
    return {"code": code, **_reached(Path(request["runs_dir"]) / request["run_name"])}


def _reached(run: Path) -> dict[str, float]:
    with contextlib.suppress(ScramjetError):
        record = RunFiles(run).last_record() or {}
        return {name: record[name] for name in ("step", "return_100") if isinstance(record.get(name), int | float)}
    return {}


# --- the search algorithm


class FromStudy(Searcher):
    """Suggests requests as they come, and tells the study how each ended."""

    def __init__(self, answers: int) -> None:
        """`answers` is the descriptor on which the study is told."""
        super().__init__(metric="code", mode="min")
        self.answers = answers
        self.ids: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next request; None while there is none."""
        try:
            request = REQUESTS.get(timeout=0.05)
        except queue.Empty:
            return None
        self.ids[trial_id] = request.pop("id")
        return {"request": request}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the exit code; a trial whose node died counts as killed."""
        code = -signal.SIGKILL if error or not result else int(result["code"])
        tell(self.answers, {"id": self.ids.pop(trial_id), "code": code})

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the study keeps everything."""
        Path(checkpoint_path).write_text("")

    def restore(self, checkpoint_path: str) -> None:
        """Nothing."""
