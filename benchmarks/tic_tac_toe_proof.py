"""Whether tic-tac-toe's preset never loses, decided by looking at every position.

    python benchmarks/tic_tac_toe_proof.py                three seeds of the preset
    python benchmarks/tic_tac_toe_proof.py runs/mine      runs or checkpoints that there are

For each policy: the worst result that any replies can lead to from either seat, its most likely moves being played, and
the share of all positions in which its move keeps the value of the game.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import scramjet
from scramjet.arena.exploitability import best_play, game_tree, worst_returns
from scramjet.envs import load_env


def judge(name: str, policy_path: str | Path, seconds: float = 0.0) -> None:
    """Print a row for a policy."""
    tree = game_tree(load_env("tic_tac_toe"))
    actions = scramjet.load_policy(policy_path).act(tree.obs, mask=tree.mask).numpy()
    worst = worst_returns(tree, actions)
    kept = best_play(tree).keeps_value[np.arange(len(actions)), actions]
    verdict = "never loses" if (worst >= 0).all() else "loses"
    print(
        f"| {name} | {worst[0]:g} | {worst[1]:g} | {verdict} | {100 * kept.mean():.2f} % | {seconds:.0f} |", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="default: train the preset")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print(
        "| policy | worst first | worst second | verdict | moves that keep the value | seconds |\n" + "|---" * 6 + "|"
    )
    for run in arguments.runs:
        judge(run, run)
    for seed in range(1, 1 + arguments.seeds if not arguments.runs else 1):
        with tempfile.TemporaryDirectory() as runs:
            started = time.perf_counter()
            result = scramjet.train("tic_tac_toe", seed=seed, runs_dir=runs, display="quiet")
            judge(f"seed {seed}", result.run_path, time.perf_counter() - started)


if __name__ == "__main__":
    main()
