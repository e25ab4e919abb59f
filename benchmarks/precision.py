"""Does a faster matrix product harm learning? CartPole on the GPU in each precision, five seeds.

python benchmarks/precision.py
python benchmarks/precision.py --world acrobot --seeds 3
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from needs import require_device

from scramjet import train
from scramjet.training.config.files import starting_config

KINDS = (("float32", False), ("float32", True), ("tf32", True), ("bfloat16", True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", default="cartpole")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    require_device(parser, "cuda")
    config = replace(starting_config(arguments.world), device="cuda")
    print(f"{arguments.world}, {config.total_timesteps:,} steps; return of the last weights and area under the curve")
    print(
        "| precision | fused kernels | final evaluation of each seed | mean return of all updates |\n|---|---|---|---|"
    )
    for precision, fused in KINDS:
        finals, curves = [], []
        for seed in range(1, arguments.seeds + 1):
            with tempfile.TemporaryDirectory() as runs:
                chosen = replace(config, precision=precision, fused=fused, seed=seed)
                result = train(chosen, runs_dir=runs, display="quiet")
                assert result.evaluation is not None
                finals.append(result.evaluation.mean_return)
                curves.append(mean_return(result.run_path / "metrics.jsonl"))
        shown = ", ".join(f"{final:.4g}" for final in finals)
        print(f"| {precision} | {'yes' if fused else 'no'} | {shown} | {np.mean(curves):.4g} |", flush=True)


def mean_return(path: Path) -> float:
    """Over all updates of a run, of the last hundred episodes' mean return."""
    returns = [json.loads(line)["return_100"] for line in path.read_text().splitlines()]
    return float(np.mean([value for value in returns if value is not None]))


if __name__ == "__main__":
    main()
