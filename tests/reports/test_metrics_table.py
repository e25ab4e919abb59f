"""Metrics as columns: every number in its row, memory bounded, curves thinned without losing their shape."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from scramjet.reports.metrics_table import TIME, Curve, MetricsTable, thinned
from tests.helpers.written_runs import append_records, record_at


def test_columns_have_each_number_in_its_row_and_nan_elsewhere(tmp_path: Path) -> None:
    append_records(
        tmp_path, [record_at(1, loss=0.5), record_at(2, loss=None, eval__mean_return=9), record_at(3, flag=True)]
    )
    table = MetricsTable(tmp_path / "metrics.jsonl")
    assert table.update()
    np.testing.assert_array_equal(table.column("step"), [1000, 2000, 3000])
    np.testing.assert_array_equal(table.column("loss"), [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(table.column("eval/mean_return"), [np.nan, 9, np.nan])
    np.testing.assert_array_equal(table.column(TIME), [0.5, 1.0, 1.5])
    assert "flag" not in table.names
    assert np.isnan(table.column("unknown")).all()
    assert table.curve("eval/mean_return").x.tolist() == [2000]
    assert table.last()["eval/mean_return"] == 9


def test_a_table_follows_a_file_that_grows_and_starts_again_when_it_is_cut(tmp_path: Path) -> None:
    append_records(tmp_path, [record_at(update, loss=1.0) for update in range(1, 10)])
    table = MetricsTable(tmp_path / "metrics.jsonl")
    table.update()
    assert not table.update()
    append_records(tmp_path, [record_at(10, loss=2.0)])
    assert table.update()
    assert (len(table), table.column("loss")[-1], table.generation) == (10, 2.0, 0)
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record_at(1, loss=3.0)) + "\n")
    assert table.update()
    assert (table.column("loss").tolist(), table.generation) == ([3.0], 1)


def test_rows_beyond_the_bound_are_merged_in_pairs_of_equal_weight(tmp_path: Path) -> None:
    table = MetricsTable(tmp_path / "metrics.jsonl", most_rows=10)
    for update in range(1, 101):
        append_records(tmp_path, [record_at(update, value=float(update))])
        table.update()
        assert len(table) <= 10
        assert table.column("step")[-1] == 1000 * update
    # 100 lines, 16 a row: the last row has the four that are left
    assert table.column("step").tolist() == [16_000, 32_000, 48_000, 64_000, 80_000, 96_000, 100_000]
    np.testing.assert_allclose(table.column("value"), [8.5, 24.5, 40.5, 56.5, 72.5, 88.5, 98.5])


def test_a_long_file_is_read_at_a_stride_that_keeps_evaluations_and_the_end(tmp_path: Path) -> None:
    evaluated = {700: {"eval__mean_return": 3.0}, 4321: {"eval__mean_return": 5.0}}
    append_records(tmp_path, [record_at(update, value=1.0, **evaluated.get(update, {})) for update in range(1, 5001)])
    table = MetricsTable(tmp_path / "metrics.jsonl", most_rows=500)
    table.update()
    assert 250 <= len(table) <= 500
    assert table.curve("eval/mean_return").x.tolist() == [700_000, 4_321_000]
    assert table.column("step")[-1] == 5_000_000
    assert not table.update()


def test_names_and_numbers_made_to_mislead_take_no_memory(tmp_path: Path) -> None:
    record = {**record_at(1), **{f"metric{number}": number for number in range(5000)}, "x" * 300: 1, "\x1b[2J": 1}
    append_records(tmp_path, [record, {**record_at(2), "metric1": 10**400}])
    table = MetricsTable(tmp_path / "metrics.jsonl")
    table.update()
    assert len(table.names) == 1000
    assert all(name.isprintable() and len(name) <= 200 for name in table.names)
    assert np.isnan(table.column("metric1")[1])


def test_a_thinned_curve_keeps_its_ends_and_its_spikes() -> None:
    x = np.arange(100_000.0)
    y = np.zeros_like(x)
    y[31_415], y[92_653] = 5.0, -5.0
    curve = thinned(Curve(x, y), 1000)
    assert len(curve.x) <= 1000
    assert (curve.x[0], curve.x[-1]) == (0, 99_999)
    assert (curve.y.max(), curve.y.min()) == (5.0, -5.0)
    assert (np.diff(curve.x) > 0).all()
    assert thinned(Curve(x[:10], y[:10]), 10).x.tolist() == list(range(10))
