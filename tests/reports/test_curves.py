"""Curves of groups as panels: over steps and wall time, worlds apart, runs without the metric left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from scramjet.errors import ConfigError
from scramjet.reports.curves import CurveSettings, Panel, Tables, check_metrics, default_metric, panels
from scramjet.reports.groups import configured, group_runs
from scramjet.reports.run_selection import find_runs
from tests.helpers.written_runs import append_records, record_at, write_run


def panels_of(runs_dir: Path, *metrics: str) -> list[Panel]:
    runs, _ = configured(find_runs([str(runs_dir)], runs_dir))
    return panels(group_runs(runs), runs, Tables(), CurveSettings(metrics))


def test_runs_of_unequal_speed_are_averaged_at_equal_steps_also_over_wall_time(tmp_path: Path) -> None:
    for seed, seconds in ((1, 1.0), (2, 3.0)):
        records = [{**record_at(update, return_100=100.0 * update), "time": {"elapsed_seconds": seconds * update}}
                   for update in range(1, 11)]  # fmt: skip
        write_run(tmp_path, f"run-{seed}", records, seed=seed)
    _, by_time = panels_of(tmp_path, "return_100")
    (series,) = by_time.series
    # at update u both have 100 u, which took u and 3 u seconds
    assert series.x.tolist() == pytest.approx((series.y / 50).tolist())
    assert (series.x[-1], series.y[-1]) == (20.0, 1000.0)


def test_worlds_have_panels_of_their_own_and_one_group_has_one_colour_in_all(tmp_path: Path) -> None:
    for world, top in (("maze", 1.0), ("snake", 900.0)):
        write_run(tmp_path, world, [record_at(1, return_100=top), record_at(2, return_100=top)], env=world)
    found = panels_of(tmp_path, "return_100")
    assert [(panel.title, panel.axis) for panel in found] == [
        ("maze", "steps"), ("maze", "time"), ("snake", "steps"), ("snake", "time"),
    ]  # fmt: skip
    assert [[series.number for series in panel.series] for panel in found] == [[0], [0], [1], [1]]


def test_a_fork_begins_at_its_parents_step(tmp_path: Path) -> None:
    lineage = {"parent_checkpoint": "../a/checkpoints/step_00002000", "parent_step": 2000, "changed": {}}
    write_run(tmp_path, "a", [record_at(update, return_100=1.0) for update in (1, 2)])
    write_run(tmp_path, "b", [record_at(update, return_100=2.0) for update in (3, 4)], lineage=lineage)
    by_steps, _ = panels_of(tmp_path, "return_100")
    assert {series.label: series.x.tolist() for series in by_steps.series} == {"a": [1000, 2000], "b": [3000, 4000]}


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
    assert default_metric(find_runs(["alone"], tmp_path)) == "return_100"
    write_run(tmp_path, "pool", [record_at(1, self_play__pool=3, self_play__rating=1200.0)])
    assert default_metric(find_runs(["pool"], tmp_path)) == "self_play/rating"
    assert default_metric(find_runs(["pool", "alone"], tmp_path)) == "return_100"


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


def test_where_no_metrics_can_be_read_the_message_says_why(tmp_path: Path) -> None:
    (write_run(tmp_path, "odd", [record_at(1)]) / "metrics.jsonl").unlink()
    (tmp_path / "odd" / "metrics.jsonl").mkdir()
    with pytest.raises(ConfigError, match="is a folder, not a file"):
        check_metrics(["return_100"], find_runs(["odd"], tmp_path), Tables())


def test_a_number_of_hundreds_of_digits_counts_for_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, "huge", [record_at(1, return_100=10**400)])
    assert default_metric(find_runs(["huge"], tmp_path)) == "return_100"
