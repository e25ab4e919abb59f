"""Statistics over seeds; runs found, put together where only their seed differs, drawn as panels and compared."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from scramjet.algorithms.intervals import NORMAL_95, half_width_of, student_95
from scramjet.errors import ConfigError, RunError
from scramjet.reports.aggregate import (
    band,
    common_grid,
    estimate,
    first_reached,
    interquartile_mean,
    interval,
    mean,
    on_grid,
    smoothed,
)
from scramjet.reports.comparison import Comparison, compare_groups
from scramjet.reports.curves import CurveSettings, Panel, Tables, check_metrics, default_metric, panels
from scramjet.reports.groups import Configured, Group, configured, differing, find_runs, flat, group_runs
from scramjet.reports.metrics_table import Curve
from tests.helpers.written_runs import append_records, record_at, write_run


def curve(x: list[float], y: list[float]) -> Curve:
    return Curve(np.array(x, dtype=float), np.array(y, dtype=float))


def test_means_leave_out_a_quarter_at_each_end_and_what_is_missing() -> None:
    for count in (1, 2, 3, 4, 5, 8, 11):
        values = np.random.default_rng(count).normal(size=(count, 7))
        np.testing.assert_allclose(mean(values), values.mean(axis=0))
        middle = np.sort(values, axis=0)[count // 4 : count - count // 4]
        np.testing.assert_allclose(interquartile_mean(values), middle.mean(axis=0), err_msg=str(count))
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan], [100.0, np.nan], [2.0, 5.0]])
    np.testing.assert_allclose(interquartile_mean(values), [2.5, 5.0])
    assert np.isnan(mean(np.full((3, 1), np.nan))[0])


def test_intervals_hold_the_true_mean_as_often_as_they_say_with_few_seeds_too() -> None:
    draws = (
        np.random.default_rng(5).normal(size=(10, 4000)) * np.linspace(1, 3, 4000) + 7.0
    )  # 4,000 trials side by side
    for count in (3, 5, 10, 20):
        for aggregate in ("mean", "iqm"):
            low, high = interval(draws[:count], aggregate)  # type: ignore[arg-type]
            covered = float(np.mean((low <= 7.0) & (high >= 7.0)))
            assert (0.94 if aggregate == "mean" else 0.92) <= covered <= 0.96, (count, aggregate, covered)
            if aggregate == "mean":
                widths = np.array([half_width_of(draws[:count, trial]) for trial in range(20)])
                np.testing.assert_allclose((high - low)[:20] / 2, widths)


def test_only_what_differs_within_a_stratum_makes_an_interval_wide() -> None:
    levels = np.repeat([0.0, 100.0, 1000.0], 3)
    draws = np.random.default_rng(6).normal(size=(9, 2000)) + levels[:, None]
    for aggregate in ("mean", "iqm"):
        low, high = interval(draws, aggregate, np.repeat([0, 1, 2], 3))  # type: ignore[arg-type]
        if aggregate == "mean":
            assert 0.93 <= np.mean((low <= levels.mean()) & (high >= levels.mean())) <= 0.985
        alone_low, alone_high = interval(draws, aggregate)  # type: ignore[arg-type]
        assert np.all(5 * (high - low) < alone_high - alone_low), aggregate
    low, high = interval(levels[:, None], "mean", np.repeat([0, 1, 2], 3))
    assert low[0] == high[0] == levels.mean()
    assert np.isnan(interval(levels[:, None], "mean", np.array([0, 0, 0, 1, 1, 1, 2, 2, 3]))).all()  # 3 has one run


def test_runs_that_lack_a_point_do_not_enter_its_interval_and_one_or_two_runs_have_none() -> None:
    values = np.array([[1.0, 1.0], [2.0, np.nan], [3.0, 3.0], [np.nan, np.nan]])
    for aggregate in ("mean", "iqm"):
        low, high = interval(values, aggregate)  # type: ignore[arg-type]
        reach = 4.30265 / math.sqrt(3)  # t of two degrees
        np.testing.assert_allclose([low[0], high[0]], [2 - reach, 2 + reach], rtol=1e-4)
        assert np.isnan([low[1], high[1]]).all(), aggregate
    for numbers, center in (([4.0], 4.0), ([4.0, np.nan, 6.0], 5.0), ([5.0, 5.0], 5.0)):
        few = estimate(numbers, "iqm")
        assert (few.center, np.isnan(few.low), np.isnan(few.high)) == (center, True, True)
    assert np.isnan(estimate([1.0, 2.0, 3.0, 4.0], "iqm").low), "of four the interquartile mean keeps two"
    assert np.isnan(estimate([]).center)


def test_intervals_hold_no_impossible_numbers(tmp_path: Path) -> None:
    for seed, rate in enumerate((0.7, 0.95, 1.0), 1):
        records = [
            record_at(n, return_100=n * rate, versus__random=rate, versus__first=rate, versus__games=100)
            for n in (1, 2 + 7 * seed)
        ]
        write_run(tmp_path, f"run-{seed}", records, seed=seed, env="maze")
        write_run(tmp_path, f"other-{seed}", records, seed=seed, env="snake")
    numbers = compared(tmp_path).contenders[0].numbers
    assert 0 < numbers["win rate vs random"].low < numbers["win rate vs random"].high == 1
    assert numbers["steps"].low == 0
    for panel in panels_of(tmp_path, "versus/random"):
        assert all(series.has_interval and np.nanmax(series.high) == 1 for series in panel.series)


def test_students_t_is_that_of_its_density() -> None:
    for degrees in (1, 2, 3, 5, 9, 10, 11, 30, 200):
        scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) if degrees < 300 else math.nan
        at = np.linspace(0.0, student_95(degrees), 200_001)
        density = scale / math.sqrt(degrees * math.pi) * (1 + at**2 / degrees) ** (-(degrees + 1) / 2)
        assert np.trapezoid(density, at) == pytest.approx(0.475, abs=1e-6), degrees
    assert student_95(10**9) == pytest.approx(NORMAL_95)


def test_straight_lines_on_a_grid_are_exact_and_end_where_they_end() -> None:
    curves = [curve([0, 10], [0, 20]), curve([2, 6], [5, 5]), curve([], [])]
    grid = common_grid(curves, points=6)
    assert grid.tolist() == [0, 2, 4, 6, 8, 10]
    on = on_grid(curves, grid)
    np.testing.assert_array_equal(on[:2], [[0, 4, 8, 12, 16, 20], [np.nan, 5, 5, 5, np.nan, np.nan]])
    assert np.isnan(on[2]).all()


def test_a_band_ends_where_most_of_its_curves_have_ended() -> None:
    result = band([curve([0, 4], [1, 1]), curve([0, 6], [3, 3]), curve([0, 10], [5, 5])], points=11)
    assert result.x.tolist() == [0, 1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(result.center, [3, 3, 3, 3, 3, 4, 4])
    assert (result.low < result.center)[:5].all()
    assert (result.high > result.center)[:5].all()
    assert np.isnan([result.low[5:], result.high[5:]]).all(), "two curves have no interval"
    # with the first of those that end about together
    ends, heights = (97, 99, 100, 100, 30), (1, 3, 8, 0, 8)
    result = band([curve([0, end], [height, height]) for end, height in zip(ends, heights, strict=True)], points=101)
    assert result.x[-1] == 97
    np.testing.assert_allclose(result.center[[0, 30, 31, 97]], [4, 4, 3, 3])
    points = band([curve([5], [1]), curve([5], [3])])
    assert (points.x.tolist(), points.center.tolist()) == ([5.0], [2.0])
    assert len(band([curve([], []), curve([], [])]).x) == 0


def test_smoothing_keeps_straight_lines_and_a_level_is_reached_at_the_first_point_not_below_it() -> None:
    line = curve(list(range(50)), [3.0 * place for place in range(50)])
    np.testing.assert_allclose(smoothed(line, 0.2).y, line.y)
    noise = Curve(np.arange(1000.0), np.random.default_rng(0).normal(size=1000))
    assert smoothed(noise, 0.1).y[100:-100].std() < 0.2
    assert smoothed(noise, 0.0) is noise
    rising = curve([1, 2, 3], [0, 5, 5])
    assert (first_reached(rising, 5.0), first_reached(rising, 6.0)) == (2.0, None)


def groups_of(runs_dir: Path, by: tuple[str, ...] = ()) -> tuple[list[Group], list[Configured]]:
    runs, _ = configured(find_runs([str(runs_dir)], runs_dir))
    return group_runs(runs, by), runs


def grouped(runs_dir: Path, by: tuple[str, ...] = ()) -> dict[str, list[str]]:
    return {group.label: [run.name for run in group.runs] for group in groups_of(runs_dir, by)[0]}


def panels_of(runs_dir: Path, *metrics: str) -> list[Panel]:
    return panels(*groups_of(runs_dir), Tables(), CurveSettings(metrics))


def compared(runs_dir: Path, by: tuple[str, ...] = ()) -> Comparison:
    return compare_groups(*groups_of(runs_dir, by), Tables(), "return_100")


def rising(top: float, updates: int = 10) -> list[dict]:
    return [record_at(update, return_100=top * update / updates) for update in range(1, updates + 1)]


# --- runs and groups -------------------------------------------------------------------------------------------


def test_runs_are_found_by_path_name_pattern_and_folder_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    for name in ("b-1", "b-2", "c"):
        write_run(runs, name)
    (runs / "b-notes").mkdir()

    def found(*texts: str) -> list[str]:
        return [run.name for run in find_runs(texts, runs)]

    assert found(str(runs / "c"), "b-1") == ["c", "b-1"]
    assert found("b-*", "b-1") == ["b-1", "b-2"]
    assert found(str(runs / "b-*")) == ["b-1", "b-2"]
    assert found(str(runs), "c") == ["b-1", "b-2", "c"]
    for text, problem in (
        ("x-*", "no run matches 'x-\\*'"),
        ("b-3", r"there is no run 'b-3' .* Did you mean 'b-2'"),
        (str(runs / "b-notes"), "is no run and holds none"),
    ):
        with pytest.raises(RunError, match=problem):
            found(text)
    (tmp_path / "b-notes.txt").touch()  # matches too, and is no run
    monkeypatch.chdir(tmp_path)
    assert found("b-*") == ["b-1", "b-2"]


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path: Path) -> None:
    for seed in (1, 2):
        for rate in (0.01, 0.002):
            write_run(tmp_path, f"run-{rate}-{seed}", seed=seed, learning_rate=rate, checkpoint={"every": seed})
    settings = {"tags": ["paper"], "track": ["aim"], "track_project": "boards", "video_every": 9, "log_info": ["y"]}
    write_run(tmp_path, "run-0.01-3", seed=3, learning_rate=0.01, **settings)  # these keep no runs apart
    assert grouped(tmp_path) == {
        "learning_rate 0.002": ["run-0.002-1", "run-0.002-2"],
        "learning_rate 0.01": ["run-0.01-1", "run-0.01-2", "run-0.01-3"],
    }


def test_runs_are_put_together_by_chosen_settings_under_the_names_people_use(tmp_path: Path) -> None:
    for name, env, rate, hidden in (("a", "maze", 0.1, [8, 8]), ("b", "maze", 0.2, [8, 8]), ("c", "snake", 0.2, [16])):
        write_run(tmp_path, name, env=env, learning_rate=rate, policy={"hidden": hidden})
    assert grouped(tmp_path, ("env",)) == {"maze": ["a", "b"], "snake": ["c"]}
    assert grouped(tmp_path, ("ppo.learning_rate",)) == {"learning_rate 0.1": ["a"], "learning_rate 0.2": ["b", "c"]}
    assert grouped(tmp_path, ("policy.hidden",)) == {"hidden 16": ["c"], "hidden 8x8": ["a", "b"]}
    with pytest.raises(ConfigError, match=r"--group-by lerning_rate: .* Did you mean 'learning_rate'"):
        grouped(tmp_path, ("lerning_rate",))
    (write_run(tmp_path, "bad", [record_at(1)]) / "config.toml").write_bytes(b"\0")
    runs, notes = configured(find_runs([str(tmp_path)], tmp_path))
    assert [run.run.name for run in runs] == ["a", "b", "c"]
    assert [note.startswith("bad is left out: ") for note in notes] == [True]
    first = flat({"a": 1, "b": {"c": [1, 2], "d": {"e": None}}})
    assert first == {"a": 1, "b.c": [1, 2], "b.d.e": None}
    assert differing([first, {**first, "a": 2}, {**first, "z": 3}]) == ["a", "z"]
    assert differing([first, dict(first)]) == []


def test_groups_that_differ_in_much_are_told_apart_by_little_or_called_by_a_run(tmp_path: Path) -> None:
    much, long, alone = (tmp_path / name for name in ("much", "long", "alone"))
    for seed in (1, 2):
        write_run(much, f"a-{seed}", env="maze", seed=seed, gamma=0.1, num_envs=8, num_steps=4, device="cpu")
        write_run(much, f"b-{seed}", env="snake", seed=seed, gamma=0.2, num_envs=9, num_steps=5, device="cuda")
        write_run(long, f"a-{seed}", seed=seed, path="x" * 30 + "a")
    write_run(long, "b", seed=1, path="x" * 30 + "b")
    write_run(alone, "fast", learning_rate=0.1)
    write_run(alone, "slow", learning_rate=0.2)
    assert grouped(much) == {"maze": ["a-1", "a-2"], "snake": ["b-1", "b-2"]}
    assert grouped(long) == {"b": ["b"], "a-1 and seeds": ["a-1", "a-2"]}
    assert grouped(alone) == {"fast": ["fast"], "slow": ["slow"]}


def test_a_fork_is_no_other_seed_of_its_parent_and_begins_at_its_step(tmp_path: Path) -> None:
    lineage = {"parent_checkpoint": "../a/checkpoints/step_00002000", "parent_step": 2000, "changed": {}}
    write_run(tmp_path, "a", [record_at(update, return_100=1.0) for update in (1, 2)], seed=1)
    write_run(tmp_path, "b", [record_at(update, return_100=1.0) for update in (1, 2)], seed=2)
    write_run(tmp_path, "child", [record_at(update, return_100=2.0) for update in (3, 4)], seed=1, lineage=lineage)
    assert sorted(map(sorted, grouped(tmp_path).values())) == [["a", "b"], ["child"]]
    by_steps, _ = panels_of(tmp_path, "return_100")
    assert sorted((series.x[0], series.x[-1]) for series in by_steps.series) == [(1000, 2000), (3000, 4000)]


# --- curves ----------------------------------------------------------------------------------------------------


def test_runs_of_unequal_speed_are_averaged_at_equal_steps_and_worlds_have_panels_of_their_own(tmp_path: Path) -> None:
    for seed, seconds in ((1, 1.0), (2, 3.0)):
        records = [{**record_at(update, return_100=100.0 * update), "time": {"elapsed_seconds": seconds * update}}
                   for update in range(1, 11)]  # fmt: skip
        records[-1] |= {"time": {"elapsed_seconds": seconds * 10 + 90, "evaluate_seconds": 90}, "eval/mean_return": 7.0}
        write_run(tmp_path, f"run-{seed}", records, seed=seed)
    _, by_time = panels_of(tmp_path, "return_100")
    (series,) = by_time.series
    # at update u both have 100 u, which took u and 3 u seconds
    assert series.x.tolist() == pytest.approx((series.y / 50).tolist())
    assert (series.x[-1], series.y[-1]) == (20.0, 1000.0), "the curve ends with the last update"
    assert panels_of(tmp_path, "eval/mean_return")[1].series[0].x.tolist() == [110.0], "after the evaluation"
    for world, top in (("maze", 1.0), ("snake", 900.0)):
        write_run(tmp_path / "worlds", world, rising(top, 2), env=world)
    found = [(panel.title, panel.axis, [each.number for each in panel.series])
             for panel in panels_of(tmp_path / "worlds", "return_100")]  # fmt: skip
    assert found == [("maze", "steps", [0]), ("maze", "time", [0]), ("snake", "steps", [1]), ("snake", "time", [1])]


def test_a_run_without_the_metric_is_told_and_a_metric_that_none_has_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "a", [record_at(1, return_100=1.0)])
    write_run(tmp_path, "b", [record_at(1)], gamma=0.5)
    runs = find_runs([str(tmp_path)], tmp_path)
    assert check_metrics(["return_100"], runs, Tables()) == ["left out for want of return_100: b"]
    (panel, _) = panels_of(tmp_path, "return_100")
    assert [series.label for series in panel.series] == ["a"]
    with pytest.raises(ConfigError, match=r"no run has the metric 'return_99'\. Did you mean 'return_100'"):
        check_metrics(["return_99"], runs, Tables())


def test_the_default_metric_is_the_return_and_against_a_pool_the_rating(tmp_path: Path) -> None:
    write_run(tmp_path, "alone", [record_at(1, return_100=1.0)])
    write_run(tmp_path, "pool", [record_at(1, self_play__pool=3, self_play__rating=1200.0)])
    write_run(tmp_path, "huge", [record_at(1, return_100=10**400)])
    for names, metric in (("alone", "return_100"), ("pool", "self_play/rating"), ("pool alone", "return_100"),
                          ("huge", "return_100")):  # fmt: skip
        assert default_metric(find_runs(names.split(), tmp_path)) == metric, names


def test_lines_that_are_no_records_and_files_that_are_none_are_noted(tmp_path: Path) -> None:
    append_records(write_run(tmp_path, "torn"), [record_at(1, return_100=1.0)])
    with (tmp_path / "torn" / "metrics.jsonl").open("ab") as file:
        file.write(b"\0\0\n{\n")
    (write_run(tmp_path, "odd") / "metrics.jsonl").unlink()
    (tmp_path / "odd" / "metrics.jsonl").mkdir()
    tables = Tables()
    lengths = {run.name: len(tables.of(run)) for run in find_runs([str(tmp_path)], tmp_path)}
    assert lengths == {"torn": 1, "odd": 0}
    assert "is a folder, not a file" in tables.notes[0]
    assert tables.notes[1] == "torn: 2 lines of its metrics are no records, passed over"
    with pytest.raises(ConfigError, match="is a folder, not a file"):
        check_metrics(["return_100"], find_runs(["odd"], tmp_path), Tables())


# --- comparisons -----------------------------------------------------------------------------------------------


def test_the_last_evaluation_has_the_interval_of_a_mean_of_so_many_episodes(tmp_path: Path) -> None:
    first = record_at(1, eval__mean_return=50.0, eval__std_return=1.0, eval__episodes=5)
    last = record_at(2, eval__mean_return=100.0, eval__std_return=20.0, eval__episodes=101)
    write_run(tmp_path, "a", [first, last, record_at(3)], gamma=0.9)
    write_run(tmp_path, "b", [first], gamma=0.8)
    number = compared(tmp_path).contenders[0].numbers["last evaluation"]
    assert number.center == 100.0
    assert number.high - number.center == pytest.approx(1.98397 * 20 / math.sqrt(100))  # t of 100 degrees


def test_steps_and_seconds_are_counted_to_the_level_that_all_reached(tmp_path: Path) -> None:
    write_run(tmp_path, "slow", rising(100.9), gamma=0.9)
    write_run(tmp_path, "fast", rising(200.0), gamma=0.8)
    comparison = compared(tmp_path)
    assert comparison.level == 100.0
    found = {each.group.label: [each.numbers[f"{unit} to 100"].center for unit in ("steps", "seconds")]
             for each in comparison.contenders}  # fmt: skip
    assert found == {"slow": [10_000, 5.0], "fast": [5_000, 2.5]}
    # a level is rounded so that every run has reached it
    for top, level in ((367.96, 367.0), (-0.012345, -0.0124), (5.0, 5.0), (0.0, 0.0), (1.2e6, 1.2e6)):
        for name, last in (("a", top), ("b", top + 1)):
            write_run(tmp_path / str(top), name, [record_at(1, return_100=last)], gamma=0.9 if name == "a" else 0.8)
        assert compared(tmp_path / str(top)).level == pytest.approx(level)
        assert level <= top


def test_seeds_are_taken_together_with_their_mean_and_vary_within_each_world(tmp_path: Path) -> None:
    rates, worlds = tmp_path / "rates", tmp_path / "worlds"
    for seed, top in ((1, 100.0), (2, 120.0), (3, 140.0)):
        write_run(rates, f"good-{seed}", rising(top), seed=seed, gamma=0.9)
        write_run(rates, f"poor-{seed}", rising(top / 2), seed=seed, gamma=0.5)
        write_run(worlds, f"maze-{seed}", rising(1.0), env="maze", seed=seed)
        write_run(worlds, f"snake-{seed}", rising(101.0), env="snake", seed=seed)
    poor, good = (each.numbers["return_100"] for each in compared(rates).contenders)
    assert good.center == pytest.approx(120.0)
    reach = pytest.approx(4.30265 * 20 / math.sqrt(3))
    assert (good.high - good.center, good.center - good.low) == (reach, reach)
    assert poor.count == 3
    (together,) = compared(worlds, ("algorithm",)).contenders
    number = together.numbers["return_100"]
    # each world's seeds are all alike
    assert (number.center, number.low, number.high) == pytest.approx((51.0, 51.0, 51.0))
    comparison = compared(worlds)
    assert comparison.level is None  # none that worlds have in common
    assert comparison.differences == {"env.name": ("maze", "snake")}


def test_forks_tell_whose_they_are_also_over_generations(tmp_path: Path) -> None:
    from_a = {"parent_checkpoint": "../a/checkpoints/step_00001000", "parent_step": 1000, "changed": {"gamma": [1, 2]}}
    from_b = {"parent_checkpoint": "../b/checkpoints/step_00002000", "parent_step": 2000, "parent_lineage": from_a}
    for name, lineage in (("a", None), ("b", from_a), ("c", from_b)):
        write_run(tmp_path / "runs", name, rising(1.0), lineage=lineage)
    told = "b is a fork of a at step 1,000; it changed gamma", "c is a fork of b at step 2,000"
    assert compared(tmp_path / "runs").relations == told
    (tmp_path / "runs" / "b").rename(tmp_path / "away")
    assert compared(tmp_path / "runs").relations == ("c descends from a over 2 forks",)
