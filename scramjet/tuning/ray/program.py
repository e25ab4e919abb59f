"""The program that hands trials to Ray Tune: a search algorithm of Tune's suggests what the study asks for.

It reads requests from its standard input, one JSON object a line, and tells how each ended on its standard output, as
`trial_server.py` does. What Ray prints goes into the folder `ray` of the study, beside Tune's own results. Its end, and
so the end of the study, ends all trials with a checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from scramjet.distributed.ray_cluster import RayCluster
from scramjet.errors import ScramjetError
from scramjet.runtime.files import emptied
from scramjet.tuning.ray.server import REQUESTS, tell

SILENT_SECONDS = 25.0
"""How long a cluster may not answer before it counts as gone."""


def main() -> None:
    """Serve until the standard input ends, or the cluster is gone."""
    settings = json.loads(sys.argv[1])
    answers, folder = os.dup(1), Path(settings["folder"])
    folder.mkdir(exist_ok=True)
    log = emptied(folder / "ray.log")
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
        tell(answers, {"error": text})
        os._exit(2)
    tell(answers, {"cpus": cpus})
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


def _hand_over(answers: int, settings: dict[str, Any], folder: Path) -> None:
    """Run Ray Tune with a search algorithm that suggests the requests as they come."""
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    from ray import tune

    from scramjet.tuning.ray.remote import FromStudy, trial

    trainable = tune.with_resources(trial, {"cpu": settings["cpus"], "gpu": settings["gpus"]})
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(search_alg=FromStudy(answers), num_samples=-1),
        run_config=tune.RunConfig(storage_path=str(folder), name=f"tune-{os.getpid()}-{time.time_ns()}", verbose=0),
    )
    tuner.fit()


if __name__ == "__main__":
    main()
