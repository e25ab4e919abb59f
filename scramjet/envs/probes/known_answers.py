"""Five worlds with known answers; each catches one class of learner bug (after Jones 2021, "Debugging RL").

If the first fails, look at the value loss; the second, at the path from observation to value; the third, at
discounting and bootstrapping; the fourth, at the policy gradient; the fifth, at the path from observation to
policy. `gamma` in the answers is the discount.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.rng import randint

LONGEST_DELAY = 1_000_000


class ConstantReward(Env):
    """Always pays 1: the value must become 1."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return 1.0, True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 0.0


class ObservationReward(Env):
    """Pays what it shows, -1 or +1: the value must become the observation."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"shown": np.int8}

    def reset(self, s: Any) -> None:
        s.shown = 2 * randint(s, 2) - 1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return float(s.shown), True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.shown


class DelayedReward(Env):
    """Pays 1 after `delay` empty steps: the value k steps before must become gamma ** k."""

    delay: int = 3

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"waited": np.int32}

    def reset(self, s: Any) -> None:
        s.waited = 0

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.waited += 1
        done = s.waited > self.delay
        return (1.0 if done else 0.0), done

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.waited / (self.delay + 1)

    def validate(self) -> None:
        if self.delay < 0:
            raise ValueError(f"delay={self.delay} must be at least 0")
        if self.delay > LONGEST_DELAY:
            raise ValueError(f"delay={self.delay} must be at most {LONGEST_DELAY}")


class ActionReward(Env):
    """Pays +1 for action 1 and -1 for action 0: the policy must always choose 1."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return (1.0 if action == 1 else -1.0), True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 0.0


class PolicyReward(Env):
    """Pays +1 when the action matches the sign shown, else -1: the policy must follow the observation."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"shown": np.int8}

    def reset(self, s: Any) -> None:
        s.shown = 2 * randint(s, 2) - 1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        matches = (action == 1) == (s.shown == 1)
        return (1.0 if matches else -1.0), True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.shown
