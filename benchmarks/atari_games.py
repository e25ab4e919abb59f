"""Five games of Atari with the preset for all of them, beside public results of PPO.

    python benchmarks/atari_games.py --minutes 9 --steps 2M           all five at once on one GPU
    python benchmarks/atari_games.py Pong Qbert --minutes 20 --jobs 1
    python benchmarks/atari_games.py --table                          the table of what there is; runs nothing

Each game is `scramjet train ale:GAME --preset atari`; schedules end at --steps, the run at --minutes if that is first.
FOLDER gets a run for each game and seed, and curves.csv: the mean score of the last 100 whole games over env steps and
minutes. An env step is four frames.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FRAMES_PER_STEP = 4


@dataclass(frozen=True)
class PublicScores:
    """Scores of PPO after 10 M steps (40 M frames)."""

    paper: float
    """Schulman et al. 2017, table 6: the last 100 games of training, three seeds."""
    zoo: float
    """rl-baselines3-zoo's benchmark.md, commit 22e3ff2: the trained agent."""
    cleanrl: float | None = None
    """CleanRL's documentation of ppo_atari.py: the end of training, three seeds."""


PUBLIC = {
    "Pong": PublicScores(20.7, 20.989, 20.4),
    "Breakout": PublicScores(274.8, 398.0, 414.7),
    "BeamRider": PublicScores(1590, 3397, 1916),
    "Qbert": PublicScores(14293, 15627),
    "Seaquest": PublicScores(1204, 1784),
}


@dataclass(frozen=True)
class Point:
    """A place on a game's curve."""

    step: int
    minutes: float
    score: float


def run_name(game: str, seed: int) -> str:
    """The folder of a game's run."""
    return f"{game}-seed{seed}"


def train_game(game: str, seed: int, arguments: argparse.Namespace) -> str:
    """Train one game in a process of its own; the end of what it said where it failed, else nothing."""
    words = [
        *(sys.executable, "-m", "scramjet", "train", f"ale:{game}", "--preset", "atari", "--display", "quiet"),
        *("--seed", str(seed), "--runs-dir", str(arguments.folder), "--run-name", run_name(game, seed)),
        *("--device", arguments.device, "--total-timesteps", arguments.steps, "--time-limit", f"{arguments.minutes}m"),
        *("--eval.final-episodes", str(arguments.final_episodes)),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stderr[-500:] if done.returncode else ""


def curve_of(folder: Path, game: str, seed: int) -> list[Point]:
    """Scores while a game was trained; empty where there is no run, and until the first game was over."""
    path = folder / run_name(game, seed) / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [
        Point(record["step"], record["time"]["elapsed_seconds"] / 60, record["return_100"])
        for record in records
        if record.get("return_100") is not None
    ]


def write_curves(folder: Path, curves: dict[tuple[str, int], list[Point]]) -> None:
    """All curves as one table."""
    with (folder / "curves.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["game", "seed", "step", "frames", "minutes", "score"])
        for (game, seed), curve in curves.items():
            for point in curve:
                frames = point.step * FRAMES_PER_STEP
                writer.writerow([game, seed, point.step, frames, round(point.minutes, 3), round(point.score, 2)])


def score_at(curve: Sequence[Point], share: float) -> str:
    """The score where this share of a curve's steps is done."""
    reached = [point for point in curve if point.step <= share * curve[-1].step]
    return f"{reached[-1].score:,.1f}" if reached else ""


def table(curves: dict[tuple[str, int], list[Point]]) -> str:
    """In Markdown, a row for each run with its score at a quarter, half and the end of its steps."""
    lines = [
        "| game | seed | frames | minutes | score at 1/4 | at 1/2 | at the end | PPO's paper | CleanRL | zoo |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (game, seed), curve in curves.items():
        if not curve:
            continue
        last, public = curve[-1], PUBLIC[game]
        frames = f"{last.step * FRAMES_PER_STEP / 1e6:.1f} M"
        scores = [score_at(curve, share) for share in (0.25, 0.5, 1)]
        cleanrl = "" if public.cleanrl is None else f"{public.cleanrl:g}"
        cells = [
            game,
            str(seed),
            frames,
            f"{last.minutes:.1f}",
            *scores,
            f"{public.paper:g}",
            cleanrl,
            f"{public.zoo:g}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "Public scores are those after 40 M frames."])


def parsed_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", help=f"of: {', '.join(PUBLIC)}; all if left out")
    parser.add_argument("--folder", type=Path, default=Path("runs/atari_games"))
    parser.add_argument("--minutes", type=int, default=10, help="time limit of each game")
    parser.add_argument("--steps", default="10M", help="env steps of each game, where its schedules end")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--jobs", type=int, default=len(PUBLIC), help="games trained at once")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--final-episodes", type=int, default=0, help="games played after training")
    parser.add_argument("--table", action="store_true", help="print the table and run nothing")
    arguments = parser.parse_args()
    unknown = [game for game in arguments.games if game not in PUBLIC]
    if unknown:
        parser.error(f"there are no public scores of {unknown[0]} here; games: {', '.join(PUBLIC)}")
    return arguments


def main() -> None:
    """Train the games and print the table."""
    arguments = parsed_arguments()
    cases = [(game, seed) for seed in arguments.seeds for game in arguments.games or PUBLIC]
    missing = [case for case in cases if not (arguments.folder / run_name(*case)).exists()]
    if not arguments.table:
        with ThreadPoolExecutor(arguments.jobs) as jobs:
            for case, problem in zip(
                missing, jobs.map(lambda case: train_game(*case, arguments), missing), strict=True
            ):
                print(f"{case[0]} seed {case[1]}: {problem or 'done'}", flush=True)
    curves = {case: curve_of(arguments.folder, *case) for case in cases}
    if any(curves.values()):
        write_curves(arguments.folder, curves)
    print(table(curves))


if __name__ == "__main__":
    main()
