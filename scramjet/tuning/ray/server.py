"""Trials by Ray Tune, as the study sees them: started, watched and signalled like those on this machine.

Ray lives in a process of its own, so that a cluster that dies takes nothing of the study with it. The study's folder is
where trials write their runs and read their signals: on several machines it must be on a file system that all share.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import time
from pathlib import Path
from typing import Any

from scramjet.distributed.ray_cluster import require_ray
from scramjet.errors import ConfigError, RunError
from scramjet.runtime.files import write_atomic
from scramjet.tuning.settings import TRIALS_ON_ONE_GPU
from scramjet.tuning.study import Study
from scramjet.tuning.trials import TrialProcess, TrialServer

SIGNAL = ".signal"
"""What the name of a trial's log ends in, for the file by which it is signalled."""
_BEGIN_SECONDS = 300.0
"""How long Ray may take to begin on a busy machine; a cluster that does not answer is told of much earlier."""


class RayServer(TrialServer):
    """Hands trials to Ray Tune. A ConfigError says why a cluster cannot be used, a RunError that it is gone."""

    def __init__(self, study: Study, address: str) -> None:
        super().__init__()
        require_ray()
        self.address = address
        self._cpus: float | None = None
        self._threads = study.threads
        settings = {
            "address": address,
            "cpus": self._threads,
            "gpus": 1 / TRIALS_ON_ONE_GPU if study.base.device == "cuda" else 0,
            "most": study.settings.slots(study.base),
            "folder": str(study.path / "ray"),
        }
        self.command = (sys.executable, "-m", "scramjet.tuning.ray.program", json.dumps(settings))

    def slots(self, study: Study) -> int:
        """As many trials as the settings say, or as the cluster has CPUs for."""
        self._start_server()
        deadline = time.monotonic() + _BEGIN_SECONDS
        while self._cpus is None:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"Ray at {self.address!r} has not begun within {_BEGIN_SECONDS:.0f} s; try again when the machine "
                    f"is less busy, or leave --ray out"
                )
            self.listen(0.2)
        if isinstance(study.settings.parallel, int):
            return study.settings.parallel
        return max(1, int(self._cpus // self._threads))

    def start(self, request: dict[str, Any]) -> TrialProcess:
        """Hand over a trial that trains as `request` says."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(request["errors"] + SIGNAL)
        return super().start(request)

    def signal(self, process: TrialProcess, number: int) -> None:
        """Leave the number of a signal where the trial looks for it."""
        write_atomic(Path(process.request["errors"] + SIGNAL), str(int(number)).encode())

    def _take_in(self, message: dict[str, Any]) -> None:
        if "error" in message:
            raise ConfigError(message["error"])
        if "cpus" in message:
            self._cpus = message["cpus"]
        else:
            super()._take_in(message)

    def _lost(self) -> None:
        super()._lost()
        raise RunError(
            f"the Ray cluster at {self.address!r} is gone, or Ray has failed there; the trials have kept what they "
            f"saved: go on with --resume, there or without --ray"
        )


# --- what the study and the process that has Ray tell each other


REQUESTS: queue.Queue[dict[str, Any]] = queue.Queue()
"""What the study wants to run."""


def tell(answers: int, message: dict[str, Any]) -> None:
    """Write a message for the study, if it is still there."""
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, json.dumps(message).encode() + b"\n")
