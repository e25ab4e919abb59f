"""Values of runs with scaled rewards are brought back to returns; worlds of wins and losses are told from others."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scramjet.arena.play.thoughts import ends_in_win_or_loss, reward_scale
from scramjet.envs.games.connect_four import ConnectFour
from tests.helpers.player_worlds import Duel


def checkpoint(*moments: float, **settings: Any) -> Any:
    tensors = {"reward_scaler/moments": torch.tensor(moments, dtype=torch.float64)} if moments else {}
    texts = dict.fromkeys(("network", "rules", "observation_space", "action_space"), "")
    numbers = {"update": 1, "elapsed_seconds": 0.0, "best_return": None, "lineage": None}
    return SimpleNamespace(path="here", trainer=tensors, metadata={**texts, **numbers, "config": settings})


def test_values_are_scaled_back_by_the_deviation_that_rewards_were_divided_by() -> None:
    assert reward_scale(checkpoint(4.0, 0.5, 16.0)) == pytest.approx(2.0)


@pytest.mark.parametrize(("squares", "scale"), [(16.0, 2.0), (1.0, 1.0)])
def test_rewards_beside_bonuses_were_made_smaller_only(squares: float, scale: float) -> None:
    assert reward_scale(checkpoint(4.0, 0.5, squares, curiosity="rnd")) == pytest.approx(scale)


@pytest.mark.parametrize("moments", [(), (0.0, 0.0, 0.0), (1.0, 0.0, -1.0), (1.0, 0.0, math.nan), (1.0, 2.0)])
def test_without_sound_moments_values_stay_as_they_are(moments: tuple[float, ...]) -> None:
    assert reward_scale(checkpoint(*moments)) == 1.0


def test_games_that_are_won_or_lost_are_told_from_games_for_points() -> None:
    assert ends_in_win_or_loss(ConnectFour())
    assert not ends_in_win_or_loss(Duel())
