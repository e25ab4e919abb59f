"""The table of a tournament: the right numbers in the right rows, and what it says of cycles."""

from __future__ import annotations

import json

import pytest

from scramjet.algorithms.ratings import Rankings, rate
from scramjet.arena.tournaments.entrants import Entrant
from scramjet.arena.tournaments.log import BatchResult, Outcome
from scramjet.arena.tournaments.rating_table import games_of, rating_table, scores_of, table_text

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


def test_outcomes_of_pairs_are_summed_up_from_both_seats():
    games = games_of([*beats(0, 1, 5, losses=2, draws=3), *beats(2, 1, 4)], 3)
    assert (games.first.tolist(), games.second.tolist()) == ([0, 1], [1, 2])
    assert (games.wins.tolist(), games.draws.tolist(), games.losses.tolist()) == ([5, 0], [3, 0], [2, 4])


def test_outcomes_of_more_are_rankings():
    games = games_of([Outcome((2, 0, 1), (1, 2, 2), 4)], 3)
    assert isinstance(games, Rankings)
    assert games.players.tolist() == [[2, 0, 1]]
    assert games.counts.tolist() == [4]


def test_scores_count_shared_first_places_as_draws():
    scores = scores_of([Outcome((2, 0, 1), (1, 1, 3), 4), Outcome((0, 1, 2), (1, 2, 2), 3)], 3)
    assert [(score.wins, score.draws, score.losses) for score in scores] == [(3, 4, 0), (0, 0, 7), (0, 4, 3)]


def test_the_best_comes_first_and_random_is_1000():
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


def test_without_random_the_mean_is_1000():
    table = rating_table([PLAYERS[0], PLAYERS[2]], batches(*beats(0, 1, 5, losses=3)))
    assert table.anchor is None
    assert sum(row.rating for row in table.rows) == pytest.approx(2000)
    assert any("their mean is 1000" in line for line in table_text(table))


def test_a_cycle_is_named_with_its_win_rates():
    outcomes = [*beats(0, 1, 80, losses=20), *beats(1, 2, 75, losses=25), *beats(2, 0, 70, losses=30)]
    text = " ".join(table_text(rating_table(PLAYERS, batches(*outcomes))))
    assert "One number per player is not the whole truth" in text
    assert "agent@100 beats random in 80 %, random beats greedy in 75 %, greedy beats agent@100 in 70 %" in text


def test_results_that_ratings_explain_are_said_to_be():
    outcomes = [*beats(0, 1, 80, losses=20), *beats(1, 2, 60, losses=40), *beats(0, 2, 85, losses=15)]
    text = " ".join(table_text(rating_table(PLAYERS, batches(*outcomes))))
    assert "One number per player explains the results (deviance" in text
    assert "cycle" not in text


def test_two_players_cannot_show_a_cycle():
    table = rating_table(PLAYERS[:2], batches(*beats(0, 1, 5)))
    assert any("cannot be told from these pairings" in line for line in table_text(table))
    assert table.as_dict()["cycles"]["is_explained"] is None


def test_games_that_repeat_themselves_were_cut_or_lost_by_illegal_moves_are_told():
    given = batches(*beats(0, 1, 50, losses=50), notes=("player greedy chose", "player greedy chose"), num_distinct=4)
    text = table_text(rating_table(PLAYERS[:2], given))
    assert any(line.startswith("Only 4 of 100 games differ") for line in text)
    assert text.count("player greedy chose") == 1
    cut = table_text(rating_table(PLAYERS[:2], batches(*beats(0, 1, 5, losses=1), num_cut=2)))
    assert any(line.startswith("2 games did not end in time") for line in cut)


def test_players_that_never_met_are_told():
    apart = rating_table(PLAYERS, batches(*beats(0, 1, 5)))
    assert apart.num_groups == 2
    assert any("2 groups that have not met" in line for line in table_text(apart))
    joined = rating_table(PLAYERS, batches(*beats(0, 1, 5), *beats(1, 2, 3)))
    assert joined.num_groups == 1
    assert not any("groups" in line for line in table_text(joined))


def test_the_table_for_json_holds_what_the_text_holds():
    outcomes = [*beats(0, 1, 80, losses=20), *beats(1, 2, 75, losses=25), *beats(2, 0, 70, losses=30)]
    table = json.loads(json.dumps(rating_table(PLAYERS, batches(*outcomes)).as_dict()))
    best = table["players"][0]
    assert best["rank"] == 1
    assert best["interval"][1] - best["rating"] == pytest.approx(1.96 * best["standard_error"], rel=1e-3)
    assert table["cycles"]["is_explained"] is False
    assert table["cycles"]["worst_cycle"]["win_rates"] == [0.8, 0.75, 0.7]
    assert table["games"] == 300


def test_games_of_three_are_rated_by_their_places():
    outcomes = [Outcome((0, 1, 2), (1, 2, 3), 20), Outcome((2, 1, 0), (1, 2, 2), 5)]
    table = rating_table(PLAYERS, batches(*outcomes))
    assert [row.entrant.name for row in table.rows] == ["agent@100", "random", "greedy"]
