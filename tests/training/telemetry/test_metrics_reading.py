"""metrics.jsonl is read piece by piece beside its writer, and lines that are no records do no harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scramjet.errors import RunError
from scramjet.training.telemetry.metrics_reading import (
    LONGEST_LINE,
    START,
    end_of_records,
    parse_record,
    read_last_record,
    read_records,
)
from tests.helpers.written_runs import append_records, record_at


def steps(records: list[dict]) -> list[int]:
    return [record["step"] for record in records]


def test_each_reading_goes_on_where_the_last_ended(tmp_path: Path) -> None:
    append_records(tmp_path, [record_at(1), record_at(2)])
    first = read_records(tmp_path / "metrics.jsonl")
    append_records(tmp_path, [record_at(3)])
    second = read_records(tmp_path / "metrics.jsonl", first.position)
    assert steps(first.records) == [1000, 2000]
    assert steps(second.records) == [3000]
    assert not second.restarted
    assert read_records(tmp_path / "metrics.jsonl", second.position).records == []


def test_what_comes_behind_the_end_is_read_from_there(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert end_of_records(path) == START
    append_records(tmp_path, [record_at(1), record_at(2)])
    assert end_of_records(path) == read_records(path).position
    end = end_of_records(path)
    append_records(tmp_path, [record_at(3)])
    assert steps(read_records(path, end).records) == [3000]


def test_a_torn_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = json.dumps(record_at(1)) + "\n"
    path.write_text(line[:20])
    torn = read_records(path)
    assert (torn.records, torn.unreadable, read_last_record(path)) == ([], 0, None)
    path.write_text(line)
    assert steps(read_records(path, torn.position).records) == [1000]


@pytest.mark.parametrize("was_read", [True, False])
@pytest.mark.parametrize("later", [range(2, 3), range(2, 60)], ids=["shorter", "longer again"])
def test_a_file_that_was_cut_is_told_and_read_from_its_start(tmp_path: Path, later: range, was_read: bool) -> None:
    path = tmp_path / "metrics.jsonl"
    append_records(tmp_path, [record_at(update, loss=0.25) for update in range(1, 20)])
    position = read_records(path).position if was_read else end_of_records(path)
    path.unlink()
    append_records(tmp_path, [record_at(update, loss=0.5) for update in [1, *later]])
    second = read_records(path, position)
    assert second.restarted
    assert steps(second.records) == [1000, *(1000 * update for update in later)]


def test_lines_that_are_no_records_are_counted_and_passed_over(tmp_path: Path) -> None:
    good = json.dumps(record_at(1)).encode()
    bad = [b"{", b"", b"\0" * 50, b"\xff\xfe", b"[1]", b'{"step": 1.5}', b'{"step": true}', b'{"step": 1, "x": NaN}']
    bad += [b'{"step": 1, "x": 1e999}', b'{"step": 1, "x": ' + b"[" * 3000 + b"]" * 3000 + b"}"]
    bad += [b'{"step": 1, "\\ud800": 2}', b'{"step": 1, "x": {"y": {"z": -1e999}}}', b"[" * 100_000]
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join([*bad, good, b""]))
    reading = read_records(tmp_path / "metrics.jsonl")
    assert reading.unreadable == len(bad)
    assert reading.records == [json.loads(good)]


def test_a_line_too_long_is_passed_over_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "x": "' + b"a" * (3 * LONGEST_LINE))
    reading = read_records(path)
    assert (reading.unreadable, reading.records) == (1, [])
    with path.open("ab") as file:
        file.write(b"a" * LONGEST_LINE + b'"}\n' + json.dumps(record_at(7)).encode() + b"\n")
    rest = read_records(path, reading.position)
    assert (rest.unreadable, steps(rest.records), rest.restarted) == (0, [7000], False)
    assert read_last_record(path) == record_at(7)


def test_the_bound_on_bytes_divides_a_long_file_without_losing_a_record(tmp_path: Path) -> None:
    append_records(tmp_path, [record_at(update, note="x" * 1000) for update in range(1, 5001)])
    reading = read_records(tmp_path / "metrics.jsonl", most_bytes=1 << 20)
    found = steps(reading.records)
    assert reading.has_more
    while reading.has_more:
        reading = read_records(tmp_path / "metrics.jsonl", reading.position, most_bytes=1 << 20)
        found += steps(reading.records)
    assert found == [1000 * update for update in range(1, 5001)]


def test_the_last_record_is_found_behind_garbage_at_the_end(tmp_path: Path) -> None:
    append_records(tmp_path, [record_at(update) for update in range(1, 2000)])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b"garbage\n" + b"\0" * 100_000)
    assert read_last_record(tmp_path / "metrics.jsonl") == record_at(1999)


def test_a_missing_file_has_no_records_and_a_folder_in_its_place_is_a_run_error(tmp_path: Path) -> None:
    assert read_records(tmp_path / "none").records == []
    assert read_last_record(tmp_path / "none") is None
    with pytest.raises(RunError, match="is a folder, not a file"):
        read_records(tmp_path)
    with pytest.raises(RunError, match="is a folder, not a file"):
        read_last_record(tmp_path)


def test_records_with_nested_numbers_texts_and_nulls_are_taken_as_they_are() -> None:
    record = {"step": 3, "x": None, "name": "übung", "time": {"a": 1.5}, "list": [1, [2.5]], "deep": {"a": {"b": 1}}}
    assert parse_record(json.dumps(record).encode()) == record
    assert parse_record(json.dumps(record, ensure_ascii=False).encode()) == record
