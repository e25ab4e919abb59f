"""Which members of the pool are drawn, and which stay."""

from __future__ import annotations

import itertools

import pytest
import torch

from scramjet.training.self_play.selection import draw_members, draw_probabilities, least_missed

SETTINGS = {"exponent": 2.0, "uniform_share": 0.2, "num_newest": 2}


def test_prioritized_draws_follow_the_power_of_the_loss_rate_over_a_floor() -> None:
    drawn = draw_probabilities([0.5, 0.8, 1.0], "prioritized", **SETTINGS)  # type: ignore[arg-type]
    total = 0.25 + 0.04
    expected = [0.8 * 0.25 / total + 0.2 / 3, 0.8 * 0.04 / total + 0.2 / 3, 0.2 / 3]
    assert drawn.tolist() == pytest.approx(expected)


def test_all_are_drawn_alike_where_we_always_win() -> None:
    assert draw_probabilities([1.0, 1.0], "prioritized", **SETTINGS).tolist() == [0.5, 0.5]  # type: ignore[arg-type]


def test_uniform_and_newest_ignore_win_rates() -> None:
    assert draw_probabilities([0.0, 1.0], "uniform", **SETTINGS).tolist() == [0.5, 0.5]  # type: ignore[arg-type]
    newest = draw_probabilities([0.0, 1.0, 1.0], "newest", **SETTINGS)  # type: ignore[arg-type]
    assert newest.tolist() == [0, 0.5, 0.5]


def test_opponents_are_distinct_while_there_are_enough() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        assert sorted(draw_members(torch.full((4,), 0.25), 4, generator)) == [0, 1, 2, 3]
        few = draw_members(torch.tensor([0.0, 0.5, 0.5]), 4, generator)
        assert set(few) == {1, 2}
        assert len(few) == 4


def test_draws_follow_their_probabilities() -> None:
    generator = torch.Generator().manual_seed(1)
    first = [draw_members(torch.tensor([0.7, 0.2, 0.1]), 1, generator)[0] for _ in range(2000)]
    assert [first.count(i) / 2000 for i in range(3)] == pytest.approx([0.7, 0.2, 0.1], abs=0.04)


def test_snapshots_that_stay_are_spread_over_time() -> None:
    kept: list[int] = []
    for step in range(100):
        kept.append(step)
        if len(kept) > 8:
            del kept[least_missed(kept)]
    assert kept[0] == 0
    assert kept[-1] == 99
    gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
    assert max(gaps) <= 2 * 99 / 7 + 1
