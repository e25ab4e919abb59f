"""Who takes part: checkpoints of runs, spread over training, and players by name."""

from __future__ import annotations

import itertools

import pytest
import torch

from scramjet.arena.tournaments.entrants import entrants_of_run, gather_entrants, spread
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
