"""Where asynchronous training pays: the same training both ways, and beside Sample Factory.

    python benchmarks/asynchrony.py                                 uneven, cartpole and hopper; half an hour on 2 cores
    python benchmarks/asynchrony.py --only uneven --seeds 1
    python benchmarks/asynchrony.py --only sample-factory --sample-factory PYTHON_OF_ITS_ENVIRONMENT
    python benchmarks/asynchrony.py --only atari                     on a machine with a GPU and many cores

    uneven          Gymnasium's CartPole whose steps sleep for a heavy-tailed while (uneven_env.py), 16 processes
    cartpole        Gymnasium's CartPole, as fast as Python is, 2 processes
    hopper          MuJoCo's Hopper with its preset's settings, 2 processes
    atari           the first million steps of Breakout at 64 envs, on ALE's threads
    sample-factory  Gymnasium's CartPole at 64 envs, its APPO and ours in turns: steps trained per second, and return
                    after as many steps as its does in `--seconds`

Each run is a process of its own; synchronous and asynchronous ones alternate. Writes asynchrony.json, asynchrony.md and
asynchrony.svg (return against wall time) into `--output`. Steps per second are from the end of the first update to the
end of the last, evaluations aside; returns are the means of the last 100 training episodes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
LAG = "async/policy_lag_mean"
NO_EVALUATION = ["--eval.every", "0", "--eval.final-episodes", "0"]


@dataclass(frozen=True)
class Study:
    """One world, trained both ways."""

    env: str
    common: list[str]
    sync: list[str]
    asynchronous: list[str]


STUDIES = {
    "uneven": Study(
        f"factory:{HERE / 'uneven_env.py'}:make",
        ["--num-envs", "16", "--num-steps", "64", "--total-timesteps", "120000", "--learning-rate", "0.001"],
        ["--num-workers", "16"],
        ["--num-actors", "16"],
    ),
    "cartpole": Study(
        "gym:CartPole-v1",
        ["--num-envs", "16", "--num-steps", "128", "--total-timesteps", "300000", "--learning-rate", "0.001@0,0@end"],
        [],
        ["--num-actors", "2"],
    ),
    "hopper": Study("mujoco:Hopper-v5", ["--total-timesteps", "200000"], ["--num-workers", "2"], ["--num-actors", "2"]),
    "atari": Study("ale:Breakout", ["--num-envs", "64", "--total-timesteps", "1000000"], [], []),
}


def curve(run: Path) -> list[dict[str, Any]]:
    """Seconds, steps and return of each update."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = [line["time"]["elapsed_seconds"] for line in lines]
    return [
        {
            "seconds": second,
            "steps": line["step"],
            "return": line["return_100"],
            "lag": line.get("async/policy_lag_mean"),
        }
        for second, line in zip(seconds, lines, strict=True)
    ]


def train(study: Study, mode: str, seed: int) -> list[dict[str, Any]]:
    """One run."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable,
            "-m",
            "scramjet",
            "train",
            study.env,
            "--mode",
            mode,
            "--seed",
            str(seed),
            *study.common,
        ]
        words += study.sync if mode == "sync" else study.asynchronous
        words += [*NO_EVALUATION, "--display", "quiet", "--runs-dir", folder, "--run-name", "run"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        return curve(Path(folder) / "run")


def rate(points: list[dict[str, Any]]) -> float:
    """Steps per second."""
    first, last = points[0], points[-1]
    return float((last["steps"] - first["steps"]) / (last["seconds"] - first["seconds"]))


def measure_study(name: str, num_seeds: int, curves: dict[str, list[Any]], write: Callable[[], None]) -> None:
    """Both modes, a seed after the other; those that `curves` has already are left out."""
    for seed in range(1, num_seeds + 1):
        for mode, found in curves.items():
            if len(found) < seed:
                found.append(train(STUDIES[name], mode, seed))
                write()
                last = found[-1][-1]["return"]
                print(f"{name} {mode} seed {seed}: {rate(found[-1]):,.0f} steps/s, return {last:.1f}", flush=True)


def beside_sample_factory(python: str, repeats: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Steps trained per second and the return, in turns; ours trains on as many steps as its did in that time.
    Both scale rewards, it by 0.1."""
    found: dict[str, list[dict[str, float]]] = {"Sample Factory": [], "scramjet": []}
    program = HERE / "peers" / "sample_factory_cartpole.py"
    for repeat in range(repeats):
        words = [python, str(program), "--work", "training", "--num-envs", "64", "--seconds", str(seconds)]
        words += ["--seed", str(repeat + 1)]
        answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        found["Sample Factory"].append({key: answer[key] for key in ("steps_per_second", "steps", "return")})
        common = ["--num-envs", "64", "--num-steps", "128", "--learning-rate", "0.001", "--normalize-rewards"]
        common += ["--total-timesteps", str(answer["steps"])]
        points = train(Study("gym:CartPole-v1", common, [], ["--num-actors", "2"]), "async", repeat + 1)
        last = points[-1]
        found["scramjet"].append(
            {"steps_per_second": rate(points), "steps": last["steps"], "return": last["return"]}
        )  # fmt: skip
        for name, each in found.items():
            newest = each[-1]
            speed, steps = newest["steps_per_second"], newest["steps"]
            print(f"seed {repeat + 1}, {name}: {speed:,.0f} steps/s, return {newest['return']:.1f} at step {steps:,}")
    return found


def told(values: list[float], digits: int = 0) -> str:
    """The median, and the range."""
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def table(results: dict[str, Any]) -> str:
    """All results in Markdown."""
    lines = ["| world | mode | steps/s | ratio | return at the end | seconds | lag |", "|---|---|---|---|---|---|---|"]
    for name in STUDIES:
        if name not in results:
            continue
        base = median([rate(points) for points in results[name]["sync"]])
        for mode, curves in results[name].items():
            rates = [rate(points) for points in curves]
            lags = [point["lag"] for points in curves for point in points if point["lag"] is not None]
            lines.append(
                f"| {name} | {mode} | {told(rates)} | {median(rates) / base:.2f} | "
                f"{told([points[-1]['return'] for points in curves], 1)} | "
                f"{told([points[-1]['seconds'] for points in curves], 1)} | {sum(lags) / max(1, len(lags)):.1f} |"
            )
    if "sample-factory" in results:
        lines += [
            "",
            "| Gymnasium's CartPole, 64 envs | steps trained per second | return | steps |",
            "|---|---|---|---|",
        ]
        for name, each in results["sample-factory"].items():
            speeds, returns, steps = ([one[key] for one in each] for key in ("steps_per_second", "return", "steps"))
            lines.append(f"| {name} | {told(speeds)} | {told(returns, 1)} | {told(steps)} |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, Any], path: Path) -> None:
    """Return against wall time, a panel a world."""
    if not results:
        return
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install matplotlib")
        return
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "scramjet"  # the same picture from the same numbers
    from matplotlib import pyplot

    names = [name for name in STUDIES if name in results]
    figure, panels = pyplot.subplots(1, len(names), figsize=(3.6 * len(names), 3.0), squeeze=False)
    for name, axes in zip(names, panels[0], strict=True):
        for (mode, curves), colour in zip(results[name].items(), ("#00798c", "#d1495b"), strict=True):
            for seed, points in enumerate(curves):
                seen = [point for point in points if point["return"] is not None]
                label = mode if seed == 0 else None
                axes.plot([p["seconds"] for p in seen], [p["return"] for p in seen], color=colour, label=label, lw=1)
        axes.set(title=name, xlabel="seconds", ylabel="mean return")
        axes.grid(color="#dddddd", lw=0.5)
        axes.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure what was asked for, keep what was measured before, write all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=[*STUDIES, "sample-factory"], default=["uneven", "cartpole", "hopper"]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sample-factory", metavar="PYTHON")
    parser.add_argument("--seconds", type=float, default=30.0, help="to measure Sample Factory for")
    parser.add_argument("--output", type=Path, default=Path("asynchrony"))
    parser.add_argument("--keep", action="store_true", help="go on with a study that was stopped: run what is missing")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    kept = arguments.output / "asynchrony.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}

    def write() -> None:
        kept.write_text(json.dumps(results))

    for name in arguments.only:
        if name == "sample-factory":
            if arguments.sample_factory is None:
                parser.error("--only sample-factory needs --sample-factory PYTHON_OF_ITS_ENVIRONMENT")
            results[name] = beside_sample_factory(arguments.sample_factory, arguments.seeds, arguments.seconds)
        else:
            if not arguments.keep:
                results.pop(name, None)
            measure_study(name, arguments.seeds, results.setdefault(name, {"sync": [], "async": []}), write)
        write()
    text = table(results)
    (arguments.output / "asynchrony.md").write_text(text)
    draw({name: found for name, found in results.items() if name in STUDIES}, arguments.output / "asynchrony.svg")
    print(text)


if __name__ == "__main__":
    main()
