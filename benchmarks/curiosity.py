"""Curiosity: what it costs, and which tasks with rare rewards it solves.

    python benchmarks/curiosity.py speed --device cpu              steps per second of training beside plain PPO
    python benchmarks/curiosity.py run FOLDER --device cuda --minutes 4 --jobs 6 [--tasks door_key_8 ...]
    python benchmarks/curiosity.py table FOLDER                    a table of what is in the folder, in Markdown

`speed` trains two runs in turns in one process, with and without curiosity, and gives the ratio of their steps per
second, the median of five rounds. `run` trains each task with each method and seed for so many minutes or up to its
steps, `--jobs` at a time, by `scramjet train`; what has been run is not run again. A task counts as solved where the
mean return of the last 100 episodes reached 0.9 of the best return: that of the best run of any method in the folder,
or for deep_sea the largest possible one. `table` gives for each task and method how many seeds solved it and the median
of their steps and minutes until then.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from needs import require_device

METHODS = ("none", "rnd", "icm", "noveld", "counts", "e3b")
TASKS: dict[str, tuple[str, ...]] = {
    "deep_sea_30": ("deep_sea", "--env.size", "30", "--total-timesteps", "8M"),
    "door_key_8": ("door_key", "--env.size", "8", "--total-timesteps", "20M"),
    "multi_room_n6": (
        "multi_room", "--env.min-rooms", "6", "--env.max-rooms", "6", "--total-timesteps", "100M",
    ),
    "key_corridor_s4r3": ("key_corridor", "--env.room-size", "4", "--env.num-rows", "3", "--total-timesteps", "200M"),
    "key_corridor_s6r3": ("key_corridor", "--env.room-size", "6", "--env.num-rows", "3", "--total-timesteps", "500M"),
    "obstructed_maze_2dlh": ("obstructed_maze", "--total-timesteps", "500M"),
}  # fmt: skip
BEST = {"deep_sea_30": 0.99}
"""Largest possible mean returns, where they are known."""
SHAPE = ("--policy.encoder", "mlp", "--policy.hidden", "256", "256", "--policy.activation", "relu")
SIZES = {
    "deep_sea_30": (
        "--num-envs", "256", "--num-steps", "30", "--num-epochs", "4", "--num-minibatches", "8", "--learning-rate",
        "0.001@0,0@end", "--normalize-advantages", "off",
    ),
}  # fmt: skip
USUAL = (
    "--num-envs", "1024", "--num-steps", "128", "--num-epochs", "4", "--num-minibatches", "16",
    "--learning-rate", "5e-4", "--entropy-coef", "0.001", "--gamma", "0.995", *SHAPE,
)  # fmt: skip


def hardware() -> str:
    """The machine and the day, for a table's caption."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{platform.processor() or platform.machine()}, {gpu}, {datetime.date.today().isoformat()}"


@contextlib.contextmanager
def session(world: str, method: str, device: str, num_envs: int, num_steps: int, folder: Path) -> Iterator[Any]:
    """A session of a world with a method of curiosity."""
    from scramjet.algorithms.config import PPOConfig
    from scramjet.training import start
    from scramjet.training.config.run_config import EvaluationConfig, RunConfig

    config = RunConfig(
        env=world, num_envs=num_envs, num_steps=num_steps,
        device=device, total_timesteps=10**12, curiosity=None if method == "none" else method,
        ppo=PPOConfig(num_epochs=4, num_minibatches=4), eval=EvaluationConfig(every=0, final_episodes=0),
    )  # fmt: skip
    made = start.begin(start.StartRequest(config=config, runs_dir=folder, run_name=f"{world}-{method}"))
    with made.run, contextlib.closing(made):
        yield made


def train_for(made: Any, seconds: float) -> float:
    """Train a session for some seconds; returns its steps per second."""
    begun, updates = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        made.learner.update(made.learner.prepare(made.collector.collect()), 0)
        made.collector.learned(updates, 0)
        made.collector.episodes()
        updates += 1
    return updates * made.config.batch_size / passed


def measure_speed(args: argparse.Namespace) -> None:
    """Print the speed of every method beside plain PPO."""
    print(f"{hardware()}; 4 epochs of 4 minibatches, steps trained a second, ratio to plain PPO in turns\n")
    print("| world | method | plain | curious | ratio |\n|---|---|---|---|---|")
    usual_envs, usual_steps = (1024, 128) if args.device == "cpu" else (4096, 64)
    sizes = args.num_envs or usual_envs, args.num_steps or usual_steps
    for world in args.worlds:
        for method in args.methods:
            with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
                pair = [
                    stack.enter_context(session(world, m, args.device, *sizes, Path(folder))) for m in ("none", method)
                ]
                for each in pair:
                    train_for(each, args.seconds)
                rounds = [[train_for(each, args.seconds) for each in pair] for _ in range(5)]
            plain, curious = (statistics.median(column) for column in zip(*rounds, strict=True))
            ratio = statistics.median(mine / without for without, mine in rounds)
            print(f"| {world} | {method} | {plain:,.0f} | {curious:,.0f} | {ratio:.2f} |", flush=True)


def train_case(folder: Path, case: tuple[str, str, int], args: argparse.Namespace) -> str:
    """Train one task with one method and seed, unless it has been; returns a line about it."""
    task, method, seed = case
    name = f"{task}-{method}-{seed}"
    if (folder / name).exists():
        return f"{name}: is there"
    world, *flags = TASKS[task]
    if args.steps:
        flags += ["--total-timesteps", args.steps]
    command = [
        sys.executable, "-m", "scramjet", "train", world, *flags, *SIZES.get(task, USUAL), "--curiosity", method,
        *args.flags, "--seed", str(seed), "--device", args.device, "--time-limit", f"{args.minutes}m",
        "--runs-dir", str(folder), "--run-name", name, "--display", "quiet", "--eval.every", "0",
        "--eval.final-episodes", "0", "--checkpoint.every", "0",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    problem = done.stderr.strip()[-300:] if done.returncode not in (0, 130) else ""
    curve = curve_of(folder / name)
    last = f"{curve[-1][2]:.3f} after {curve[-1][0]:,} steps, {curve[-1][1] / 60:.1f} min" if curve else "no curve"
    return f"{name}: {last} {problem}"


def run_study(args: argparse.Namespace) -> None:
    """Train all tasks with all methods and seeds, several at a time."""
    args.folder.mkdir(parents=True, exist_ok=True)
    cases = [(task, method, seed) for seed in args.seeds for task in args.tasks for method in args.methods]
    with ThreadPoolExecutor(args.jobs) as workers:
        for line in workers.map(lambda case: train_case(args.folder, case, args), cases):
            print(line, flush=True)


def curve_of(run: Path) -> list[tuple[int, float, float]]:
    """Steps, seconds and the mean return of the last 100 episodes after each update of a run that had as many."""
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [
        (r["step"], r["time"]["elapsed_seconds"], r["return_100"]) for r in records if r.get("return_100") is not None
    ]


def print_table(args: argparse.Namespace) -> None:
    """Print which seeds solved which task by which method, and when."""
    curves = {run.name: curve_of(run) for run in sorted(args.folder.iterdir()) if run.is_dir()}
    print(f"{hardware()}\n\n| task | best |", " | ".join(METHODS), "|\n|---|---|" + "---|" * len(METHODS))
    for task in TASKS:
        mine = {name: curve for name, curve in curves.items() if name.startswith(task + "-") and curve}
        if not mine:
            continue
        best = BEST.get(task) or max(value for curve in mine.values() for _, _, value in curve)
        cells = [cell_of([c for n, c in mine.items() if n.split("-")[1] == method], best) for method in METHODS]
        print(f"| {task} | {best:.3f} |", " | ".join(cells), "|")


def cell_of(curves: Sequence[list[tuple[int, float, float]]], best: float) -> str:
    """How many of these runs solved their task, the median of steps and minutes until then; else how far they came."""
    if not curves:
        return ""
    solved = [at for curve in curves if (at := next((c for c in curve if c[2] >= 0.9 * best), None))]
    if not solved:
        highest = statistics.median(max(value for _, _, value in curve) for curve in curves)
        return f"0 of {len(curves)} ({highest:.2f})"
    steps, seconds = (statistics.median(each[k] for each in solved) for k in (0, 1))
    return f"{len(solved)} of {len(curves)}: {steps / 1e6:.1f} M, {seconds / 60:.1f} min"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    speed = commands.add_parser("speed")
    speed.add_argument("--device", default="cpu")
    speed.add_argument("--worlds", nargs="+", default=["cartpole", "door_key"])
    speed.add_argument("--methods", nargs="+", default=list(METHODS[1:]))
    speed.add_argument("--seconds", type=float, default=2.0)
    speed.add_argument("--num-envs", type=int, help="1024 on the CPU, 4096 on the GPU if left out")
    speed.add_argument("--num-steps", type=int, help="128 on the CPU, 64 on the GPU if left out")
    speed.set_defaults(do=measure_speed)
    run = commands.add_parser("run")
    run.add_argument("folder", type=Path)
    run.add_argument("--device", default="cpu")
    run.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    run.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    run.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    run.add_argument("--minutes", type=float, default=5.0)
    run.add_argument("--steps", help="total steps of every task in place of its own")
    run.add_argument("--jobs", type=int, default=1)
    run.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="further flags of scramjet train")
    run.set_defaults(do=run_study)
    table = commands.add_parser("table")
    table.add_argument("folder", type=Path)
    table.set_defaults(do=print_table)
    args = parser.parse_args()
    if hasattr(args, "device"):
        require_device(parser, args.device)
    if args.do is print_table and not args.folder.is_dir():
        parser.error(f"there is no folder {args.folder}; make it with `run`")
    args.do(args)


if __name__ == "__main__":
    main()
