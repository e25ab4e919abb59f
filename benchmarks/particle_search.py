"""The search by particles: searched moves a second, and what of the time is env steps and what the network.

    python benchmarks/particle_search.py                                 CartPole on the CPU, 256 and 768 roots
    python benchmarks/particle_search.py --device cuda --roots 768 4096
    python benchmarks/particle_search.py --world maze --particles 32 --depth 8 --resample ess

A search is 16 particles x 4 steps from each root with separate 64x64 tanh networks; a searched move is a search and the
step of the env. Beside it, alone: the steps of all particles (`Simulator.step`), the network on all of them, and steps
of a pool of as many envs as there are particles. Figures are the best of ten repeats. On the GPU the search and its
parts are recorded as CUDA graphs. On a busy machine, `--cpu-time` counts the thread's own time instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from scramjet.algorithms.config import SPOConfig
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.envs import load_env
from scramjet.executors.cuda_graphs import stage
from scramjet.policies.config import PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.search.particles import ParticleSearch
from scramjet.search.search import Rewards

REPEATS, MOVES = 10, 5


def make_pool(world: str, num_envs: int, device: torch.device) -> WorldPool:
    """A pool on the device, with as many threads as torch has on the CPU."""
    env = load_env(world)
    if device.type == "cpu":
        return NativePool(env, num_envs, num_threads=torch.get_num_threads())
    from scramjet.engine.worlds.cuda_pool import CudaPool

    return CudaPool(env, num_envs)


class Measured:
    """A search, and its parts alone."""

    def __init__(self, world: str, roots: int, config: SPOConfig, device: torch.device, clock: Callable[[], float]):
        self.clock, self.device, self.config = clock, device, config
        self.pool = make_pool(world, roots, device)
        self.out = self.pool.reset(0)
        spaces = self.pool.observation_space, self.pool.action_space
        self.policy = Policy(default_network(*spaces, PolicyConfig()), *spaces).to(device)
        self.search = ParticleSearch(self.pool, self.policy, roots, Rewards(0.99, torch.ones(1, device=device)), config)
        self.generator = torch.Generator(device).manual_seed(0)
        self.crowd = make_pool(world, self.search.num_branches, device)
        self.crowd.reset(0)

    def move(self) -> None:
        """Search from all envs, and step them."""
        obs = map_leaves(self._there, self.out.obs)
        shown = self._there(self.out.mask), self._there(self.out.turn)
        found = self.search.search(self.pool.state_bytes(), obs, *shown, self.generator)
        self.out = self.pool.step(self._given(found.action))

    def branch(self) -> None:
        """The steps of all particles alone, from the roots anew."""
        simulator = self.search.simulator
        simulator.load(self.search.roots.records, self.config.particles)
        actions = self.policy.distribution.env_action(self.search._action)
        for step in range(self.config.depth):
            simulator.step(actions, self.search._key, step)

    def network(self) -> None:
        """The network on all particles after each step; after the last, values alone."""
        obs = self.search.simulator.now.obs
        for _ in range(self.config.depth - 1):
            self.search._evaluate(obs)
        self.search._value(obs)

    def plain(self) -> None:
        """As many env steps of a pool, without search."""
        actions = self._given(self.search._action)
        for _ in range(self.config.depth):
            self.crowd.step(actions)

    def seconds(self, work: Callable[[], None], *, is_recorded: bool = False) -> float:
        """The time of one call, the best of some repeats."""
        runner, best = stage("a part of a search", self.device), float("inf")
        call = (lambda: runner.run(work)) if is_recorded else work
        with torch.inference_mode():
            for _ in range(3):
                call()
            for _ in range(REPEATS):
                self._wait()
                start = self.clock()
                for _ in range(MOVES):
                    call()
                self._wait()
                best = min(best, (self.clock() - start) / MOVES)
        return best

    def _there(self, given: Any) -> torch.Tensor:
        return torch.as_tensor(given, device=self.device)

    def _given(self, action: torch.Tensor) -> Any:
        action = self.policy.distribution.env_action(action)
        return action.numpy() if self.device.type == "cpu" else action

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", default="cartpole")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--roots", type=int, nargs="+", default=[256, 768])
    parser.add_argument("--particles", type=int, default=16)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--resample", choices=["period", "ess"], default="period")
    parser.add_argument("--resample-period", type=int, default=4)
    parser.add_argument("--num-threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true", help="of one thread: implies --num-threads 1")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.cpu_time else options.num_threads)
    clock = time.thread_time if options.cpu_time else time.perf_counter
    config = SPOConfig(
        particles=options.particles, depth=options.depth,
        resample=options.resample, resample_period=options.resample_period,
    )  # fmt: skip
    for roots in options.roots:
        measured = Measured(options.world, roots, config, torch.device(options.device), clock)
        whole = measured.seconds(measured.move)
        branch = measured.seconds(measured.branch, is_recorded=True)
        network = measured.seconds(measured.network, is_recorded=True)
        plain = measured.seconds(measured.plain)
        steps = roots * config.particles * config.depth
        print(
            f"{options.world}, {roots} roots, {config.particles} x {config.depth}, {config.resample}: "
            f"{roots / whole:,.0f} searched moves/s, {1e3 * whole:.2f} ms a search; "
            f"{steps / whole / 1e6:.2f} M steps/s in search, {plain / whole:.1%} of the pool's "
            f"{steps / plain / 1e6:.1f} M/s; particles' steps alone {steps / branch / 1e6:.1f} M/s; "
            f"time: env {branch / whole:.0%}, network {network / whole:.0%}, "
            f"rest {1 - (branch + network) / whole:.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
