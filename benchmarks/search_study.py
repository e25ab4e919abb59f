"""Search beside PPO: scores over env steps and over time, the same time on one CPU core for every run.

    python benchmarks/search_study.py run FOLDER --seconds 120 --jobs 13
    python benchmarks/search_study.py run FOLDER --only cartpole,maze --seeds 1 2 3
    python benchmarks/search_study.py report FOLDER          a table, docs/search_steps.svg and docs/search_time.svg

Each run is a process with one thread that trains a world by `scramjet train WORLD --algorithm NAME` and its preset for
so many seconds. Steps per second are counted first, so that schedules end when the time does; this, compilation and
evaluations take none of it. At every tenth of the time the network alone plays 64 episodes; after the end it plays 200
unseen ones, alone and with the search that it was trained with. FOLDER/results.jsonl gets a line a run, at once: a run
that fails is a line with its error, and `run` leaves out what has a result there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from search.study_case import WORLDS, run_case
from search.study_plot import study_plot

DOCS = Path(__file__).parent.parent / "docs"
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
Case = tuple[str, str, int]
"""World, algorithm, seed."""


def run_as_process(case: Case, seconds: float) -> dict[str, Any]:
    """The result of one case, or its error, from a process of its own."""
    world, algorithm, seed = case
    command = [sys.executable, __file__, "case", world, algorithm, str(seed), "--seconds", str(seconds)]
    error = ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD}, timeout=4 * seconds + 900
        )
        if done.returncode == 0:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        error = f"exit code {done.returncode}: {done.stderr[-2000:]}"
    except subprocess.TimeoutExpired:
        error = "took far longer than its time"
    return {"world": world, "algorithm": algorithm, "seed": seed, "error": error}


def results_in(folder: Path) -> list[dict[str, Any]]:
    """The results of a folder so far; of a case that ran again, the newest."""
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return list({(r["world"], r["algorithm"], r["seed"]): r for r in results}.values())


def run(folder: Path, cases: Sequence[Case], seconds: float, jobs: int) -> None:
    """Run the cases, `jobs` at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {(r["world"], r["algorithm"], r["seed"]) for r in results_in(folder) if "error" not in r}
    left = [case for case in cases if case not in done]
    started = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool, (folder / "results.jsonl").open("a") as file:
        for number, future in enumerate(as_completed(pool.submit(run_as_process, case, seconds) for case in left), 1):
            result = future.result()
            file.write(json.dumps(result) + "\n")
            file.flush()
            name = f"{result['world']} {result['algorithm']} {result['seed']}"
            found = result.get("error") or f"{result['network']:.4g} {result.get('search', '')}"
            print(f"{time.perf_counter() - started:5.0f} s  {number}/{len(left)}  {name}: {found}", flush=True)


def report(folder: Path, docs: Path) -> None:
    """Print the table and draw the pictures."""
    results = results_in(folder)
    print(*table(results), sep="\n")
    docs.mkdir(parents=True, exist_ok=True)
    seconds = max((r["seconds"] for r in results if "error" not in r), default=0.0)
    about = f"{seconds:.0f} s of training on one CPU core; the network alone, mean and range of the seeds"
    for name, over in (("search_steps", "steps"), ("search_time", "seconds")):
        (docs / f"{name}.svg").write_text(study_plot(results, over, f"Search beside PPO, {about}"))


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each world and algorithm, in markdown."""
    head = ("world", "algorithm", "seeds", "env steps", "network alone", "with its search", "score at a tenth, at half")
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, world in WORLDS.items():
        for algorithm in world.algorithms:
            of_case = [r for r in results if (r["world"], r["algorithm"]) == (name, algorithm)]
            if good := [r for r in of_case if "error" not in r]:
                rows.append(f"| {name} ({world.score}) | {algorithm} | {' | '.join(cells_of(good))} |")
            rows += [f"| {name} | {algorithm} | seed {r['seed']} failed | | | | |" for r in of_case if "error" in r]
    return rows


def cells_of(results: Sequence[dict[str, Any]]) -> list[str]:
    """The cells of a row after the algorithm, from runs that differ in their seed."""
    steps = f"{statistics.mean(r['steps'] for r in results) / 1000:,.0f} K"
    searched = [r["search"] for r in results if "search" in r]
    with_search = f"{spread(searched)} ({results[0]['search_settings']})" if searched else "-"
    early = ", ".join(f"{statistics.mean(score_at(r, share) for r in results):.4g}" for share in (0.1, 0.5))
    return [str(len(results)), steps, spread([r["network"] for r in results]), with_search, early]


def spread(values: Sequence[float]) -> str:
    """Such as `0.93 (0.91 to 0.95)`: the mean, the least and the greatest."""
    return f"{statistics.mean(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def score_at(result: dict[str, Any], share: float) -> float:
    """The score of the last point of the curve at no more than a share of the time, or of the first after the start."""
    until = share * result["seconds"] * 1.05
    reached = [score for _, seconds, score in result["curve"][1:] if seconds <= until]
    return float(reached[-1] if reached else result["curve"][1][2])


def arguments_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line."""
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="train and write FOLDER/results.jsonl")
    running.add_argument("folder", type=Path)
    running.add_argument("--jobs", type=int, default=os.cpu_count())
    running.add_argument("--only", default=",".join(WORLDS), help="worlds, with commas between")
    running.add_argument("--algorithms", default="ppo,spo,alphazero", help="with commas between")
    running.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    reporting = commands.add_parser("report", help="print a table and draw two pictures")
    reporting.add_argument("folder", type=Path)
    reporting.add_argument("--docs", type=Path, default=DOCS, help="folder of the pictures")
    one = commands.add_parser("case", help="one run in this process; prints its result as JSON")
    one.add_argument("world", choices=list(WORLDS))
    one.add_argument("algorithm")
    one.add_argument("seed", type=int)
    for command in (running, one):
        command.add_argument("--seconds", type=float, default=120.0, help="training time of a run")
    return parser.parse_args()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments = arguments_of(parser)
    if arguments.command == "case":
        print(json.dumps(run_case(arguments.world, arguments.algorithm, arguments.seed, arguments.seconds)))
    elif arguments.command == "report":
        report(arguments.folder, arguments.docs)
    else:
        worlds, algorithms = arguments.only.split(","), arguments.algorithms.split(",")
        if unknown := set(worlds) - set(WORLDS):
            parser.error(f"no case for {', '.join(sorted(unknown))}; choose from {', '.join(WORLDS)}")
        cases = [(w, a, s) for s in arguments.seeds for w in worlds for a in WORLDS[w].algorithms if a in algorithms]
        run(arguments.folder, cases, arguments.seconds, arguments.jobs)


if __name__ == "__main__":
    main()
