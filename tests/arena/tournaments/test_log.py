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


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_is_dropped_and_the_next_batch_takes_its_place(path, kept):
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    path.write_bytes(whole[: -len(last)] + last[:kept])
    log = TournamentLog(path, HEADER)
    assert log.batches == [batch(0)]
    log.append(batch(1, count=6))
    log.close()
    assert path.read_bytes() == whole


def test_a_file_torn_within_its_header_begins_anew(path):
    path.write_bytes(path.read_bytes()[:30])
    assert reopened(path) == []
    assert json.loads(path.read_text())["world"] == "connect_four"


def test_an_unreadable_line_before_others_is_named(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{nonsense\n" + lines[2])
    with pytest.raises(RunError, match=r"line 2 of .*games.jsonl is no batch of games"):
        reopened(path)


@pytest.mark.parametrize(
    "change",
    [{"seating": [0, 2]}, {"seating": [0]}, {"places": [0, 1]}, {"places": [1, 3]}, {"count": 0}, {"count": "many"}],
)
def test_outcomes_that_cannot_be_are_not_believed(path, change):
    lines = path.read_text().splitlines()
    record = json.loads(lines[1])
    record["outcomes"][0] |= change
    path.write_text("\n".join([lines[0], json.dumps(record), lines[2], ""]))
    with pytest.raises(RunError, match="line 2"):
        reopened(path)


def test_a_changed_checkpoint_is_not_mixed_with_the_old_one(path):
    entrants = [HEADER["entrants"][0], {"name": "b", "digest": "33"}]
    with pytest.raises(RunError, match=r"a tournament with other entrants \(b is not the one there\)"):
        reopened(path, {**HEADER, "entrants": entrants})
    assert len(reopened(path)) == 2


def test_other_settings_are_another_tournament(path):
    with pytest.raises(RunError, match=r"a tournament with other games .10 there, 20 here.; give another --out"):
        reopened(path, {**HEADER, "games": 20})
    assert header_hash({**HEADER, "games": 20}) != header_hash(HEADER)


def test_a_file_that_is_no_tournament_is_left_alone(tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text("dear diary\n")
    with pytest.raises(RunError, match="is no tournament"):
        reopened(path)
    assert path.read_text() == "dear diary\n"


def test_a_link_is_not_followed(path, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with pytest.raises(RunError, match="symbolic link"):
        reopened(link)


def test_two_processes_cannot_play_the_same_tournament(path):
    log = TournamentLog(path, HEADER)
    with pytest.raises(RunError, match="another process plays this tournament"):
        TournamentLog(path, HEADER)
    log.close()
    assert len(reopened(path)) == 2
