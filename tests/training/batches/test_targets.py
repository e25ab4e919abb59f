"""Advantages and returns of a rollout of three steps, computed by hand with gamma = lambda = 1/2."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scramjet.algorithms.ppo import PPOConfig
from scramjet.training.batches.targets import Targets

CONFIG = PPOConfig(gamma=0.5, gae_lambda=0.5)


def three_steps(**changes: Any) -> Targets:
    """One env paid 1, 2 and 3 whose states are worth 1, 2, 3 and 4; `changes` are fields of its rollout."""
    nothing = torch.zeros(3, 1, dtype=torch.bool)
    rollout = SimpleNamespace(
        value=torch.tensor([[1.0], [2.0], [3.0], [4.0]]),
        terminated=nothing,
        truncated=nothing,
        final_value=torch.zeros(3, 1),
        seat=None,
    )
    for name, data in changes.items():
        setattr(rollout, name, data)
    return Targets.of(rollout, torch.tensor([[1.0], [2.0], [3.0]]), CONFIG)  # type: ignore[arg-type]


def at_step(t: int) -> torch.Tensor:
    """True at one step, [3, 1]."""
    return (torch.arange(3) == t).unsqueeze(1)


def test_each_advantage_is_its_own_error_and_a_quarter_of_the_next_advantage():
    advantage, returns, counts = three_steps().on_policy()
    # The errors r + v' / 2 - v are 1 + 1 - 1, 2 + 1.5 - 2 and 3 + 2 - 3.
    assert advantage.flatten().tolist() == [1 + 2.0 / 4, 1.5 + 2 / 4, 2]
    assert returns.flatten().tolist() == [1.5 + 1, 2 + 2, 2 + 3]
    assert counts is None


def test_after_an_episode_that_ended_nothing_follows():
    advantage, _, _ = three_steps(terminated=at_step(1)).on_policy()
    assert advantage.flatten().tolist() == [1 + (2 - 2) / 4, 2 - 2, 2]


def test_an_episode_that_was_cut_goes_on_with_the_value_of_its_own_last_observation():
    advantage, _, _ = three_steps(truncated=at_step(1), final_value=at_step(1) * 6.0).on_policy()
    assert advantage.flatten().tolist() == [1 + 3 / 4, 2 + 6 / 2 - 2, 2]


def test_turns_of_a_seat_whose_next_is_not_in_the_rollout_do_not_count():
    seats = torch.tensor([[1], [0], [1], [0]], dtype=torch.int8)
    values = torch.tensor([[2.0], [5.0], [7.0], [10.0]])
    targets = three_steps(seat=seats, value=values)
    paid = Targets.of(targets.rollout, torch.tensor([[[7.0, 1.0]], [[1.0, 3.0]], [[2.0, 4.0]]]), CONFIG)
    advantage, _, counts = paid.on_policy()
    assert counts is not None
    assert counts.flatten().tolist() == [True, True, False]
    assert advantage.flatten().tolist() == [(1 + 3) + 7 / 2 - 2, (1 + 2) + 10 / 2 - 5, 0]


def test_a_policy_that_has_not_moved_has_the_same_returns():
    targets = three_steps(truncated=at_step(1), final_value=at_step(1) * 6.0)
    _, expected, _ = targets.on_policy()
    _, returns, _ = targets.off_policy(targets.rollout.value, torch.zeros(3, 1))
    torch.testing.assert_close(returns, expected)


@pytest.mark.parametrize(("ratio", "weight"), [(0.5, 0.5), (4.0, 1.0)])
def test_what_the_policy_would_do_less_often_weighs_less_and_nothing_weighs_more_than_one(ratio, weight):
    """With gamma = lambda = 1/2 and every step's ratio alike: an error, and a quarter of the next, each weighed."""
    targets = three_steps()
    log_ratio = torch.full((3, 1), ratio).log()
    _, returns, _ = targets.off_policy(targets.rollout.value, log_ratio)
    third = weight * 2
    second = weight * 1.5 + weight * third / 4
    first = weight * 1 + weight * second / 4
    torch.testing.assert_close(returns.flatten(), torch.tensor([1 + first, 2 + second, 3 + third]))
