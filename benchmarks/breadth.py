"""Learning in breadth: every world that one agent can learn alone, beside Stable-Baselines3 and its zoo.

    python benchmarks/breadth.py --jobs 16                        all tasks, all systems, seeds 1 to 3
    python benchmarks/breadth.py --systems scramjet sb3 --tasks cartpole gym:LunarLander-v3
    python benchmarks/breadth.py --budget-scale 0.5 --jobs 16     half of the steps everywhere
    python benchmarks/breadth.py --table                          the tables of what there is; runs nothing
    python benchmarks/breadth.py --list                           tasks, budgets, and what is left out

Nothing is said to a system but the world and a budget of steps. Four systems: scramjet with the code's defaults, and
Stable-Baselines3 with its own; then the tuned ones, scramjet with the presets that come with it and the settings of
rl-baselines3-zoo. Where there is no preset, or none in the zoo, a tuned system's defaults stand for it.

Every run is a process of its own on one thread. RESULTS gets a line a run, at once: the same command again goes on with
what is missing, also after a kill. Peers need stable-baselines3 and sb3-contrib; the tasks gymnasium[box2d,mujoco]
and minigrid.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from breadth_study.report import returns_table, scores_table
from breadth_study.results import append_result, budget_of, read_results
from breadth_study.systems import RANDOM, SYSTEMS, Case, case_of, run_case
from breadth_study.tasks import TASKS, Task, left_out
from needs import require_packages

ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
PEERS = ("sb3", "zoo")
LONGEST_RUN = 3600


def run_as_process(case: Case, steps: int) -> dict[str, Any]:
    """The line of one case, or of its problem, from a process of its own."""
    words = [sys.executable, __file__, "--case", json.dumps(astuple(case)), "--steps", str(steps)]
    environment = {**os.environ, **ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=LONGEST_RUN, check=False)
        if done.returncode == 0:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        problem = done.stderr[-500:]
    except subprocess.TimeoutExpired:
        problem = f"not done after {LONGEST_RUN} seconds"
    return {"system": case.system, "world": case.world, "seed": case.seed, "budget": steps, "problem": problem}


def cases_to_run(systems: Sequence[str], tasks: Sequence[Task], seeds: Sequence[int]) -> list[Case]:
    """Each run once, those that take longest first: they must not be begun when all others are done."""
    wanted = [case_of(RANDOM, task, 0) for task in tasks]
    wanted += [case_of(name, task, seed) for name in systems for task in tasks for seed in seeds]
    return sorted(dict.fromkeys(wanted), key=_likely_time, reverse=True)


def _likely_time(case: Case) -> float:
    """What a case takes, in steps of a peer."""
    task = TASKS[case.world]
    if case.system == RANDOM:
        return 0
    if case.system in PEERS:
        return task.steps
    return task.steps * (4.0 if task.convolves else 0.1 if task.is_native else 0.5)


def run_study(path: Path, cases: Sequence[Case], budgets: dict[str, int], jobs: int) -> None:
    """Run what the file does not have yet, and tell of each run that ends."""
    done = read_results(path, budgets)
    missing = [case for case in cases if case not in done]
    print(f"{len(cases) - len(missing)} of {len(cases)} runs are there; {jobs} at a time", flush=True)
    lock = threading.Lock()
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_as_process, case, budget_of(case, budgets[case.world])) for case in missing]
        for count, future in enumerate(as_completed(futures), start=1):
            line = future.result()
            with lock:
                append_result(path, line)
            found = line["problem"] if "problem" in line else f"{line['mean_return']:.4g} in {line['seconds']:.0f} s"
            print(f"{count}/{len(missing)} {line['system']} {line['world']} seed {line['seed']}: {found}", flush=True)


def print_list(tasks: Sequence[Task]) -> None:
    """Tasks with their budgets and references, and worlds that are none."""
    for task in tasks:
        print(f"{task.world:34} {task.steps:>8,} steps   reference {task.reference:g}")
    print("\nleft out:")
    for world, reason in left_out().items():
        print(f"{world:34} {reason}")


def chosen_tasks(names: Sequence[str], scale: float) -> list[Task]:
    """The named tasks, or all, with budgets scaled."""
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise SystemExit(f"no task is called {unknown[0]}; see --list")
    tasks = [TASKS[name] for name in names] or list(TASKS.values())
    return [replace(task, steps=round(task.steps * scale)) for task in tasks]


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("breadth.jsonl"), help="the file of results")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--tasks", nargs="+", default=[], help="see --list; all if left out")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--budget-scale", type=float, default=1.0, help="multiplies the steps of every task")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--table", action="store_true", help="print the tables and run nothing")
    parser.add_argument("--list", action="store_true", help="print the tasks and run nothing")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    trains = not (arguments.table or arguments.list or arguments.case)
    if trains and set(arguments.systems) & set(PEERS):
        require_packages(
            parser, "stable_baselines3", "sb3_contrib", install="pip install stable-baselines3 sb3-contrib"
        )
    if arguments.table and not arguments.results.exists():
        parser.error(f"there is no {arguments.results}; run the study first")
    return arguments


def main() -> None:
    """Run the study, or one case of it, and print the tables."""
    arguments = parsed_arguments()
    if arguments.case is not None:
        print(json.dumps(run_case(Case(*json.loads(arguments.case)), arguments.steps)))
        return
    tasks = chosen_tasks(arguments.tasks, arguments.budget_scale)
    if arguments.list:
        print_list(tasks)
        return
    budgets = {task.world: task.steps for task in chosen_tasks([], arguments.budget_scale)}
    if not arguments.table:
        run_study(arguments.results, cases_to_run(arguments.systems, tasks, arguments.seeds), budgets, arguments.jobs)
    results = read_results(arguments.results, budgets)
    print(f"\n{returns_table(results, arguments.systems, tasks, arguments.seeds)}")
    print(f"\n{scores_table(results, arguments.systems, tasks, arguments.seeds)}")


if __name__ == "__main__":
    main()
