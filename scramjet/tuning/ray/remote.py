"""A trial on a node of a Ray cluster: the same process as on the study's own machine, watched and signalled there."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Any

from scramjet.errors import ScramjetError
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.files import read_regular
from scramjet.tuning.processes.client import TrialServer
from scramjet.tuning.ray.server import SIGNAL

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
