"""Training and env steps on a GPU, in steps a second.

    python benchmarks/gpu.py                        every section, one after the other
    python benchmarks/gpu.py --precision bfloat16
    python benchmarks/gpu.py --only training --jax PYTHON_WITH_JAX      beside programs in JAX, peers/jax_*.py
    python benchmarks/gpu.py --only training --rows lstm snake --out speeds.jsonl
    python benchmarks/gpu.py --only memory --memory-envs 49152
    python benchmarks/gpu.py --only training --device cpu --num-envs 16 --num-steps 8 --seconds 0.2     to try it out

    training  every kind of network: env steps with random actions, rollouts, learning (advantages and gradient steps)
              and training (all of it, and one reading of metrics and episodes an update); 4 epochs, 4 minibatches
    envs      env steps of four worlds at large sizes
    memory    the most that torch holds while BinPack is learned
    host      training with envs on the CPU, stepped by as many threads as a pool takes, or --num-threads
    startup   seconds from the start of `scramjet train cartpole` to its first update, see startup.py

`--rows` takes rows of training whose names begin so: `mlp` is CartPole with 64x64 networks at six sizes. Figures are
medians of five repeats. Env steps are 32 at a time, recorded as a CUDA graph, with legal random actions chosen
beforehand. `--out` appends a JSON object for each row.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from gpu_table.rows import rows_named
from gpu_table.table import print_table
from gpu_table.training import PPO, Machine, Training
from needs import require_device
from startup import print_startup

from scramjet.commands.bench import measure_gpu_env_rate
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.envs import load_env
from scramjet.runtime.devices import describe_gpu, keep_freed_memory, set_precision
from scramjet.training.config.files import starting_config

ENV_SIZES = (("cartpole", 1 << 20), ("maze", 1 << 20), ("connect_four", 1 << 20), ("binpack", 1 << 18))
MEMORY_SIZES = (512, 2048)
HOST_SIZES = (("cartpole", 1024, 128), ("cartpole", 4096, 128), ("connect_four", 1024, 32))
SECTIONS = ("training", "envs", "memory", "host", "startup")
ON_ANY_DEVICE = ("training", "startup")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="tf32")
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS)
    parser.add_argument("--rows", metavar="NAME", nargs="+", help="of training")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: training and startup alone")
    parser.add_argument("--num-envs", type=int, help="of every row of training, in place of its own")
    parser.add_argument("--num-steps", type=int, help="of every row of training, in place of its own")
    parser.add_argument("--seconds", type=float, default=2.0, help="to measure each figure for")
    parser.add_argument("--out", metavar="FILE", type=Path, help="append the rows of training, a JSON object a line")
    parser.add_argument("--memory-envs", metavar="N", type=int, nargs="+", default=MEMORY_SIZES)
    parser.add_argument("--num-threads", type=int, help="of envs on the CPU")
    parser.add_argument("--jax", metavar="PYTHON", help="measure the peers in JAX too, one at a time")
    arguments = parser.parse_args()
    machine = Machine(arguments.device, arguments.precision, num_threads=arguments.num_threads)
    sections = [name for name in arguments.only if machine.device == "cuda" or name in ON_ANY_DEVICE]
    if not sections:
        parser.error(f"--device cpu has {' and '.join(ON_ANY_DEVICE)} alone, and --only asks for others")
    require_device(parser, machine.device)
    try:
        rows = rows_named(arguments.rows)
    except ValueError as error:
        parser.error(str(error))
    keep_freed_memory()
    if machine.device == "cuda":
        set_precision(machine.precision)
        print(f"{describe_gpu()}; {machine.precision}", flush=True)
    if "training" in sections:
        print()
        rows = tuple(row.resized(arguments.num_envs, arguments.num_steps) for row in rows)
        print_table(rows, machine, arguments.seconds, jax_python=arguments.jax, out=arguments.out)
    if "envs" in sections:
        env_steps(arguments.seconds)
    if "memory" in sections:
        memory(machine, arguments.memory_envs)
    if "host" in sections:
        host(replace(machine, env_device="cpu"), arguments.seconds)
    if "startup" in sections:
        print()
        print_startup(machine.device, repeats=1)


def env_steps(seconds: float) -> None:
    print("\n| world | envs | M env steps/s |\n|---|---|---|")
    for world, num_envs in ENV_SIZES:
        rate = measure_gpu_env_rate(CudaPool(load_env(world), num_envs), seconds)
        print(f"| {world} | {num_envs:,} | {rate.median / 1e6:,.1f} |", flush=True)
        torch.cuda.empty_cache()


def memory(machine: Machine, sizes: list[int]) -> None:
    """The most that torch held during two updates of BinPack, as the batch grows; minibatches stay a quarter of it."""
    config = starting_config("binpack")
    ppo = replace(PPO, num_epochs=1)
    print("\n| BinPack envs x steps | GiB at most | M of samples |\n|---|---|---|")
    for num_envs in sizes:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        work = Training("binpack", num_envs, config.num_steps, config.policy, ppo, machine)
        for _ in range(2):
            work.update()
        held = torch.cuda.max_memory_reserved() / 2**30
        print(f"| {num_envs} x {config.num_steps} | {held:.2f} | {num_envs * config.num_steps / 1e6:.3f} |", flush=True)
        del work


def host(machine: Machine, seconds: float) -> None:
    """Training with envs on the CPU and networks on the GPU."""
    print(
        "\n| envs on the CPU | envs x steps | threads | M steps/s | ms an update: rollout | learning |\n"
        + "|---" * 6
        + "|"
    )
    for world, num_envs, num_steps in HOST_SIZES:
        work = Training(world, num_envs, num_steps, starting_config(world).policy, PPO, machine)
        parts = work.measure(seconds)
        sizes = f"| {world} | {num_envs} x {num_steps} | {work.pool.num_threads} |"
        speed = f"{parts.steps_per_second / 1e6:.2f}"
        print(f"{sizes} {speed} | {parts.rollout * 1e3:.2f} | {parts.learning * 1e3:.2f} |", flush=True)
        del work


if __name__ == "__main__":
    main()
