"""Measures the rows of the table, prints each as soon as it is known, and writes it to a file of JSON lines."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from gpu_table.rows import Row
from gpu_table.training import PPO, Machine, Training

PEERS = Path(__file__).parents[1] / "peers"
HEADER = (
    "| row | network | envs x steps | env steps, M/s | rollouts | learning | training | JAX | ratio | by |\n"
    + "|---" * 10
    + "|"
)


@dataclass(frozen=True)
class Speeds:
    """A row's speeds, in steps per second."""

    row: str
    world: str
    network: str
    num_envs: int
    num_steps: int
    env_steps_per_second: float
    rollout_steps_per_second: float
    learning_steps_per_second: float
    train_steps_per_second: float
    executor: str
    """Who acts and learns, and why."""
    jax_steps_per_second: float | None = None
    """Steps that the peer trains per second; None where it was not measured."""

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the peer."""
        return self.train_steps_per_second / self.jax_steps_per_second if self.jax_steps_per_second else None

    def line(self) -> str:
        """A line of the table, in million steps per second."""
        rates = (
            self.env_steps_per_second,
            self.rollout_steps_per_second,
            self.learning_steps_per_second,
            self.train_steps_per_second,
        )
        peer = "" if self.jax_steps_per_second is None else millions(self.jax_steps_per_second)
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        cells = [self.row, self.network, f"{self.num_envs} x {self.num_steps}", *map(millions, rates), peer, ratio]
        return f"| {' | '.join(cells)} | {self.executor} |"


def millions(rate: float) -> str:
    """A rate in millions, with three digits."""
    return f"{rate / 1e6:.3g}" if rate < 1e9 else f"{rate / 1e6:.0f}"


def measure_row(row: Row, machine: Machine, seconds: float, jax_python: str | None) -> Speeds:
    """Measure each figure of a row for about `seconds`; the peer's too where a Python with JAX is given."""
    training = Training(row.world, row.num_envs, row.num_steps, row.policy(), PPO, machine)
    env_rate = training.env_rate(seconds)
    parts = training.measure(seconds)
    note = training.executor.note
    del training
    gc.collect()
    if machine.device == "cuda":
        torch.cuda.empty_cache()
    has_peer = jax_python is not None and row.peer is not None
    return Speeds(
        row=row.name,
        world=row.world,
        network=row.network,
        num_envs=row.num_envs,
        num_steps=row.num_steps,
        env_steps_per_second=env_rate,
        rollout_steps_per_second=row.batch_size / parts.rollout,
        learning_steps_per_second=row.batch_size / parts.learning,
        train_steps_per_second=parts.steps_per_second,
        executor=note,
        jax_steps_per_second=jax_speed(jax_python, row, seconds) if has_peer else None,
    )


def jax_speed(python: str, row: Row, seconds: float) -> float:
    """Steps per second of the peer, in a process of its own that takes no more of the GPU's memory than it needs."""
    script, *words = row.peer or ()
    sizes = ["--num-envs", str(row.num_envs), "--num-steps", str(row.num_steps), "--seconds", str(seconds)]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [python, str(PEERS / script), *words, *sizes]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def print_table(
    rows: tuple[Row, ...], machine: Machine, seconds: float, *, jax_python: str | None, out: Path | None
) -> None:
    """Measure and print rows; a row that fails says why, and the others are measured all the same."""
    print(HEADER, flush=True)
    for row in rows:
        try:
            speeds = measure_row(row, machine, seconds, jax_python)
        except (RuntimeError, ValueError, subprocess.CalledProcessError) as error:
            print(f"| {row.name} | failed: {type(error).__name__}: {str(error).splitlines()[0]} |", flush=True)
            continue
        print(speeds.line(), flush=True)
        if out is not None:
            facts = {**asdict(speeds), "ratio": speeds.ratio, "device": machine.device, "precision": machine.precision}
            with out.open("a") as file:
                file.write(json.dumps(facts) + "\n")
