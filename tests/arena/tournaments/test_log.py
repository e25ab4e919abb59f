"""The file of a tournament: what a kill leaves is taken up, what is not its own is refused."""

from __future__ import annotations

import json

import pytest

from scramjet.arena.tournaments.log import BatchResult, Outcome, TournamentLog, header_hash
from scramjet.errors import RunError

HEADER = {
    "world": "connect_four",
    "num_seats": 2,
    "games": 10,
    "entrants": [{"name": "a", "digest": "11"}, {"name": "b", "digest": "22"}],
}


def batch(number, count=5):
    outcomes = (Outcome((0, 1), (1, 2), count), Outcome((1, 0), (1, 1), 3))
    return BatchResult(number, outcomes, num_distinct=7, num_cut=1, notes=("a note",))


@pytest.fixture
def path(tmp_path):
    """The file of a tournament with two batches."""
    path = tmp_path / "deep" / "games.jsonl"
    log = TournamentLog(path, HEADER)
    log.append(batch(0))
    log.append(batch(1, count=6))
    log.close()
    return path


def reopened(path, header=HEADER):
    log = TournamentLog(path, header)
    log.close()
    return log.batches


def test_what_was_played_is_there_again(path):
    assert reopened(path) == [batch(0), batch(1, count=6)]
    assert batch(0).num_games == 8


def test_a_torn_last_line_is_dropped_and_the_next_batch_takes_its_place(path):
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for kept in (1, 20, -1):
        path.write_bytes(whole[: -len(last)] + last[:kept])
        log = TournamentLog(path, HEADER)
        assert log.batches == [batch(0)], kept
        log.append(batch(1, count=6))
        log.close()
        assert path.read_bytes() == whole
    path.write_bytes(whole[:30])  # torn within its header it begins anew
    assert reopened(path) == []
    assert json.loads(path.read_text())["world"] == "connect_four"


def test_lines_that_cannot_be_read_or_believed_are_named(path):
    header, first, last = path.read_bytes().splitlines()
    damaged = [b"{nonsense"]
    for change in ({"seating": [0, 2]}, {"seating": [0]}, {"places": [0, 1]}, {"places": [1, 3]}, {"count": 0},
                   {"count": "many"}):  # fmt: skip
        record = json.loads(first)
        record["outcomes"][0] |= change
        damaged.append(json.dumps(record).encode())
    for line in damaged:
        path.write_bytes(b"\n".join([header, line, last, b""]))
        with pytest.raises(RunError, match=r"line 2 of .*games.jsonl is no batch of games"):
            reopened(path)


def test_another_tournament_and_what_is_none_are_left_alone(path, tmp_path):
    changed = [HEADER["entrants"][0], {"name": "b", "digest": "33"}]
    for header, problem in (
        ({**HEADER, "entrants": changed}, r"a tournament with other entrants \(b is not the one there\)"),
        ({**HEADER, "games": 20}, r"a tournament with other games .10 there, 20 here.; give another --out"),
    ):
        with pytest.raises(RunError, match=problem):
            reopened(path, header)
        assert header_hash(header) != header_hash(HEADER)
    assert len(reopened(path)) == 2
    notes, link = tmp_path / "notes.jsonl", tmp_path / "link.jsonl"
    notes.write_text("dear diary\n")
    link.symlink_to(path)
    for file, problem in ((notes, "is no tournament"), (link, "symbolic link")):
        with pytest.raises(RunError, match=problem):
            reopened(file)
    assert notes.read_text() == "dear diary\n"


def test_two_processes_cannot_play_the_same_tournament(path):
    log = TournamentLog(path, HEADER)
    with pytest.raises(RunError, match="another process plays this tournament"):
        TournamentLog(path, HEADER)
    log.close()
    assert len(reopened(path)) == 2


def test_a_batch_is_on_the_disk_when_it_is_told_of(path, monkeypatch):
    log, synced = TournamentLog(path, HEADER), []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(path.read_bytes()))
    log.append(batch(2))
    log.close()
    assert synced == [path.read_bytes()]
