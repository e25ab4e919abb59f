"""How quick the page of `scramjet serve` is over 1,000 runs of 10,000 lines, and its memory over an hour of a live run.

python benchmarks/page.py [--runs 1000] [--lines 10000] [--hour 60]

Makes the runs in a temporary folder (the metrics of twenty, hard-linked under the names of all others), starts a server
and asks it over HTTP. The live run then gets the records of an hour (10 a second) within `--hour` seconds,
while a WebSocket takes what the server pushes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from scramjet.runtime.runs import Run

DIFFERENT = 20
"""Metrics files that are written out; the other runs share them."""
RECORDS_AN_HOUR = 36_000
CONFIG = """config_version = 1
algorithm = "ppo"
seed = {seed}
total_timesteps = {total}
device = "cpu"

[env]
name = "{env}"
"""


def record(update: int) -> bytes:
    """A line as training writes it, with some thirty numbers."""
    value = round(500 * (1 - 2 ** (-update / 1_500)), 3)
    names = ("return_mean", "return_min", "return_max", "return_100", "length_mean", "length_100", "policy_loss")
    names += ("value_loss", "entropy", "approx_kl", "approx_kl_k1", "clip_fraction", "grad_norm", "explained_variance")
    names += ("learning_rate", "clip_epsilon", "entropy_coef", "stat/win", "stat/length", "stat/score")
    metrics = {name: value / (place + 1) for place, name in enumerate(names)} | {"approx_kl": 0.01}
    phases = ("rollout", "prepare", "learn", "evaluate", "checkpoint")
    times = {"elapsed_seconds": update * 0.1, "steps_per_second": 40_960.0} | {
        f"{name}_seconds": 0.02 for name in phases
    }
    return json.dumps({"update": update, "step": update * 4096, **metrics, "time": times}).encode() + b"\n"


def make_runs(folder: Path, runs: int, lines: int) -> int:
    """Write the runs; returns the bytes of one metrics file."""
    content = b"".join(record(update) for update in range(1, lines + 1))
    for number in range(runs):
        env = ("cartpole", "maze", "connect_four", "pendulum")[number // 10 % 4]
        config = CONFIG.format(seed=number % 10, total=lines * 4096 + number // 10, env=env)
        run = Run.create(folder, f"{env}-{number}", config)
        run.release()
        source = (
            folder
            / f"{('cartpole', 'maze', 'connect_four', 'pendulum')[number % DIFFERENT // 10 % 4]}-{number % DIFFERENT}"
        )
        if number < DIFFERENT:
            run.metrics_path.write_bytes(content)
        else:
            os.link(source / "metrics.jsonl", run.metrics_path)
    return len(content)


def answer_seconds(url: str) -> tuple[float, int]:
    """How long an answer took, and its bytes."""
    began = time.perf_counter()
    with urlopen(url, timeout=60) as answer:
        size = len(answer.read())
    return time.perf_counter() - began, size


def resident_mib(pid: int) -> float:
    """Resident memory of a process (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_name() -> str:
    """The processor as Linux names it."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def start_server(folder: Path) -> tuple[subprocess.Popen, str]:
    """A server of its own process, as soon as it listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["serve", "--runs-dir", str(folder), "--port", str(port)]
    server = subprocess.Popen([sys.executable, "-m", "scramjet", *words], stdout=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server, f"http://127.0.0.1:{port}/"
        except OSError:
            assert server.poll() is None, "the server ended"
            time.sleep(0.002)


def measure_answers(url: str) -> None:
    """The list and a run: the first answers after the start, and later ones."""
    told = [("list, first answer", "api/runs"), ("run, first answer", "api/runs/cartpole-0")]
    told += [("curves, first answer", "api/runs/cartpole-0/curves")]
    for name, path in told:
        seconds, size = answer_seconds(url + path)
        print(f"{name:<24} {1000 * seconds:7.0f} ms  {size / 1024:7.0f} KiB", flush=True)
    deadline = time.monotonic() + 120
    while b'"pending"' in urlopen(url + "api/runs").read() and time.monotonic() < deadline:
        time.sleep(0.1)
    for name, path in (("list", "api/runs"), ("run", "api/runs/maze-15"), ("curves", "api/runs/maze-15/curves")):
        times = sorted(answer_seconds(url + path)[0] for _ in range(15))
        print(f"{name + ', then: median':<24} {1000 * times[7]:7.0f} ms, worst {1000 * times[-1]:.0f} ms", flush=True)


def measure_hour(folder: Path, url: str, pid: int, seconds: float) -> None:
    """Memory of the server while a run writes an hour of records."""
    with Run.create(folder, "live", CONFIG.format(seed=1, total=10**9, env="cartpole")) as run:
        taken = 0

        def take() -> None:
            nonlocal taken
            with connect(url.replace("http", "ws") + "api/live", max_size=None) as page:
                page.send(json.dumps({"watch": "run", "name": "live"}))
                with contextlib.suppress(ConnectionClosed):
                    for text in page:
                        taken += len(json.loads(text).get("records", ()))

        threading.Thread(target=take, daemon=True).start()
        first = 0.0
        for part in range(12):
            began = time.monotonic()
            with run.metrics_path.open("ab") as file:
                for update in range(part * RECORDS_AN_HOUR // 12, (part + 1) * RECORDS_AN_HOUR // 12):
                    file.write(record(update + 1))
                    if update % 50 == 0:
                        file.flush()
                        time.sleep(seconds * 50 / RECORDS_AN_HOUR * 0.8)
            answer_seconds(f"{url}api/runs/live/curves")
            time.sleep(max(0.0, seconds / 12 - (time.monotonic() - began)))
            now = resident_mib(pid)
            first = first or now
            minutes = (part + 1) * 5
            print(f"{minutes:>2} minutes of records: {now:.0f} MiB ({now - first:+.1f}), {taken} pushed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--hour", type=float, default=60.0, help="seconds that the hour of records takes")
    arguments = parser.parse_args()
    print(cpu_name())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = make_runs(folder, arguments.runs, arguments.lines)
        print(f"{arguments.runs} runs of {arguments.lines} lines, {size / 2**20:.1f} MiB each", flush=True)
        began = time.monotonic()
        server, url = start_server(folder)
        try:
            print(f"server listens after {time.monotonic() - began:.1f} s", flush=True)
            measure_answers(url)
            measure_hour(folder, url, server.pid, arguments.hour)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
