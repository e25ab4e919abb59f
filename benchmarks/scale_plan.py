"""How far data parallel training would go: a plan on paper, from measured times of one GPU and assumed links.

python benchmarks/scale_plan.py
python benchmarks/scale_plan.py --node-latency 20 --network-latency 10

An update of W ranks takes as long as that of one, with as many envs each, and its exchanges: one sum of the gradient a
minibatch. A sum over W ranks moves 2 (W - 1) / W times the gradient's bytes through each rank's link (both a ring and
a tree do; Patarasuk and Yuan 2009) and waits for links: once within a machine, and twice the depth of a tree between
machines. Nothing is overlapped in this plan, and no rank is slower than another.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

GPUS_PER_MACHINE = 8
RANKS = (1, 2, 8, 16, 64, 256, 1024)


@dataclass(frozen=True)
class Work:
    """One update of one GPU, as measured, and what its ranks exchange."""

    name: str
    weights: int
    milliseconds: float  # of a whole update on one GPU
    exchanges: int  # gradient steps in an update
    steps: int  # env steps in an update of one GPU


@dataclass(frozen=True)
class Links:
    """Latency in microseconds and bandwidth in GB/s of each GPU's link, within a machine and between machines."""

    node_latency: float
    node_bandwidth: float
    network_latency: float
    network_bandwidth: float

    def microseconds(self, num_bytes: int, ranks: int) -> float:
        """The time of one sum over all ranks."""
        if ranks == 1:
            return 0.0
        machines = -(-ranks // GPUS_PER_MACHINE)
        bandwidth = self.node_bandwidth if machines == 1 else self.network_bandwidth
        moved = 2 * (ranks - 1) / ranks * num_bytes / (bandwidth * 1e3)
        depth = math.ceil(math.log2(machines)) if machines > 1 else 0
        return self.node_latency + 2 * depth * self.network_latency + moved


WORKS = (
    Work("CartPole, MLP 64x64, 4096 envs x 128", 9_155, 1.60 + 3.05 + 0.62, 16, 4096 * 128),
    Work("CartPole, MLP 64x64, 65536 envs x 32", 9_155, 1.37 + 8.74 + 0.70, 16, 65536 * 32),
    Work("the same, 1 minibatch an epoch", 9_155, 1.37 + 8.74 + 0.70, 4, 65536 * 32),
    Work("an image network of 1.7 M weights, 64 games x 128 (0.89 s an update)", 1_700_000, 890.0, 16, 64 * 128),
)
"""Milliseconds of rollout, learning and episodes on one H200, 2026-11-15, when each epoch was a graph of its own, as it
still is with several processes; the last is Breakout, 9,191 steps a second, bound by its games."""


def main() -> None:
    """Print, for each work and number of ranks, the share of an update that is not spent exchanging."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node-latency", type=float, default=15.0, help="microseconds of a small sum in one machine")
    parser.add_argument("--node-bandwidth", type=float, default=450.0, help="GB/s a GPU, each way (NVLink 4)")
    parser.add_argument("--network-latency", type=float, default=5.0, help="microseconds from machine to machine")
    parser.add_argument("--network-bandwidth", type=float, default=50.0, help="GB/s a GPU, each way (400 Gb/s)")
    links = Links(**vars(parser.parse_args()))
    for work in WORKS:
        num_bytes = 4 * work.weights
        print(f"\n{work.name}: {num_bytes / 1e6:.2f} MB of gradients, {work.exchanges} exchanges an update")
        print("| GPUs | us an exchange | ms an update | efficiency | M steps/s |\n|---|---|---|---|---|")
        for ranks in RANKS:
            exchange = links.microseconds(num_bytes, ranks)
            update = work.milliseconds + work.exchanges * exchange / 1e3
            rate = ranks * work.steps / update / 1e3
            print(f"| {ranks} | {exchange:.0f} | {update:.2f} | {work.milliseconds / update:.0%} | {rate:,.2f} |")


if __name__ == "__main__":
    main()
