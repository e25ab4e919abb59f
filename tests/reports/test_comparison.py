"""Comparisons: final numbers with the intervals of closed forms, levels that all reached, and descent."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scramjet.reports.comparison import Comparison, compare
from scramjet.reports.curves import Tables
from scramjet.reports.groups import configured, group_runs
from scramjet.reports.run_selection import find_runs
from tests.helpers.written_runs import record_at, write_run


def compared(runs_dir: Path) -> Comparison:
    runs, _ = configured(find_runs([str(runs_dir)], runs_dir))
    return compare(group_runs(runs), runs, Tables(), "return_100")


def rising(top: float, updates: int = 10) -> list[dict]:
    return [record_at(update, return_100=top * update / updates) for update in range(1, updates + 1)]


def test_the_last_evaluation_has_the_interval_of_a_mean_of_so_many_episodes(tmp_path: Path) -> None:
    first = record_at(1, eval__mean_return=50.0, eval__std_return=1.0, eval__episodes=5)
    last = record_at(2, eval__mean_return=100.0, eval__std_return=20.0, eval__episodes=101)
    write_run(tmp_path, "a", [first, last, record_at(3)], gamma=0.9)
    write_run(tmp_path, "b", [first], gamma=0.8)
    number = compared(tmp_path).contenders[0].numbers["last evaluation"]
    assert number.center == 100.0
    assert number.high - number.center == pytest.approx(1.96 * 20 / math.sqrt(100))


def test_steps_and_seconds_are_counted_to_the_level_that_all_reached(tmp_path: Path) -> None:
    write_run(tmp_path, "slow", rising(100.9), gamma=0.9)
    write_run(tmp_path, "fast", rising(200.0), gamma=0.8)
    comparison = compared(tmp_path)
    assert comparison.level == 100.0
    steps = {
        each.group.label: each.numbers[f"steps to {comparison.level:.4g}"].center for each in comparison.contenders
    }
    seconds = {
        each.group.label: each.numbers[f"seconds to {comparison.level:.4g}"].center for each in comparison.contenders
    }
    assert steps == {"slow": 10_000, "fast": 5_000}
    assert seconds == {"slow": 5.0, "fast": 2.5}


@pytest.mark.parametrize(
    ("top", "level"), [(367.96, 367.0), (-0.012345, -0.0124), (5.0, 5.0), (0.0, 0.0), (1.2e6, 1.2e6)]
)
def test_the_level_is_rounded_so_that_every_run_has_reached_it(tmp_path: Path, top: float, level: float) -> None:
    write_run(tmp_path, "a", [record_at(1, return_100=top)], gamma=0.9)
    write_run(tmp_path, "b", [record_at(1, return_100=top + 1)], gamma=0.8)
    assert compared(tmp_path).level == pytest.approx(level)
    assert level <= top


def test_worlds_that_differ_have_no_common_level(tmp_path: Path) -> None:
    write_run(tmp_path, "a", rising(100.0), env="maze")
    write_run(tmp_path, "b", rising(200.0), env="snake")
    comparison = compared(tmp_path)
    assert comparison.level is None
    assert comparison.differences == {"env.name": ("maze", "snake")}


def test_seeds_are_taken_together_with_their_mean(tmp_path: Path) -> None:
    for seed, top in ((1, 100.0), (2, 120.0), (3, 140.0)):
        write_run(tmp_path, f"good-{seed}", rising(top), seed=seed, gamma=0.9)
        write_run(tmp_path, f"poor-{seed}", rising(top / 2), seed=seed, gamma=0.5)
    poor, good = compared(tmp_path).contenders
    assert good.numbers["return_100"].center == pytest.approx(120.0)
    assert 100.0 <= good.numbers["return_100"].low < 120.0 < good.numbers["return_100"].high <= 140.0
    assert poor.numbers["return_100"].count == 3


def test_runs_of_several_worlds_in_one_group_are_resampled_world_by_world(tmp_path: Path) -> None:
    for world, top in (("maze", 1.0), ("snake", 101.0)):
        for seed in (1, 2, 3):
            write_run(tmp_path, f"{world}-{seed}", rising(top), env=world, seed=seed)
    runs, _ = configured(find_runs([str(tmp_path)], tmp_path))
    (together,) = compare(group_runs(runs, ("algorithm",)), runs, Tables(), "return_100").contenders
    number = together.numbers["return_100"]
    # every resample has three of each world, whose seeds are all alike
    assert (number.center, number.low, number.high) == pytest.approx((51.0, 51.0, 51.0))


def test_forks_tell_whose_they_are_also_over_generations(tmp_path: Path) -> None:
    from_a = {"parent_checkpoint": "../a/checkpoints/step_00001000", "parent_step": 1000, "changed": {"gamma": [1, 2]}}
    from_b = {"parent_checkpoint": "../b/checkpoints/step_00002000", "parent_step": 2000, "parent_lineage": from_a}
    write_run(tmp_path, "a", rising(1.0))
    write_run(tmp_path, "b", rising(1.0), lineage=from_a)
    write_run(tmp_path, "c", rising(1.0), lineage=from_b)
    assert compared(tmp_path).relations == (
        "b is a fork of a at step 1,000; it changed gamma",
        "c is a fork of b at step 2,000",
    )
    (tmp_path / "b").rename(tmp_path.parent / "away")
    assert compared(tmp_path).relations == ("c descends from a over 2 forks",)
