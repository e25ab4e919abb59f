"""Training and env steps on a GPU, in steps a second.

    python benchmarks/gpu.py                        training at four sizes, env steps of four worlds, memory of BinPack,
                                                    training with envs on the CPU
    python benchmarks/gpu.py --precision bfloat16
    python benchmarks/gpu.py --only memory --memory-envs 49152
    python benchmarks/gpu.py --only training --jax PYTHON_WITH_JAX      beside one XLA program, peers/jax_cartpole.py

Training is CartPole with separate 64x64 tanh networks, 4 epochs, 4 minibatches: rollout, advantages, all gradient steps
and one reading of metrics and episodes an update. Figures are medians of five repeats. Env steps are 32 at a time,
recorded as a CUDA graph, with legal random actions chosen beforehand. Envs on the CPU are stepped by as many threads as
a pool takes, or --num-threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from scramjet.accelerate.choice import choose_executor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.commands.output.rates import measure_gpu_env_rate
from scramjet.compile.cuda import require_cuda
from scramjet.engine.worlds.cuda_pool import CudaPool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.runtime.machine.devices import describe_gpu, set_precision
from scramjet.training.config.files import starting_config
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer

SIZES = ((1024, 128), (4096, 128), (16384, 64), (65536, 32))
ENV_SIZES = (("cartpole", 1 << 20), ("maze", 1 << 20), ("connect_four", 1 << 20), ("binpack", 1 << 18))
MEMORY_SIZES = (512, 2048)
HOST_SIZES = (("cartpole", 1024, 128), ("cartpole", 4096, 128), ("connect_four", 1024, 32))
REPEATS, UPDATES = 5, 20
PPO = PPOConfig(num_epochs=4, num_minibatches=4, normalize_observations=False, normalize_rewards=False)


class Training:
    """A policy and a learner on the GPU, and a pool there or on the CPU."""

    def __init__(
        self,
        world: str,
        num_envs: int,
        num_steps: int,
        policy: PolicyConfig,
        ppo: PPOConfig,
        precision: str,
        *,
        envs_on_gpu: bool = True,
        num_threads: int | None = None,
    ) -> None:
        torch.manual_seed(0)
        env = load_env(world)
        network = default_network(env.observation_space, env.action_space, policy)
        self.pool = CudaPool(env, num_envs) if envs_on_gpu else NativePool(env, num_envs, num_threads=num_threads)
        self.policy = Policy(network, env.observation_space, env.action_space, policy).to("cuda")
        self.policy.uses_bfloat16 = precision == "bfloat16"
        executor = choose_executor(self.policy, self.pool, fused=True, precision=precision)
        self.player = RolloutPlayer(self.pool, executor, num_steps)
        self.pool.reset(0, out=self.player.buffers.last)
        self.learner = Learner.for_rollout(self.player.rollout, executor, ppo, total_steps=10**9, seed=0)
        self.generator = torch.Generator("cuda").manual_seed(0)

    def update(self) -> np.ndarray:
        """One update; the seconds of rollout, learning and reading of episodes."""
        times = [time.perf_counter()]
        rollout = self.player.play(self.generator)
        times.append(time.perf_counter())
        self.learner.update(self.learner.prepare(rollout), 0)
        times.append(time.perf_counter())
        self.pool.episodes()
        times.append(time.perf_counter())
        return np.diff(times)

    def measure(self) -> tuple[float, np.ndarray]:
        """Million steps per second, and the milliseconds of each part of an update."""
        for _ in range(4):
            self.update()
        parts, rates = [], []
        for _ in range(REPEATS):
            started = time.perf_counter()
            parts += [self.update() for _ in range(UPDATES)]
            rates.append(UPDATES * self.player.rollout.log_prob.numel() / (time.perf_counter() - started) / 1e6)
        return float(np.median(rates)), np.median(parts, axis=0) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="tf32")
    parser.add_argument("--only", choices=("training", "envs", "memory", "host"))
    parser.add_argument("--memory-envs", metavar="N", type=int, nargs="+", default=MEMORY_SIZES)
    parser.add_argument("--num-threads", type=int, help="of envs on the CPU")
    parser.add_argument("--jax", metavar="PYTHON", help="measure the peer in JAX too, one at a time")
    arguments = parser.parse_args()
    require_cuda()
    set_precision(arguments.precision)
    print(f"{describe_gpu()}; {arguments.precision}\n")
    if arguments.only in (None, "training"):
        training(arguments.precision, arguments.jax)
    if arguments.only in (None, "envs"):
        env_steps()
    if arguments.only in (None, "memory"):
        memory(arguments.precision, arguments.memory_envs)
    if arguments.only in (None, "host"):
        host(arguments.precision, arguments.num_threads)


def training(precision: str, jax_python: str | None) -> None:
    beside = "" if jax_python is None else " JAX, M steps/s | ratio |"
    print(f"| envs x steps | M steps/s | ms an update: rollout | learning | episodes |{beside}")
    print("|---" * (5 if jax_python is None else 7) + "|")
    for num_envs, num_steps in SIZES:
        work = Training("cartpole", num_envs, num_steps, PolicyConfig(), PPO, precision)
        speed, (rollout, learning, episodes) = work.measure()
        del work
        torch.cuda.empty_cache()
        line = f"| {num_envs} x {num_steps} | {speed:.1f} | {rollout:.2f} | {learning:.2f} | {episodes:.2f} |"
        if jax_python is not None:
            peer = jax_speed(jax_python, num_envs, num_steps) / 1e6
            line += f" {peer:.1f} | {speed / peer:.2f} |"
        print(line, flush=True)


def jax_speed(python: str, num_envs: int, num_steps: int) -> float:
    """Steps per second of the peer, in a process of its own that takes no more of the GPU's memory than it needs."""
    script = Path(__file__).parent / "peers" / "jax_cartpole.py"
    sizes = ["--num-envs", str(num_envs), "--num-steps", str(num_steps), "--seconds", "2"]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run([python, str(script), *sizes], env=environment, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_second"])


def env_steps() -> None:
    print("\n| world | envs | M env steps/s |\n|---|---|---|")
    for world, num_envs in ENV_SIZES:
        rate = measure_gpu_env_rate(CudaPool(load_env(world), num_envs), 1.0)
        print(f"| {world} | {num_envs:,} | {rate.median / 1e6:,.1f} |", flush=True)
        torch.cuda.empty_cache()


def memory(precision: str, sizes: list[int]) -> None:
    """The most that torch held during two updates of BinPack, as the batch grows; minibatches stay a quarter of it."""
    config = starting_config("binpack")
    ppo = replace(PPO, num_epochs=1)
    print("\n| BinPack envs x steps | GiB at most | M of samples |\n|---|---|---|")
    for num_envs in sizes:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        work = Training("binpack", num_envs, config.num_steps, config.policy, ppo, precision)
        for _ in range(2):
            work.update()
        held = torch.cuda.max_memory_reserved() / 2**30
        print(f"| {num_envs} x {config.num_steps} | {held:.2f} | {num_envs * config.num_steps / 1e6:.3f} |", flush=True)
        del work


def host(precision: str, num_threads: int | None) -> None:
    """Training with envs on the CPU and networks on the GPU."""
    print(
        "\n| envs on the CPU | envs x steps | threads | M steps/s | ms an update: rollout | learning |\n"
        + "|---" * 6
        + "|"
    )
    for world, num_envs, num_steps in HOST_SIZES:
        policy = starting_config(world).policy
        envs = {"envs_on_gpu": False, "num_threads": num_threads}
        work = Training(world, num_envs, num_steps, policy, PPO, precision, **envs)
        speed, (rollout, learning, _) = work.measure()
        sizes = f"| {world} | {num_envs} x {num_steps} | {work.pool.num_threads} |"
        print(f"{sizes} {speed:.2f} | {rollout:.2f} | {learning:.2f} |", flush=True)
        del work


if __name__ == "__main__":
    main()
