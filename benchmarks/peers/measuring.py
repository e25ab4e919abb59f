"""What the programs of this folder share: their command line, their clock and their answer.

Each runs in the environment of its own library, so this file needs nothing but Python. A program is called with one
task and prints one JSON object as its last line:

    PYTHON benchmarks/peers/envpool_cartpole.py --work training --num-envs 1024 --seconds 5
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

NUM_STEPS, EPOCHS, MINIBATCHES, HIDDEN = 128, 4, 4, 64
"""Of the training that is timed: the same for everyone."""
GAE_STEPS, GAE_ENVS, GAMMA, GAE_LAMBDA = 128, 1024, 0.99, 0.95
SOLVED_RETURN, SOLVED_EPISODES = 475.0, 100
WARM_UPS, SHARES = 2, 5


@dataclass(frozen=True)
class Task:
    """One measurement."""

    work: str
    """env, training, solve or gae."""
    num_envs: int
    seconds: float
    """To measure for, after the warm-up."""
    seed: int


Answer = dict[str, Any]
"""steps_per_second; or, of solve, solved_at (seconds since 1970) and env_steps; and `settings` in words."""


def main(description: str | None, works: Mapping[str, Callable[[Task], Answer]], packages: Iterable[str]) -> None:
    """Do the task of the command line and print the answer, with the versions of `packages`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=list(works), required=True)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    task = Task(**vars(parser.parse_args()))
    answer = works[task.work](task)
    print(json.dumps({"versions": versions_of(packages), **answer}), flush=True)


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The installed version of each package that is installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def median_rate(work: Callable[[], object], steps: int, seconds: float, *, warm_ups: int = WARM_UPS) -> float:
    """Steps per second of `work`, which does `steps` of them: the median over shares of the time, after a warm-up.

    A call that takes longer than its share is a share; there is at least one.
    """
    for _ in range(warm_ups):
        work()
    rates: list[float] = []
    begun = time.perf_counter()
    while not rates or time.perf_counter() - begun < seconds:
        count, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds / SHARES:
            work()
            count += 1
        rates.append(count * steps / elapsed)
    return statistics.median(rates)


class RecentReturns:
    """Returns of the last training episodes: all that decides when CartPole is solved."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=SOLVED_EPISODES)

    def add(self, returns: Iterable[float]) -> None:
        """Take in the returns of episodes that ended."""
        self.returns.extend(float(value) for value in returns)

    @property
    def are_solved(self) -> bool:
        """Whether enough episodes have ended and their mean is high enough."""
        return len(self.returns) == SOLVED_EPISODES and statistics.fmean(self.returns) >= SOLVED_RETURN


def solved(env_steps: int, settings: str) -> Answer:
    """The answer of a program that has just solved CartPole."""
    return {"solved_at": time.time(), "env_steps": env_steps, "settings": settings}


def unsolved(env_steps: int, settings: str) -> Answer:
    """The answer of a program whose training ended before CartPole was solved."""
    return {"solved_at": None, "env_steps": env_steps, "settings": settings}
