"""The league counts results, whoever was played first."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scramjet.training.rollout.rollout import Outcome
from scramjet.training.self_play.config import SelfPlayConfig
from scramjet.training.self_play.league import League
from scramjet.training.self_play.members import Member


class Ended:
    """The part of a rollout that a league looks at: 500 games against each of four members."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.opponent = torch.arange(4, dtype=torch.int32).repeat(500, 1)
        self.outcome = torch.tensor([int(each) for each in outcomes], dtype=torch.int8).repeat(500, 1)
        self.game = torch.arange(1, 2001).view(500, 4)


@pytest.mark.parametrize("lost", range(4))
def test_the_win_rate_is_over_all_members_alike(lost: int) -> None:
    members = [Member(number, str(number), "self", number, rating=1000.0) for number in range(4)]
    anything: Any = None
    league = League(SelfPlayConfig(pool_fraction=0.5), anything, [], members, anything, anything, seed=0)
    outcomes = [Outcome.LOSS if number == lost else Outcome.WIN for number in range(4)]
    rollout: Any = Ended(outcomes)
    league.count(rollout)
    assert league.win_rate == pytest.approx(0.75)
    assert [member.win_rate > 0.9 for member in members] == [number != lost for number in range(4)]
    assert league.metrics()["self_play/distinct_games"] == 1.0
    assert 1100 < league.rating < 1300  # three quarters of the points: 191 above equals, less the prior's pull
