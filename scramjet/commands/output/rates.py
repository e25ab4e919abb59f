"""Measure how many steps a second something takes: envs on the CPU, envs on the GPU, or any function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from scramjet.engine.actions import random_actions
from scramjet.engine.pool import Pool
from scramjet.engine.worlds.cuda_pool import CudaPool, random_actions_on_gpu

REPEATS = 5
"""Times that each rate is measured."""
STEPS_RECORDED = 32
"""Env steps in one CUDA graph."""


@dataclass(frozen=True)
class Rate:
    """The median and the best of several measurements, in steps per second."""

    median: float
    best: float

    @classmethod
    def of(cls, rates: list[float]) -> Rate:
        """Summarize one rate for each repeat."""
        return cls(float(np.median(rates)), max(rates))

    def __str__(self) -> str:
        return f"{format_rate(self.median)} ({format_rate(self.best)})"


def measure_env_rate(pool: Pool, seconds: float) -> Rate:
    """Play random legal actions for about `seconds` and return the env steps per second.

    The time to choose the actions is not counted.
    """
    if isinstance(pool, CudaPool):
        return measure_gpu_env_rate(pool, seconds)
    out, random = pool.reset(0), np.random.default_rng(0)
    ready = [random_actions(pool, out, random) for _ in range(64)]
    rates: list[float] = []
    for _ in range(REPEATS):
        stepped, spent = 0, 0.0
        while spent < seconds / REPEATS:
            if pool.mask_size:  # what is legal depends on the step before
                ready = [random_actions(pool, out, random)]
            started = time.perf_counter()
            for actions in ready:
                out = pool.step(actions)
            spent += time.perf_counter() - started
            stepped += len(ready) * pool.num_envs
        rates.append(stepped / spent)
    return Rate.of(rates)


def measure_gpu_env_rate(pool: CudaPool, seconds: float) -> Rate:
    """Measure the env steps per second of a pool on the GPU, for about `seconds`.

    Random legal actions are chosen step by step; then these steps are recorded as a CUDA graph, which is replayed
    again and again from the same states.
    """
    random = torch.Generator("cuda").manual_seed(0)
    out = pool.reset(0)
    for _ in range(2 * STEPS_RECORDED):  # away from where all episodes begin
        out = pool.step(random_actions_on_gpu(pool, out, random))
    states = pool.copied_states()
    actions = []
    for _ in range(STEPS_RECORDED):
        actions.append(random_actions_on_gpu(pool, out, random))
        out = pool.step(actions[-1])
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with pool.recording(), torch.cuda.graph(graph):
        pool.put_states(states)
        for action in actions:
            pool.step(action, out=out)

    def replay() -> None:
        for _ in range(8):
            graph.replay()
        torch.cuda.synchronize()

    return Rate.of(_rates(replay, 8 * STEPS_RECORDED * pool.num_envs, seconds))


def median_rate(work: Callable[[], None], steps: int, seconds: float) -> float:
    """Repeat `work`, which takes `steps` steps, for about `seconds`; returns the median steps per second."""
    return float(np.median(_rates(work, steps, seconds)))


def _rates(work: Callable[[], None], steps: int, seconds: float) -> list[float]:
    """Run `work`, which takes `steps` steps, for about `seconds`; returns the steps per second of each repeat."""
    for _ in range(3):  # compile, record and warm up
        work()
    rates: list[float] = []
    share = seconds / REPEATS
    for _ in range(REPEATS):
        count, started = 0, time.perf_counter()
        while True:
            work()
            count += 1
            elapsed = time.perf_counter() - started
            if elapsed >= share:
                break
        rates.append(count * steps / elapsed)
    return rates


def format_rate(rate: float) -> str:
    """A rate such as `1.25 M`, in at most seven characters so that columns of tables stay aligned."""
    if rate < 1e6:
        return f"{rate / 1e3:.1f} K"
    if rate >= 1e9:
        return f"{rate / 1e9:.2f} G"
    return f"{rate / 1e6:.2f} M" if rate < 1e8 else f"{rate / 1e6:.1f} M"
