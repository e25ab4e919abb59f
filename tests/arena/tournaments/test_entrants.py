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


def test_all_checkpoints_of_a_run_take_part(tmp_path):
    run = make_run(tmp_path / "first", (100, 200, 300))
    entrants = gather_entrants([str(run)], [], runs_dir=tmp_path)
    assert names(entrants) == ["first@100", "first@200", "first@300"]
    assert [entrant.step for entrant in entrants] == [100, 200, 300]
    assert {entrant.run for entrant in entrants} == {str(run)}


def test_a_run_is_found_by_its_name_and_a_checkpoint_by_its_path(tmp_path):
    make_run(tmp_path / "first", (100, 200))
    run = make_run(tmp_path / "second", (50, 70))
    entrants = gather_entrants(["first", str(run / "checkpoints/latest")], [], runs_dir=tmp_path)
    assert names(entrants) == ["first@100", "first@200", "second@70"]


def test_earlier_selves_among_a_runs_opponents_take_part_once(tmp_path):
    run = make_run(tmp_path / "first", (200, 300), opponents=(100, 200))
    assert names(entrants_of_run(run)) == ["first@100", "first@200", "first@300"]


def test_who_is_given_twice_takes_part_once(tmp_path):
    run = make_run(tmp_path / "first", (100, 200))
    given = [str(run), str(run), str(run / "checkpoints/step_00000100")]
    entrants = gather_entrants(given, ["random", "random", str(run)], runs_dir=tmp_path)
    assert names(entrants) == ["first@100", "first@200", "random"]


def test_runs_of_the_same_name_in_two_folders_are_told_apart(tmp_path):
    runs = [str(make_run(tmp_path / folder / "run", (100,))) for folder in ("a", "b")]
    assert names(gather_entrants(runs, [], runs_dir=tmp_path)) == [f"{run}@100" for run in runs]


def test_a_limit_keeps_the_newest_and_spreads_the_others(tmp_path):
    run = make_run(tmp_path / "first", range(100, 1100, 100))
    assert [entrant.step for entrant in entrants_of_run(run, 4)] == [100, 400, 700, 1000]
    assert [entrant.step for entrant in entrants_of_run(run, 1)] == [1000]
    assert len(entrants_of_run(run, 99)) == 10


def test_the_spread_is_the_most_even_there_is():
    steps = [0, 1, 2, 3, 50, 97, 98, 99, 100]

    def unevenness(chosen):
        return sum((steps[index] - 100 * n / 2) ** 2 for n, index in enumerate(chosen))

    best = min(itertools.combinations(range(len(steps)), 3), key=unevenness)
    assert spread(steps, 3) == list(best) == [0, 4, 8]


@pytest.mark.parametrize(("players", "given"), [([], "nobody"), (["random"], "only random")])
def test_a_tournament_of_one_is_refused(tmp_path, players, given):
    with pytest.raises(ConfigError, match=f"two players or more, and {given} takes part.*--random"):
        gather_entrants([], players, runs_dir=tmp_path)


def test_a_damaged_checkpoint_is_named_with_the_way_around_it(tmp_path):
    run = make_run(tmp_path / "first", (100, 200))
    with open(run / "checkpoints/step_00000100/model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(CheckpointError, match=r"step_00000100.*To play without it, remove it"):
        gather_entrants([str(run)], [], runs_dir=tmp_path)


def test_a_run_without_checkpoints_and_one_that_is_not_there_are_named(tmp_path):
    empty = make_run(tmp_path / "empty", ())
    with pytest.raises(CheckpointError, match="empty has no checkpoint yet"):
        gather_entrants([str(empty)], [], runs_dir=tmp_path)
    with pytest.raises(RunError, match=r"no run 'emty'.*Did you mean 'empty'"):
        gather_entrants(["emty"], [], runs_dir=tmp_path)


def test_a_limit_of_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="limit_per_run=0"):
        gather_entrants([], ["random", "greedy"], runs_dir=tmp_path, limit_per_run=0)


def test_a_players_digest_changes_with_its_code(tmp_path):
    file = tmp_path / "mine.py"
    digests = []
    for move in (0, 0, 1):
        file.write_text(f"def choose(view):\n    return view.legal[{move}]\n")
        digests.append(gather_entrants([], ["random", f"{file}:choose"], runs_dir=tmp_path)[1].digest)
    assert digests[0] == digests[1] != digests[2]
