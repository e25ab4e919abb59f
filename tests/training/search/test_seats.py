"""Returns that learners from search learn: plain ones, and those of two seats, where values are turned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scramjet.errors import TrainingError
from scramjet.training.search.seats import check_zero_sum, lambda_returns
from tests.helpers.run_files import train
from tests.helpers.search_training import BOARD, searching_config

GAMMA, LAMBDA = 0.9, 0.7


def return_for(
    player: int, t: int, reward: Tensor, value: Tensor, seat: Tensor, terminated: Tensor, truncated: Tensor
) -> float:
    """The lambda-return of one game for `player` from step t on, by its definition: r + gamma of what follows.

    What follows is the mixture of the next value and the next return, both for `player`.
    """
    earned = float(reward[t, player])
    if terminated[t] or truncated[t]:  # a game that is cut is worth 0
        return earned
    sign = 1.0 if int(seat[t + 1]) == player else -1.0
    following = sign * float(value[t + 1])
    if t + 1 < len(reward):
        ahead = return_for(player, t + 1, reward, value, seat, terminated, truncated)
        following = (1 - LAMBDA) * following + LAMBDA * ahead
    return earned + GAMMA * following


@pytest.mark.parametrize("seed", range(3))
def test_the_return_of_two_seats_is_that_of_whoever_moves_by_the_recursion(seed: int) -> None:
    num_steps, num_games = 7, 5
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(num_steps, num_games, generator=generator)
    reward = torch.stack([first, -first], -1)
    value = torch.randn(num_steps + 1, num_games, generator=generator)
    seat = torch.randint(2, (num_steps + 1, num_games), generator=generator).to(torch.int8)  # in any order
    terminated = torch.rand(num_steps, num_games, generator=generator) < 0.2
    truncated = ~terminated & (torch.rand(num_steps, num_games, generator=generator) < 0.2)
    found = lambda_returns(
        reward, value, seat, terminated, truncated, torch.zeros_like(first), gamma=GAMMA, gae_lambda=LAMBDA
    )
    for t in range(num_steps):
        for n in range(num_games):
            game = (each[:, n] for each in (reward, value, seat, terminated, truncated))
            assert float(found[t, n]) == pytest.approx(return_for(int(seat[t, n]), t, *game), abs=1e-5)


def test_without_seats_a_truncated_episode_is_worth_its_last_observation() -> None:
    reward, value = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [0.0], [100.0]])
    never, cut = torch.zeros(2, 1, dtype=torch.bool), torch.tensor([[False], [True]])
    final_value = torch.tensor([[0.0], [10.0]])
    found = lambda_returns(reward, value, None, never, cut, final_value, gamma=0.5, gae_lambda=1.0)
    assert found.flatten().tolist() == [1 + 0.5 * (2 + 0.5 * 10), 2 + 0.5 * 10]


def test_rewards_that_do_not_cancel_out_are_refused_by_world_and_numbers() -> None:
    reward = torch.tensor([[[1.0, -1.0], [2.0, -1.5]]])
    with pytest.raises(TrainingError, match=r"Duel gave its two seats the rewards \[2.0, -1.5\].*--algorithm ppo"):
        check_zero_sum(reward, "Duel")
    check_zero_sum(reward[:, :1], "Duel")
    check_zero_sum(torch.tensor([[[5.0]]]), "a world with one seat")


def test_a_game_that_is_not_zero_sum_stops_at_its_first_rollout_with_the_name_of_the_world(tmp_path: Path) -> None:
    config = searching_config("tests.helpers.player_worlds:Duel", "spo")
    with pytest.raises(TrainingError, match="Duel gave its two seats the rewards"):
        train(config, tmp_path)


@pytest.mark.parametrize("algorithm", ["spo", "alphazero"])
@pytest.mark.parametrize(("env", "parameters"), [("snake", {}), ("connect_four", {**BOARD, "random_opponent": True})])
def test_worlds_of_several_players_can_be_learned_with_one(
    env: str, parameters: dict[str, object], algorithm: str, tmp_path: Path
) -> None:
    config = replace(searching_config(env, algorithm, 2), env_parameters=parameters)
    assert train(config, tmp_path).stopped_by is None
