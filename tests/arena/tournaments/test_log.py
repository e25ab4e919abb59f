"""Who takes part in a tournament, and its file: what a kill leaves is taken up, what is not its own is refused."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from scramjet.arena.tournaments.log import BatchResult, Outcome, TournamentLog, header_hash
from scramjet.arena.tournaments.preparation import entrants_of_run, gather_entrants, spread
from scramjet.errors import CheckpointError, ConfigError, RunError
from scramjet.runtime.checkpoints import CheckpointStore


def make_run(path, steps, opponents=()):
    """A run's folder with checkpoints, each with a weight of its own, and earlier selves among its opponents."""
    for folder, each in (("checkpoints", steps), ("opponents", opponents)):
        store = CheckpointStore(path / folder)
        for step in each:
            store.save(step, {"weight": torch.full((2,), float(step))}, {}, {"run": str(path)})
    (path / "config.toml").write_text("")
    return path


def names(entrants):
    return [entrant.name for entrant in entrants]


def test_checkpoints_take_part_once_each_by_the_names_and_paths_of_their_runs(tmp_path):
    first = make_run(tmp_path / "first", (100, 200, 300), opponents=(50, 100))
    second = make_run(tmp_path / "second", (50, 70))
    same_name = [str(make_run(tmp_path / folder / "run", (100,))) for folder in ("a", "b")]

    def gathered(given, players=()):
        return names(gather_entrants([str(each) for each in given], list(players), runs_dir=tmp_path))

    of_first = ["first@50", "first@100", "first@200", "first@300"]  # earlier selves among its opponents too
    entrants = gather_entrants([str(first)], [], runs_dir=tmp_path)
    assert (names(entrants), [entrant.step for entrant in entrants]) == (of_first, [50, 100, 200, 300])
    assert {entrant.run for entrant in entrants} == {str(first)}
    assert gathered(["first", second / "checkpoints/latest"]) == [*of_first, "second@70"]
    given = [first, first, first / "checkpoints/step_00000100"]
    assert gathered(given, ["random", "random", str(first)]) == [*of_first, "random"]
    assert gathered(same_name) == [f"{run}@100" for run in same_name]  # told apart by their folders


def test_a_limit_keeps_the_newest_and_spreads_the_others_most_evenly(tmp_path):
    run = make_run(tmp_path / "first", range(100, 1100, 100))
    for limit, steps in ((4, [100, 400, 700, 1000]), (1, [1000]), (99, list(range(100, 1100, 100)))):
        assert [entrant.step for entrant in entrants_of_run(run, limit)] == steps, limit
    with pytest.raises(ConfigError, match="limit_per_run=0"):
        gather_entrants([], ["random", "greedy"], runs_dir=tmp_path, limit_per_run=0)
    steps = [0, 1, 2, 3, 50, 97, 98, 99, 100]

    def unevenness(chosen):
        return sum((steps[index] - 100 * n / 2) ** 2 for n, index in enumerate(chosen))

    best = min(itertools.combinations(range(len(steps)), 3), key=unevenness)
    assert spread(steps, 3) == list(best) == [0, 4, 8]


def test_those_who_cannot_take_part_are_named_with_the_way_around(tmp_path):
    damaged, _ = make_run(tmp_path / "first", (100, 200)), make_run(tmp_path / "empty", ())
    with open(damaged / "checkpoints/step_00000100/model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    for given, players, error, problem in (
        ([], [], ConfigError, "two players or more, and nobody takes part.*--random"),
        ([], ["random"], ConfigError, "two players or more, and only random takes part.*--random"),
        (["first"], [], CheckpointError, r"step_00000100.*To play without it, remove it"),
        (["empty"], [], CheckpointError, "empty has no checkpoint yet"),
        (["emty"], [], RunError, r"no run 'emty'.*Did you mean 'empty'"),
    ):
        with pytest.raises(error, match=problem):
            gather_entrants(given, players, runs_dir=tmp_path)


def test_a_players_digest_changes_with_its_code(tmp_path):
    file = tmp_path / "mine.py"
    digests = []
    for move in (0, 0, 1):
        file.write_text(f"def choose(view):\n    return view.legal[{move}]\n")
        digests.append(gather_entrants([], ["random", f"{file}:choose"], runs_dir=tmp_path)[1].digest)
    assert digests[0] == digests[1] != digests[2]


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


def test_what_was_played_is_on_the_disk_and_belongs_to_one_process(path, monkeypatch):
    assert reopened(path) == [batch(0), batch(1, count=6)]
    assert batch(0).num_games == 8
    log = TournamentLog(path, HEADER)
    with pytest.raises(RunError, match="another process plays this tournament"):
        TournamentLog(path, HEADER)
    log.close()
    assert len(reopened(path)) == 2
    log, synced = TournamentLog(path, HEADER), []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(path.read_bytes()))
    log.append(batch(2))
    log.close()
    assert synced == [path.read_bytes()]
