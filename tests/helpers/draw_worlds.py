"""Worlds that show the draws themselves, for tests of the generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs import Box, Discrete, Env, choice, normal, randint, shuffle, uniform

RANGES = (1, 2, 3, 7, 10, 3 << 29, 1 << 31)
OPTIONS = (2.5, -1.0, 8.0)
NUM_CARDS = 4
EPISODE_STEPS = 3


class Draws(Env):
    """Each step draws once of every kind; the action says from which range the integer comes."""

    max_episode_steps = EPISODE_STEPS
    ranges = RANGES
    options = OPTIONS

    observation_space = Box(-np.inf, np.inf, (5 + NUM_CARDS,), np.float64)
    action_space = Discrete(len(RANGES))
    state = {
        "uniform": np.float64,
        "between": np.float64,
        "integer": np.int64,
        "normal": np.float64,
        "chosen": np.float64,
        "cards": (np.int8, NUM_CARDS),
    }

    def reset(self, s: Any) -> None:
        s.uniform = uniform(s)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.uniform = uniform(s)
        s.between = uniform(s, -3.0, 5.0)
        s.normal = normal(s, 10.0, 2.0)
        s.chosen = choice(s, self.options)
        for i in range(len(s.cards)):
            s.cards[i] = i
        shuffle(s, s.cards)
        s.integer = randint(s, self.ranges[action])
        return 0.0, False

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.uniform
        obs[1] = s.between
        obs[2] = s.integer
        obs[3] = s.normal
        obs[4] = s.chosen
        for i in range(len(s.cards)):
            obs[5 + i] = s.cards[i]


class Coins(Env):
    """Draws from constant ranges, where a compiler can use all it believes to know about single bits."""

    observation_space = Box(-np.inf, np.inf, (5,), np.float64)
    action_space = Discrete(2)
    state = {"coin": np.int8, "die": np.int8, "is_low": np.bool_, "half": np.int64, "is_negative": np.bool_}

    def reset(self, s: Any) -> None:
        s.coin = randint(s, 2)
        s.die = randint(s, 8)
        s.is_low = uniform(s) < 0.5
        s.half = randint(s, 1 << 31) & 1
        s.is_negative = normal(s) < 0.0

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return 0.0, True

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = s.coin
        obs[1] = s.die
        obs[2] = s.is_low
        obs[3] = s.half
        obs[4] = s.is_negative
