"""What it costs to train in several processes: steps trained a second, and the time of one exchange.

    python benchmarks/ranks.py                                    all parts, two to three minutes on two quiet cores
    python benchmarks/ranks.py --only threads --worlds cartpole   some parts, some worlds
    python benchmarks/ranks.py --rounds 9                         more repeats on a busy machine

Parts:
    threads     two processes with one thread each against one process with two threads, 1024 envs
    weak        two processes with 512 envs each against one process with 512 envs, one thread each
    latency     two processes where each exchange takes 0, 50, 200 and 1000 microseconds longer
    exchange    the time of one exchange, by its size
    overlap     a large network: gradients exchanged layer by layer while backward goes on, against all at once after it
    difference  how far weights are from those that one process learns, after 1 update and after 100

An update is a rollout of 64 steps, then four passes of 64 minibatches, as scramjet trains without a preset but for the
number of passes. All processes are started first and wait without using their core; arrangements then take turns of a
second each, and figures are medians of their turns. Processes are joined by gloo on this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from scramjet.algorithms.config import PPOConfig
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import load_env
from scramjet.executors.choice import choose_executor
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.runtime.devices import set_threads
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.ranks.group import ProcessGroup
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer

NUM_ENVS, NUM_STEPS = 1024, 64
PPO = PPOConfig(num_epochs=4, num_minibatches=64)
WORLDS = {"cartpole": (64, 64), "game_2048": (128, 128)}
"""Worlds to train on, and the hidden layers of their policies."""
PARTS = ("threads", "weak", "latency", "exchange", "overlap", "difference")
DELAYS = (0, 50, 200, 1000)
SIZES = (1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Numbers in an exchange, of four bytes each."""
TURN = 1.0
"""Seconds that an arrangement trains before it is another's turn."""


class Delayed(Ranks):
    """Ranks whose sums take longer, as between machines that are far apart."""

    def __init__(self, ranks: Ranks) -> None:
        self.rank, self.size, self._ranks = ranks.rank, ranks.size, ranks
        self.delay = 0.0  # seconds

    def add(self, numbers: Tensor) -> None:
        self._ranks.add(numbers)
        until = time.perf_counter() + self.delay if self.delay else 0.0
        while time.perf_counter() < until:  # a sleep would last 50 microseconds more
            pass

    def gather(self, data: bytes) -> list[bytes]:
        return self._ranks.gather(data)

    def from_first(self, data: bytes) -> bytes:
        return self._ranks.from_first(data)


class Worker:
    """One process of an arrangement: trains when it is told to."""

    def __init__(self, ranks: Ranks, num_threads: int) -> None:
        set_threads(num_threads)
        self.ranks, self.num_threads = ranks, num_threads

    def prepare(self, world: str, num_envs: int, is_warm: bool = True) -> str:
        """Be ready to train on `num_envs` envs of a world, all ranks together; returns what learns, in words.

        `is_warm`: after a first update, which compiles.
        """
        env, own = load_env(world), num_envs // self.ranks.size
        torch.manual_seed(0)
        shape, spaces = PolicyConfig(hidden=WORLDS[world]), (env.observation_space, env.action_space)
        pool = NativePool(env, own, num_threads=self.num_threads)
        policy = Policy(default_network(*spaces, shape), *spaces, shape, normalize_observations=True)
        executor = choose_executor(policy, pool, fused=True)
        self.player = RolloutPlayer(pool, executor, NUM_STEPS)
        given: dict[str, Any] = {"total_steps": 10**9, "seed": 0}
        self.learner = Learner.for_rollout(self.player.rollout, executor, PPO, **given, ranks=self.ranks)
        self.generator = torch.Generator().manual_seed(self.ranks.rank)
        pool.reset(self.ranks.rank * own, out=self.player.buffers.last)
        if is_warm:
            self.train(1, 0)
        return executor.note

    def train(self, num_updates: int, delay: float) -> float:
        """Take updates with an exchange that is `delay` seconds slower; returns the seconds of one."""
        if isinstance(self.ranks, Delayed):
            self.ranks.delay = delay
        self.ranks.gather(b"")  # all begin together
        started = time.perf_counter()
        for _ in range(num_updates):
            self.learner.update(self.learner.prepare(self.player.play(self.generator)), 0)
        return (time.perf_counter() - started) / num_updates

    def exchange(self, size: int, repeats: int) -> float:
        """The seconds of one sum of `size` numbers, the mean of some in a row."""
        numbers = torch.ones(size)
        self.ranks.add(numbers)
        started = time.perf_counter()
        for _ in range(repeats):
            self.ranks.add(numbers)
        return (time.perf_counter() - started) / repeats

    def overlap(self, width: int, repeats: int) -> tuple[int, float, float]:
        """A network's number of weights, and the median seconds of a backward pass of 512 samples with its exchange:
        all gradients after it, and each layer's as soon as they are there."""
        layers = [torch.nn.Linear(64 if k == 0 else width, width) for k in range(4)]
        network = torch.nn.Sequential(*(module for layer in layers for module in (layer, torch.nn.Tanh())))
        parameters = list(network.parameters())
        gradients = torch.zeros(sum(parameter.numel() for parameter in parameters))
        parts = gradients.split([layer.weight.numel() + layer.bias.numel() for layer in layers])
        for layer, part in zip(layers, parts, strict=True):
            layer.weight.grad = part[: layer.weight.numel()].view_as(layer.weight)
            layer.bias.grad = part[layer.weight.numel() :]
        begun, missing = [], {}

        def begin(number: int) -> None:  # when a gradient of this layer is there
            missing[number] = missing.get(number, 2) - 1
            if not missing[number]:
                begun.append(dist.all_reduce(parts[number], async_op=True))

        obs, seconds = torch.randn(512, 64), ([], [])
        for repeat in range(2 * repeats + 2):
            overlaps = repeat % 2 == 1
            hooks = [
                parameter.register_post_accumulate_grad_hook(lambda _, number=number: begin(number))
                for number, layer in enumerate(layers if overlaps else ())
                for parameter in layer.parameters()
            ]
            gradients.zero_()
            self.ranks.gather(b"")
            started = time.perf_counter()
            network(obs).square().mean().backward()
            if not overlaps:
                begun.append(dist.all_reduce(gradients, async_op=True))
            for each in begun:
                each.wait()
            seconds[overlaps].append(time.perf_counter() - started)
            begun.clear()
            missing.clear()
            for hook in hooks:
                hook.remove()
        after, during = (statistics.median(each[1:]) for each in seconds)
        return gradients.numel(), after, during

    def learn_random(self, num_updates: int) -> dict[str, np.ndarray]:
        """The weights after updates from the same random rollouts, of which each rank has its rows."""
        generator = torch.Generator().manual_seed(2)
        for _ in range(num_updates):
            self._fill(generator)
            self.learner.update(self.learner.prepare(self.player.rollout), 0)
        return {name: tensor.detach().numpy().copy() for name, tensor in self.learner.policy.named_parameters()}

    @torch.inference_mode()
    def _fill(self, generator: torch.Generator) -> None:
        rollout = self.player.rollout
        own = rollout.reward.shape[1]
        rows, everyones = slice(self.ranks.rank * own, (self.ranks.rank + 1) * own), (NUM_STEPS, own * self.ranks.size)
        for target in (rollout.obs, rollout.log_prob, rollout.value, rollout.reward):
            shape = (target.shape[0], everyones[1], *target.shape[2:])
            target.copy_(torch.randn(shape, generator=generator)[:, rows])
        rollout.log_prob.mul_(0.1).sub_(0.7)
        rollout.action.copy_(torch.randint(2, everyones, generator=generator)[:, rows])
        rollout.terminated.copy_((torch.rand(everyones, generator=generator) < 0.02)[:, rows])


def work(rank: int, size: int, port: int, num_threads: int, pipe: Connection) -> None:
    """Run a worker that calls the methods it is sent the names of, until it is sent None."""
    ranks: Ranks = ALONE
    if size > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
        ranks = Delayed(ProcessGroup(local_rank=rank, local_size=size))
    worker = Worker(ranks, num_threads)
    while (call := pipe.recv()) is not None:
        name, arguments = call
        pipe.send(getattr(worker, name)(*arguments))


class Arrangement:
    """Some processes that train together."""

    def __init__(self, num_processes: int, num_threads: int, num_envs: int) -> None:
        self.num_envs = num_envs
        self._pipes, self._processes = [], []
        context = multiprocessing.get_context("spawn")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        for rank in range(num_processes):
            pipe, other = context.Pipe()
            arguments = (rank, num_processes, port, num_threads, other)
            self._processes.append(context.Process(target=work, args=arguments, daemon=True))
            self._processes[-1].start()
            self._pipes.append(pipe)

    def call(self, name: str, *arguments: Any) -> list[Any]:
        """Call a method of every process's worker, and return what each returns."""
        for pipe in self._pipes:
            pipe.send((name, arguments))
        return [pipe.recv() for pipe in self._pipes]

    def rate(self, num_updates: int, delay: float = 0.0) -> float:
        """Steps trained a second."""
        return self.num_envs * NUM_STEPS / max(self.call("train", num_updates, delay))

    def end(self) -> None:
        """End the processes."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join(10)


@contextmanager
def arrangements() -> Iterator[dict[str, Arrangement]]:
    """The arrangements that are compared, by name."""
    made = {
        "2 threads": Arrangement(1, 2, NUM_ENVS),
        "2 processes": Arrangement(2, 1, NUM_ENVS),
        "half": Arrangement(1, 1, NUM_ENVS // 2),
    }
    try:
        yield made
    finally:
        for each in made.values():
            each.end()


def compare(made: dict[str, Arrangement], world: str, parts: Sequence[str], rounds: int) -> None:
    """Print the rates of arrangements that take turns."""
    notes = {name: each.call("prepare", world, each.num_envs)[0] for name, each in made.items()}
    print(f"{world}, {NUM_ENVS} envs, hidden layers {WORLDS[world]}, {notes['2 processes']}")
    cases = {name: (made[name], 0) for name in made if parts[0] != "latency"}
    if "latency" in parts and world == next(iter(WORLDS)):
        cases |= {f"+{delay} us": (made["2 processes"], delay) for delay in DELAYS}
    num_updates = {name: max(1, round(TURN * each.rate(1) / each.num_envs / NUM_STEPS)) for name, each in made.items()}
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (each, delay) in cases.items():
            count = next(num_updates[key] for key, value in made.items() if value is each)
            rates[name].append(each.rate(count, delay * 1e-6))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, found in rates.items():
        print(f"    {name:<14}{medians[name]:>12,.0f} steps/s  ({min(found):,.0f} to {max(found):,.0f})")
    if "threads" in parts:
        print(f"    two processes / two threads       {medians['2 processes'] / medians['2 threads']:.3f}")
    if "weak" in parts:
        print(f"    weak scaling, one to two          {medians['2 processes'] / (2 * medians['half']):.3f}")
    for delay in DELAYS[1:]:
        if f"+{delay} us" in medians:
            print(f"    kept with {delay:>4} us more           {medians[f'+{delay} us'] / medians['+0 us']:.3f}")


def time_exchanges(pair: Arrangement) -> None:
    """Print the time of one exchange by size."""
    print("one exchange between two processes")
    for size in SIZES:
        seconds = max(pair.call("exchange", size, 200 if size <= SIZES[2] else 20))
        print(f"    {4 * size:>12,} bytes {1e6 * seconds:>10,.0f} us {4 * size / seconds / 1e9:>8.2f} GB/s")


def show_overlap(pair: Arrangement) -> None:
    """Print what it brings to exchange gradients while backward goes on."""
    print("backward pass of 512 samples and exchange of gradients by gloo, two processes")
    for width in (512, 1024):
        size, after, during = pair.call("overlap", width, 10)[0]
        print(f"    {size:>10,} weights  {1e3 * after:>8.1f} ms after it, {1e3 * during:>8.1f} ms during it")


def show_difference(made: dict[str, Arrangement]) -> None:
    """Print how far apart weights are that one and two processes learn from the same rollouts."""
    print("largest difference between weights of one process and of two, cartpole")
    for num_updates in (1, 100):
        found = []
        for name in ("2 threads", "2 processes"):
            made[name].call("prepare", "cartpole", NUM_ENVS, False)
            found.append(made[name].call("learn_random", num_updates))
        (alone,), (first, second) = found
        assert all((first[name] == second[name]).all() for name in first), "ranks have different weights"
        apart = max(float(np.abs(first[name] - alone[name]).max()) for name in alone)
        largest = max(float(np.abs(weights).max()) for weights in alone.values())
        print(f"    after {num_updates:>3} updates  {apart:.1e}  (largest weight {largest:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS), metavar="WORLD")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each arrangement")
    arguments = parser.parse_args()
    with arrangements() as made:
        if {"threads", "weak", "latency"} & set(arguments.only):
            for world in arguments.worlds:
                compare(made, world, arguments.only, arguments.rounds)
        if "exchange" in arguments.only:
            time_exchanges(made["2 processes"])
        if "overlap" in arguments.only:
            show_overlap(made["2 processes"])
        if "difference" in arguments.only:
            show_difference(made)


if __name__ == "__main__":
    main()
