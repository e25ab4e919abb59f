"""Worlds of one or two steps with known answers: five that each catch one class of learner bug, a bandit, a target.

The five are after Jones 2021, "Debugging RL". If the first fails, look at the value loss; the second, at the path from
observation to value; the third, at discounting and bootstrapping; the fourth, at the policy gradient; the fifth, at the
path from observation to policy. `gamma` in the answers is the discount.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import randint, uniform

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


# --- Bandit: one pull an episode, one arm pays


MOST_ARMS = 1_000_000


class Bandit(Env):
    """Find the one arm that pays."""

    arms: int = 4
    lucky_arm: int = 2
    scale: float = 1.0
    noise: float = 0.0

    observation_space = Box(0, 1, (1,), np.float32)
    state = {"pulled": np.int32}
    stat_names = ("lucky",)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.arms)

    def reset(self, s: Any) -> None:
        s.pulled = -1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.pulled = action
        pay = 1.0 if action == self.lucky_arm else 0.0
        return self.scale * (pay + self.noise * uniform(s, -1.0, 1.0)), True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 1.0

    def stats(self, s: Any, stats: Any) -> None:
        stats.lucky = 1.0 if s.pulled == self.lucky_arm else 0.0

    def validate(self) -> None:
        if self.arms < 2:
            raise ValueError(f"arms={self.arms} must be at least 2")
        if self.arms > MOST_ARMS:
            raise ValueError(f"arms={self.arms} must be at most {MOST_ARMS}")
        if not 0 <= self.lucky_arm < self.arms:
            raise ValueError(f"lucky_arm={self.lucky_arm} must be in 0 .. {self.arms - 1}")

    def render(self, s: Any) -> np.ndarray:
        width, height = 600, 300
        canvas = Canvas(width, height)
        box = width / self.arms
        for arm in range(self.arms):
            left, right = box * (arm + 0.15), box * (arm + 0.75)
            is_pulled = arm == s.pulled
            lever = (box * (arm + 0.88), 200 if is_pulled else 100)
            canvas.line((right, 150), lever, 5, (150, 154, 162))
            canvas.disc(lever, 8, (190, 96, 84))
            canvas.rectangle(left, 70, right, 250, (36, 44, 60) if is_pulled else (176, 180, 188))
            canvas.rectangle(left + 8, 90, right - 8, 150, (250, 248, 244))
            if is_pulled and arm == self.lucky_arm:
                canvas.disc(((left + right) / 2, 120), min(22, (right - left) / 2 - 8), (226, 142, 72))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        return " ".join(f"[{'*' if arm == s.pulled else ' '}]" for arm in range(self.arms))


# --- IdentityContinuous: answer with the point you are shown. The smallest test of a continuous policy


MOST = 1_000_000
"""Numbers in a point, and points in an episode."""


class IdentityContinuous(Env):
    """Repeat the point shown: minus the mean squared error."""

    dims: int = 1
    num_targets: int = 1

    stat_names = ("error",)

    @property
    def observation_space(self) -> Box:
        return Box(-1, 1, (self.dims,), np.float32)

    @property
    def action_space(self) -> Box:
        return Box(-1, 1, (self.dims,), np.float32)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "target": (np.float64, self.dims),
            "answer": (np.float64, self.dims),
            "num_answers": np.int32,
            "total_error": np.float64,
        }

    def reset(self, s: Any) -> None:
        choose_target(s)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        total = 0.0
        for i in range(self.dims):
            s.answer[i] = min(max(float(action[i]), -1.0), 1.0)
            miss = s.answer[i] - s.target[i]
            total += miss * miss
        error = total / self.dims
        s.total_error += error
        s.num_answers += 1
        is_over = s.num_answers >= self.num_targets
        if not is_over:
            choose_target(s)
        return -error, is_over

    def observe(self, s: Any, obs: Any) -> None:
        for i in range(self.dims):
            obs[i] = s.target[i]

    def stats(self, s: Any, stats: Any) -> None:
        stats.error = math.sqrt(s.total_error / s.num_answers)

    def validate(self) -> None:
        for name in ("dims", "num_targets"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
            if getattr(self, name) > MOST:
                raise ValueError(f"{name}={getattr(self, name)} must be at most {MOST}")

    def render(self, s: Any) -> np.ndarray:
        width, row = 600, max(20, 300 // self.dims)
        canvas = Canvas(width, row * self.dims)
        radius = min(14, row // 3)
        for i in range(self.dims):
            y = row * (i + 0.5)
            target, answer = (width / 2 + value * (width / 2 - 40) for value in (s.target[i], s.answer[i]))
            canvas.line((40, y), (width - 40, y), 3, (200, 202, 204))
            canvas.disc((target, y), radius, (226, 142, 72))
            canvas.disc((target, y), radius * 0.6, (250, 248, 244))
            if s.num_answers >= self.num_targets:
                canvas.line((answer, y), (target, y), 3, (190, 96, 84))
                canvas.disc((answer, y), radius * 0.5, (36, 44, 60))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        lines = []
        for i in range(self.dims):
            cells = ["."] * 41
            cells[round(20 * (s.target[i] + 1))] = "O"
            if s.num_answers >= self.num_targets:
                cells[round(20 * (s.answer[i] + 1))] = "x"
            lines.append("".join(cells))
        return "\n".join(lines)


def choose_target(s: Any) -> None:
    """Show a fresh point of the cube."""
    for i in range(len(s.target)):
        s.target[i] = uniform(s, -1.0, 1.0)
