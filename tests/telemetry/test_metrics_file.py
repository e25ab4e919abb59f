"""metrics.jsonl is read piece by piece beside its writer, and lines that are no records do no harm."""

import json
import os
from pathlib import Path

import pytest

from scramjet.errors import RunError
from scramjet.telemetry.metrics_file import (
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def append(path: Path, *updates: int, **metrics: object) -> None:
    append_records(path.parent, [record_at(update, **metrics) for update in updates])


def test_each_reading_goes_on_where_the_last_ended_or_where_the_file_did(path: Path) -> None:
    assert end_of_records(path) == START
    append(path, 1, 2)
    first, end = read_records(path), end_of_records(path)
    assert end == first.position
    append(path, 3)
    second = read_records(path, first.position)
    assert steps(first.records) == [1000, 2000]
    assert steps(second.records) == [3000]
    assert not second.restarted
    assert read_records(path, second.position).records == []
    assert steps(read_records(path, end).records) == [3000]


def test_a_torn_line_is_read_once_it_is_whole(path: Path) -> None:
    line = json.dumps(record_at(1)) + "\n"
    path.write_text(line[:20])
    torn = read_records(path)
    assert (torn.records, torn.unreadable, read_last_record(path)) == ([], 0, None)
    path.write_text(line)
    assert steps(read_records(path, torn.position).records) == [1000]


def test_a_file_that_was_cut_is_told_and_read_from_its_start(path: Path) -> None:
    for later in (range(2, 3), range(2, 60)):  # shorter, or longer again
        for position_of in (lambda: read_records(path).position, lambda: end_of_records(path)):
            path.unlink(missing_ok=True)
            append(path, *range(1, 20), loss=0.25)
            position = position_of()
            path.unlink()
            append(path, 1, *later, loss=0.5)
            second = read_records(path, position)
            assert second.restarted
            assert steps(second.records) == [1000, *(1000 * update for update in later)]


def test_lines_that_are_no_records_are_counted_and_passed_over(path: Path) -> None:
    good = json.dumps(record_at(1)).encode()
    bad = [b"{", b"", b"\0" * 50, b"\xff\xfe", b"[1]", b'{"step": 1.5}', b'{"step": true}', b'{"step": 1, "x": NaN}']
    bad += [b'{"step": 1, "x": 1e999}', b'{"step": 1, "x": ' + b"[" * 3000 + b"]" * 3000 + b"}"]
    bad += [b'{"step": 1, "\\ud800": 2}', b'{"step": 1, "x": {"y": {"z": -1e999}}}', b"[" * 100_000]
    path.write_bytes(b"\n".join([*bad, good, b""]))
    reading = read_records(path)
    assert reading.unreadable == len(bad)
    assert reading.records == [json.loads(good)]


def test_a_line_too_long_is_passed_over_in_pieces(path: Path) -> None:
    path.write_bytes(b'{"step": 1, "x": "' + b"a" * (3 * LONGEST_LINE))
    reading = read_records(path)
    assert (reading.unreadable, reading.records) == (1, [])
    with path.open("ab") as file:
        file.write(b"a" * LONGEST_LINE + b'"}\n' + json.dumps(record_at(7)).encode() + b"\n")
    rest = read_records(path, reading.position)
    assert (rest.unreadable, steps(rest.records), rest.restarted) == (0, [7000], False)
    assert read_last_record(path) == record_at(7)


def test_a_terabyte_of_nothing_is_stepped_over(path: Path) -> None:
    """A sparse file takes no room on the disk, and a stranger may send one."""
    whole = path.read_bytes() if path.exists() else b""
    line = b'{"step": 7}\n'
    path.write_bytes(whole + line)
    before = len(read_records(path).records)
    os.truncate(path, 1 << 40)
    with path.open("ab") as file:
        file.write(b"\n" + line)
    reading = read_records(path)
    records = list(reading.records)
    while reading.has_more:
        reading = read_records(path, reading.position)
        records += reading.records
    assert len(records) == before + 1
    assert records[-1] == {"step": 7}


def test_the_bound_on_bytes_divides_a_long_file_without_losing_a_record(path: Path) -> None:
    append(path, *range(1, 5001), note="x" * 1000)
    reading = read_records(path, most_bytes=1 << 20)
    found = steps(reading.records)
    assert reading.has_more
    while reading.has_more:
        reading = read_records(path, reading.position, most_bytes=1 << 20)
        found += steps(reading.records)
    assert found == [1000 * update for update in range(1, 5001)]


def test_the_last_record_is_found_behind_garbage_at_the_end(path: Path) -> None:
    append(path, *range(1, 2000))
    with path.open("ab") as file:
        file.write(b"garbage\n" + b"\0" * 100_000)
    assert read_last_record(path) == record_at(1999)


def test_a_missing_file_has_no_records_and_a_folder_in_its_place_is_a_run_error(tmp_path: Path) -> None:
    assert read_records(tmp_path / "none").records == []
    assert read_last_record(tmp_path / "none") is None
    for read in (read_records, read_last_record):
        with pytest.raises(RunError, match="is a folder, not a file"):
            read(tmp_path)


def test_records_with_nested_numbers_texts_and_nulls_are_taken_as_they_are() -> None:
    record = {"step": 3, "x": None, "name": "übung", "time": {"a": 1.5}, "list": [1, [2.5]], "deep": {"a": {"b": 1}}}
    for is_ascii in (True, False):
        assert parse_record(json.dumps(record, ensure_ascii=is_ascii).encode()) == record
