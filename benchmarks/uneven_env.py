"""CartPole that takes its time: each step sleeps for a Pareto-distributed while, most for short, some for very long.

`factory:benchmarks/uneven_env.py:make`, for asynchrony.py.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium

SHORTEST, TAIL, LONGEST = 0.3e-3, 1.3, 0.1
"""Seconds; the exponent of the tail: the mean is about 1 ms, a thousandth of all steps takes over 60 ms."""


class Uneven(gymnasium.Wrapper):
    """Sleeps before each step."""

    def step(self, action: Any) -> Any:
        """After a while."""
        time.sleep(min(LONGEST, SHORTEST * (1.0 + float(self.unwrapped.np_random.pareto(TAIL)))))
        return super().step(action)


def make() -> gymnasium.Env:
    """One such env."""
    return Uneven(gymnasium.make("CartPole-v1"))
