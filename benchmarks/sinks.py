"""What trackers cost a run whose updates take 23 ms: time on the training thread, CPU time of the tool, slowdown.

    python benchmarks/sinks.py                        all tools that are installed
    python benchmarks/sinks.py tensorboard aim

Each tool gets 43 updates a second with 45 numbers each, as a run gives them. `training thread`: the mean time of one
call of the sink. `tool`: CPU time of this process beyond the training thread's, over the time that passed, once the
tool is open; what another process of the tool takes (W&B's) is not in it. `slowdown`: how much longer pure Python work
of 23 ms takes beside the tool than in the stretches without it before and after, median of updates; such work holds
Python's lock all the time, as training does not: it is an upper bound. On a busy machine only the CPU time is of use.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from scramjet.runtime.runs import Run
from scramjet.telemetry.metrics import METRICS
from scramjet.telemetry.tracking.background import Tracking
from scramjet.telemetry.tracking.tracker import TRACKERS

UPDATE_SECONDS = 0.023
NAMES = [name for name in METRICS if name not in ("update", "step") and "*" not in name and "." not in name][:38]


def record_at(update: int) -> dict[str, Any]:
    """A line of metrics.jsonl with 45 numbers."""
    times = {name.removeprefix("time."): 0.001 * update for name in METRICS if name.startswith("time.")}
    return {"update": update, "step": 1024 * update, **{name: update / 7 for name in NAMES}, "time": times}


def work(turns: int) -> float:
    """Hold Python's lock for so many turns; returns the seconds that it took."""
    began = time.perf_counter()
    total = 0
    for number in range(turns):
        total += number
    return time.perf_counter() - began


def measure(name: str | None, run: Run, seconds: float, turns: int, first: int) -> tuple[float, float, float, int]:
    """Microseconds a call, share of CPU time beside the training thread, median update, and the next update's number.

    `name` is the tool, None for none.
    """
    told: list[str] = []
    sink = None if name is None else Tracking([name], run, 1024 * (first - 1), 2**62, told.append, told.append)
    state = None if name is None else run.path / "tracking" / name / "state.json"
    updates, calls, number, is_open = [], 0.0, first, False
    began = process = thread = 0.0
    while not is_open or time.perf_counter() < began + seconds:
        if not is_open and (state is None or (state.exists() and json.loads(state.read_text())["step"] >= 0)):
            is_open, updates, calls = True, [], 0.0
            began, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
        record = record_at(number)
        with run.metrics_path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if sink is not None:
            called = time.perf_counter()
            sink.record(record)
            calls += time.perf_counter() - called
        updates.append(work(turns))
        number += 1
        if told:
            raise SystemExit(told[0])
    beside = (time.process_time() - process - time.thread_time() + thread) / (time.perf_counter() - began)
    if sink is not None:
        sink.close()
    return 1e6 * calls / len(updates), beside, median(updates), number


def cpu() -> str:
    """The name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", default=[name for name in TRACKERS if importlib.util.find_spec(name)])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    arguments = parser.parse_args()
    os.environ.setdefault("WANDB_MODE", "offline")
    turns = int(1_000_000 * UPDATE_SECONDS / min(work(1_000_000) for _ in range(5)))
    print(f"{cpu()}, {os.cpu_count()} cores\n\n| tool | training thread | tool | slowdown |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["TRACKIO_DIR"] = folder
        for name in arguments.tools:
            path = Path(folder) / name / "run"
            path.mkdir(parents=True)
            (path / "config.toml").write_text('config_version = 1\nenv = "cartpole"\n')
            run = Run.open(path)
            before, number = measure(None, run, arguments.seconds / 2, turns, 1)[2:]
            call, beside, during, number = measure(name, run, arguments.seconds, turns, number)
            after = measure(None, run, arguments.seconds / 2, turns, number)[2]
            slowdown = during / ((before + after) / 2) - 1
            share = call * 1e-6 / UPDATE_SECONDS
            print(f"| {name} | {call:.2f} µs ({share:.4%}) | {beside:.2%} | {slowdown:+.2%} |", flush=True)


if __name__ == "__main__":
    main()
