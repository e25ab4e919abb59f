"""A search must not foresee: a world that pays for the next coin, searched with the coming random numbers or others."""

from typing import Any

import numpy as np
import pytest
import torch

from scramjet.engine.simulator import Branches, Simulator
from scramjet.envs import Box, Discrete, Env, randint
from tests.helpers.search_worlds import Searched, nothing, uniform

MOVES, ENVS = 24, 64
LUCK = 5 * 0.5 / (MOVES * ENVS) ** 0.5  # five deviations of the mean of so many coins


class Coin(Env):
    """Pays 1 for guessing a coin that is tossed after the guess."""

    max_episode_steps = 10

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"unused": np.int8}

    def reset(self, s: Any) -> None:
        pass

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        return (1.0 if action == randint(s, 2) else 0.0), False

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 0


class Foreseeing(Simulator):
    """Steps branches with the random numbers that are in their records: those that the envs will draw."""

    def step(self, actions: torch.Tensor, key: torch.Tensor, depth: int) -> Branches:
        states = self.records.numpy().view(self.pool.states().dtype).ravel()
        after, out = self.pool.simulate(states, actions.numpy())
        states[:] = after
        self.now.reward.copy_(torch.as_tensor(out.reward))
        return self.now


def guesses_that_pay(foresees: bool, depth: int) -> float:
    """The share of guesses that pay when each is searched for."""
    searched = Searched(Coin(), uniform(2), nothing, ENVS, depth=depth, particles=8, temperature=0.05)
    searched.search.is_deterministic = True
    if foresees:
        searched.search.simulator = Foreseeing(searched.pool, ENVS * 8)
    return float(np.mean([searched.play() for _ in range(MOVES)]))


@pytest.mark.parametrize("depth", [1, 2])
def test_planning_for_the_next_coin_gains_nothing(depth):
    assert guesses_that_pay(foresees=False, depth=depth) == pytest.approx(0.5, abs=LUCK)


def test_with_the_records_own_random_numbers_planning_would_foresee_the_coin():
    assert guesses_that_pay(foresees=True, depth=1) > 0.95
