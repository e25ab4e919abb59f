"""The program that hands trials to Ray Tune: a search algorithm of Tune's suggests what the study asks for.

It reads requests from its standard input, one JSON object a line, and tells how each ended on its standard output, as
`trial_server.py` does. What Ray prints goes into the folder `ray` of the study, beside Tune's own results. Its end, and
so the end of the study, ends all trials with a checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from scramjet.errors import ScramjetError
from scramjet.training.asynchronous.ray.cluster import RayCluster

SILENT_SECONDS = 25.0
"""How long a cluster may not answer before it counts as gone."""
REQUESTS: queue.Queue[dict[str, Any]] = queue.Queue()


def main() -> None:
    """Serve until the standard input ends, or the cluster is gone."""
    settings = json.loads(sys.argv[1])
    answers, folder = os.dup(1), Path(settings["folder"])
    folder.mkdir(exist_ok=True)
    log = os.open(folder / "ray.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=_read_requests, daemon=True).start()
    try:
        cluster = RayCluster(settings["address"], num_cpus=max(1, settings["most"] * settings["cpus"]))
        cpus = float(cluster.ray.cluster_resources().get("CPU", 0.0))
        if cpus < settings["cpus"]:
            raise ScramjetError(f"the Ray cluster has {cpus:g} CPUs, and each trial has {settings['cpus']} threads")
    except ScramjetError as error:
        text = str(error).replace("ray_address=", "--ray ").replace("--ray-address", "--ray")
        _tell(answers, {"error": text})
        os._exit(2)
    _tell(answers, {"cpus": cpus})
    threading.Thread(target=_end_with_the_cluster, args=(cluster,), daemon=True).start()
    _hand_over(answers, settings, folder)


def _read_requests() -> None:
    """Put every line of the standard input into the queue; end with it."""
    for line in sys.stdin.buffer:
        REQUESTS.put(json.loads(line))
    os._exit(0)  # Ray ends what this process has begun


def _end_with_the_cluster(cluster: RayCluster) -> None:
    while cluster.seconds_silent < SILENT_SECONDS:
        time.sleep(1.0)
    os._exit(1)


def _tell(answers: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, json.dumps(message).encode() + b"\n")


def _hand_over(answers: int, settings: dict[str, Any], folder: Path) -> None:
    """Run Ray Tune with a search algorithm that suggests the requests as they come."""
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    from ray import tune
    from ray.tune.search import Searcher

    class FromStudy(Searcher):
        """Suggests what the study wants to run, and tells the study how it ended."""

        def __init__(self) -> None:
            super().__init__(metric="code", mode="min")
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
            _tell(answers, {"id": self.ids.pop(trial_id), "code": code})

        def save(self, checkpoint_path: str) -> None:
            """Nothing: the study keeps everything."""
            Path(checkpoint_path).write_text("")

        def restore(self, checkpoint_path: str) -> None:
            """Nothing."""

    trainable = tune.with_resources(_trial, {"cpu": settings["cpus"], "gpu": settings["gpus"]})
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(search_alg=FromStudy(), num_samples=-1),
        run_config=tune.RunConfig(storage_path=str(folder), name=f"tune-{os.getpid()}-{time.time_ns()}", verbose=0),
    )
    tuner.fit()


def _trial(config: dict[str, Any]) -> None:
    """What Ray Tune runs on a node: one ordinary run, or a stretch of it."""
    from ray import tune

    from scramjet.tuning.ray.remote import run_trial

    tune.report(run_trial(config["request"]))


if __name__ == "__main__":
    main()
