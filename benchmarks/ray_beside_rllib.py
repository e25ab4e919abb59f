"""Remote actors beside RLlib: IMPALA and APPO on Gymnasium's CartPole with the same network, cores and seconds.

    python -m venv rllib && rllib/bin/pip install "ray[rllib]==2.60.0" torch gymnasium
    python benchmarks/ray_beside_rllib.py --rllib rllib/bin/python                  a quarter of an hour on 2 cores
    python benchmarks/ray_beside_rllib.py --rllib rllib/bin/python --tune           first finds RLlib's best settings

Both have actors of Ray, two hidden layers of 64 with tanh for the policy and as many for the values, and no evaluation.
Runs alternate, each in processes of its own. Steps count when a learner has trained on them, from the end of a warm-up
on; the return is the mean of the last 100 training episodes. Writes ray_beside_rllib.json into `--output`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
ALGORITHMS = ("impala", "appo")
NUM_ACTORS, ENVS_EACH = 2, 16
LOSSES = {
    "impala": ["--algorithm", "impala", "--num-epochs", "1", "--num-minibatches", "1"],
    "appo": ["--num-epochs", "1"],
}
RLLIB = {"runners": 2, "envs": 32, "fragment": 50, "batch": 3200}
"""RLlib's settings without --tune: a runner for each of 2 cores, many envs and large batches, which suit it."""
GRID = {"runners": (1, 2, 3), "envs": (8, 32, 64), "batch": (500, 1600, 3200)}


def scramjet(algorithm: str, seconds: float) -> dict[str, Any]:
    """Train with our remote actors; the first second of training is a warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "scramjet", "train", "gym:CartPole-v1", "--mode", "async", "--actors", "ray",
            "--num-actors", str(NUM_ACTORS), "--num-envs", str(NUM_ACTORS * ENVS_EACH), "--num-steps", "50",
            "--total-timesteps", "1000M", "--time-limit", f"{seconds + 1:.0f}s", "--learning-rate", "0.0005",
            "--eval.every", "0", "--eval.final-episodes", "0", "--display", "quiet", "--runs-dir", folder,
            "--run-name", "run", *LOSSES[algorithm],
        ]  # fmt: skip
        subprocess.run(command, check=True)
        lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["time"]["elapsed_seconds"] >= 1)
    last = lines[-1]
    passed = last["time"]["elapsed_seconds"] - first["time"]["elapsed_seconds"]
    return {
        "steps_per_second": (last["step"] - first["step"]) / passed,
        "steps": last["step"],
        "return": last["return_100"],
        "lag": last["async/policy_lag_mean"],
    }


def rllib(python: str, algorithm: str, seconds: float, settings: dict[str, int]) -> dict[str, Any]:
    """Train with RLlib in its own environment."""
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    program = HERE / "peers" / "rllib_asynchronous.py"
    command = [python, str(program), "--algorithm", algorithm, "--seconds", str(seconds), *flags]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def tuned(python: str, seconds: float) -> dict[str, int]:
    """RLlib's fastest settings of the grid, by IMPALA's steps per second."""
    rates: dict[tuple[int, ...], float] = {}
    for values in itertools.product(*GRID.values()):
        settings = {**RLLIB, **dict(zip(GRID, values, strict=True))}
        rates[values] = rllib(python, "impala", seconds, settings)["steps_per_second"]
        print(f"RLlib {settings}: {rates[values]:,.0f} steps/s", flush=True)
    return {**RLLIB, **dict(zip(GRID, max(rates, key=rates.__getitem__), strict=True))}


def main() -> None:
    """Measure both, in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rllib", required=True, help="the Python of RLlib's environment")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tune", action="store_true", help="search RLlib's best settings first")
    parser.add_argument("--output", type=Path, default=Path())
    arguments = parser.parse_args()
    settings = tuned(arguments.rllib, arguments.seconds / 4) if arguments.tune else RLLIB
    results: dict[str, list[dict[str, Any]]] = {f"{who} {kind}": [] for kind in ALGORITHMS for who in ("RLlib", "ours")}
    for _, kind in itertools.product(range(arguments.repeats), ALGORITHMS):
        results[f"RLlib {kind}"].append(rllib(arguments.rllib, kind, arguments.seconds, settings))
        results[f"ours {kind}"].append(scramjet(kind, arguments.seconds))
        print(json.dumps({name: found[-1:] for name, found in results.items()}), flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"rllib": settings, "results": results}, indent=1)
    (arguments.output / "ray_beside_rllib.json").write_text(text)
    print("| | steps trained/s | times RLlib's | return at the end |\n|---|---|---|---|")
    for kind in ALGORITHMS:
        theirs = median(each["steps_per_second"] for each in results[f"RLlib {kind}"])
        for who in ("RLlib", "ours"):
            found = results[f"{who} {kind}"]
            rate = median(each["steps_per_second"] for each in found)
            returns = median(each["return"] or 0.0 for each in found)
            print(f"| {who}, {kind} | {rate:,.0f} | {rate / theirs:.1f} | {returns:.0f} |")


if __name__ == "__main__":
    main()
