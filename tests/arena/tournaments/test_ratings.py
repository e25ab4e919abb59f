"""The table of a tournament: the right numbers in the right rows, what it says of cycles, and its plot."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from scramjet.algorithms.ratings import Rankings, rate
from scramjet.arena.tournaments.log import BatchResult, Outcome
from scramjet.arena.tournaments.preparation import Entrant
from scramjet.arena.tournaments.ratings import (
    HEIGHT,
    WIDTH,
    check_plot_path,
    games_of,
    rating_plot,
    rating_table,
    scores_of,
    short_number,
    table_text,
    ticks,
)
from scramjet.errors import ConfigError

PLAYERS = [Entrant("agent@100", "/runs/agent/checkpoints/step_00000100", "1", "/runs/agent", 100)]
PLAYERS += [Entrant("random", "random", "2"), Entrant("greedy", "greedy", "3")]


def batches(*outcomes, notes=(), num_distinct=None, num_cut=0):
    games = sum(outcome.count for outcome in outcomes)
    return [BatchResult(0, outcomes, games if num_distinct is None else num_distinct, num_cut, notes)]


def beats(winner, loser, wins, losses=0, draws=0):
    """Games of two players, from both seats."""
    return [
        Outcome((winner, loser), (1, 2), wins),
        *([Outcome((loser, winner), (1, 2), losses)] if losses else []),
        *([Outcome((loser, winner), (1, 1), draws)] if draws else []),
    ]


def test_outcomes_become_games_of_pairs_rankings_of_more_and_scores_in_which_shared_first_places_are_draws():
    games = games_of([*beats(0, 1, 5, losses=2, draws=3), *beats(2, 1, 4)], 3)  # from both seats
    assert (games.first.tolist(), games.second.tolist()) == ([0, 1], [1, 2])
    assert (games.wins.tolist(), games.draws.tolist(), games.losses.tolist()) == ([5, 0], [3, 0], [2, 4])
    games = games_of([Outcome((2, 0, 1), (1, 2, 2), 4)], 3)
    assert isinstance(games, Rankings)
    assert (games.players.tolist(), games.counts.tolist()) == ([[2, 0, 1]], [4])
    scores = scores_of([Outcome((2, 0, 1), (1, 1, 3), 4), Outcome((0, 1, 2), (1, 2, 2), 3)], 3)
    assert [(score.wins, score.draws, score.losses) for score in scores] == [(3, 4, 0), (0, 0, 7), (0, 4, 3)]


def test_the_best_comes_first_and_random_or_the_mean_is_1000():
    outcomes = [*beats(0, 1, 18, losses=2), *beats(0, 2, 12, losses=6, draws=2), *beats(2, 1, 15, losses=5)]
    table = rating_table(PLAYERS, batches(*outcomes))
    assert [row.entrant.name for row in table.rows] == ["agent@100", "greedy", "random"]
    expected = rate(games_of(outcomes, 3), anchor=1)
    assert [row.rating for row in table.rows] == pytest.approx(expected.ratings[[0, 2, 1]])
    assert [row.standard_error for row in table.rows] == pytest.approx(expected.standard_errors[[0, 2, 1]])
    assert table.rows[2].rating == 1000
    lines = table_text(table)
    assert lines[1].split()[:3] == ["1", "agent@100", f"{table.rows[0].rating:.0f}"]
    assert lines[1].split()[3:5] == ["±", f"{1.96 * table.rows[0].standard_error:.0f}"]
    assert lines[1].split()[5:] == ["40", "30", "2", "8", "77.5", "%"]
    assert "±" not in lines[3]
    assert any("random is 1000" in line for line in lines)
    table = rating_table([PLAYERS[0], PLAYERS[2]], batches(*beats(0, 1, 5, losses=3)))
    assert table.anchor is None
    assert sum(row.rating for row in table.rows) == pytest.approx(2000)
    assert any("their mean is 1000" in line for line in table_text(table))


def text_of(*outcomes):
    return " ".join(table_text(rating_table(PLAYERS, batches(*itertools.chain(*outcomes)))))


def test_cycles_are_told_from_chance_and_from_results_that_ratings_explain():
    clear = text_of(beats(0, 1, 80, losses=20), beats(1, 2, 75, losses=25), beats(2, 0, 70, losses=30))
    assert "One number per player is not the whole truth" in clear
    assert "Clearest cycle, of the games with a winner: agent@100 beats random in 80 %, random beats" in clear
    assert "random beats greedy in 75 %, greedy beats agent@100 in 70 %." in clear
    doubtful = text_of(beats(0, 1, 80, losses=20), beats(1, 2, 80, losses=20), beats(2, 0, 52, losses=48))
    assert "Clearest cycle, which may be chance" in doubtful
    none = text_of(beats(0, 1, 800, losses=200), beats(1, 2, 800, losses=200), beats(0, 2, 520, losses=480))
    assert "No three players beat each other" in none
    explained = text_of(beats(0, 1, 80, losses=20), beats(1, 2, 60, losses=40), beats(0, 2, 85, losses=15))
    assert "One number per player explains the results (deviance" in explained
    assert "cycle" not in explained
    two = rating_table(PLAYERS[:2], batches(*beats(0, 1, 5)))
    assert any("cannot be told from these pairings" in line for line in table_text(two))
    assert two.as_dict()["cycles"]["is_explained"] is None


def test_games_that_repeat_themselves_were_cut_or_lost_by_illegal_moves_are_told():
    given = batches(*beats(0, 1, 50, losses=50), notes=("player greedy chose", "player greedy chose"), num_distinct=4)
    text = table_text(rating_table(PLAYERS[:2], given))
    assert any(line.startswith("Only 4 of 100 games differ") for line in text)
    assert text.count("player greedy chose") == 1
    cut = table_text(rating_table(PLAYERS[:2], batches(*beats(0, 1, 5, losses=1), num_cut=2)))
    assert any(line.startswith("2 games did not end in time") for line in cut)


def test_the_table_for_json_holds_what_the_text_holds():
    outcomes = [*beats(0, 1, 80, losses=20), *beats(1, 2, 75, losses=25), *beats(2, 0, 70, losses=30)]
    table = json.loads(json.dumps(rating_table(PLAYERS, batches(*outcomes)).as_dict()))
    best = table["players"][0]
    assert best["rank"] == 1
    assert best["interval"][1] - best["rating"] == pytest.approx(1.96 * best["standard_error"], rel=1e-3)
    assert table["cycles"]["is_explained"] is False
    assert table["cycles"]["worst_cycle"]["win_rates"] == [0.8, 0.75, 0.7]
    assert table["games"] == 300


def test_players_that_never_met_are_told_and_games_of_three_are_rated_by_their_places():
    outcomes = [Outcome((0, 1, 2), (1, 2, 3), 20), Outcome((2, 1, 0), (1, 2, 2), 5)]
    table = rating_table(PLAYERS, batches(*outcomes))
    assert [row.entrant.name for row in table.rows] == ["agent@100", "random", "greedy"]
    for outcomes, num_groups in ((beats(0, 1, 5), 2), ([*beats(0, 1, 5), *beats(1, 2, 3)], 1)):
        table = rating_table(PLAYERS, batches(*outcomes))
        assert table.num_groups == num_groups
        assert any("2 groups that have not met" in line for line in table_text(table)) == (num_groups == 2)


# --- the plot --------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"
CHECKPOINTS = [Entrant(f"{run}@{step}", f"/{run}/{step}", f"{run}{step}", f"/runs/{run}", step)
               for run, step in (("one", 0), ("one", 500), ("one", 1000), ("two", 500))]  # fmt: skip


def plotted(entrants, wins):
    """The table of a round robin in which i beats j in wins[i, j] of 20 games, and its plot as an XML tree."""
    outcomes = itertools.chain(*(beats(i, j, won, losses=20 - won) for (i, j), won in wins.items()))
    table = rating_table(entrants, batches(*outcomes))
    return table, ElementTree.fromstring(rating_plot(table, "a <title> & more"))


def numbers(element):
    return [tuple(map(float, pair.split(","))) for pair in element.get("points").split()]


def test_points_of_a_run_are_in_step_with_training_and_rating_and_all_is_named_within_the_picture():
    wins = {(0, 4): 12, (1, 4): 16, (2, 4): 18, (3, 4): 20, (1, 0): 13, (2, 1): 12, (3, 2): 9}
    table, tree = plotted([*CHECKPOINTS, Entrant("random", "random", "r")], wins)
    one, two = (numbers(line) for line in tree.iter(f"{SVG}polyline"))
    assert (len(one), len(two)) == (3, 1)
    xs = [x for x, _ in one]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert two[0][0] == pytest.approx(xs[1])
    ratings = {row.entrant.name: row.rating for row in table.rows}
    ys = [y for _, y in (*one, *two)]
    known = [ratings[each.name] for each in CHECKPOINTS]
    slope = (ys[2] - ys[0]) / (known[2] - known[0])
    assert slope < 0
    assert ys == pytest.approx([ys[0] + slope * (rating - known[0]) for rating in known], abs=0.3)
    texts = [each for each in tree.iter(f"{SVG}text") if each.get("x")]
    places = [(float(each.get("x")), float(each.get("y"))) for each in texts]
    places += [point for shape in ("polyline", "polygon") for each in tree.iter(SVG + shape) for point in numbers(each)]
    assert len(places) > 15
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    assert any(each.text == "a <title> & more" for each in tree.iter(f"{SVG}text"))  # was escaped
    labels = {each.text: float(each.get("y")) for each in tree.iter(f"{SVG}text") if each.get("style")}
    assert set(labels) == {"one", "two", "random"}
    assert all(after - before >= 15 for before, after in itertools.pairwise(sorted(labels.values())))  # no overlap


def test_plots_are_svg_of_one_checkpoint_or_more_with_few_round_ticks(tmp_path):
    _, tree = plotted([CHECKPOINTS[1], Entrant("random", "random", "r")], {(0, 1): 15})
    assert len(list(tree.iter(f"{SVG}circle"))) == 1
    for path, problem in (
        (Path("ratings.png"), "written as SVG.*ratings.svg"), (Path("ratings"), "written as SVG.*ratings.svg"),
        (tmp_path / "nowhere" / "ratings.svg", "there is no folder"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            check_plot_path(path)
    for low, high in ((0, 1), (950, 2130), (-40, 60), (65_536, 409_600)):
        found = ticks(low, high)
        assert 3 <= len(found) <= 8
        assert all(low <= value <= high for value in found)
        assert f"{found[1] - found[0]:.0e}"[0] in "125", (low, high)
    texts = [short_number(value) for value in (0, 250, 1500, 250_000, 1.5e6, 2e9)]
    assert texts == ["0", "250", "1.5k", "250k", "1.5M", "2B"]
