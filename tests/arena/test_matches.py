"""Games between players on a pool: seats, order, forfeits, long games, agents and other libraries' games."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scramjet
from scramjet.arena.matches import play_games, wilson_interval
from scramjet.engine import FrameStackPool, Pool, Transition
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError, PlayerError
from scramjet.players.player import Player, UserPlayer
from scramjet.players.scripted import GreedyPlayer, MinimaxPlayer, RandomPlayer
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Trio
from tests.helpers.small_games import four, in_turn, taking


def test_random_players_win_as_often_as_known_by_seat_and_who_looks_further_wins_more() -> None:
    pool = four(256)
    results = play_games(pool, [RandomPlayer(), RandomPlayer()], in_turn(4000), seed=5)
    for first, second, known in ((0, 1, 0.556), (1, 0, 0.442)):  # shares of 10 million random games
        wins = (results.places[:, first] == 1) & (results.places[:, second] == 2)
        low, high = wilson_interval(int(wins.sum()), 4000, deviations=3)
        assert low < known < high
    assert results.num_distinct > 3900
    assert play_games(pool, [GreedyPlayer(), RandomPlayer()], in_turn(200), seed=1).score(0).points > 0.65
    assert play_games(pool, [MinimaxPlayer(2), GreedyPlayer()], in_turn(200), seed=1).score(0).points > 0.75
    other, first, again = (
        play_games(pool, [RandomPlayer(), GreedyPlayer()], in_turn(40), seed=seed).sequences.tolist()
        for seed in (2, 1, 1)
    )
    assert first == again != other


def test_each_game_of_the_list_is_played_by_those_who_sit_in_it() -> None:
    players = [taking("leftmost"), taking("rightmost"), taking("middle")]
    pairs = [(i, j) for i in range(3) for j in range(3)]
    alone = {pair: play_games(four(1), players, np.array([pair]), seed=0) for pair in pairs}
    assert alone[0, 1].lengths.tolist() == [7]  # four in a column, the first of them after seven moves
    assert alone[0, 1].places.tolist() == [[1, 2]]
    seating = np.random.default_rng(0).integers(3, size=(60, 2))
    for num_envs in (1, 5, 64):
        reports: list[tuple[int, int]] = []
        report = lambda *each: reports.append(each)  # noqa: E731, B023
        results = play_games(four(num_envs), players, seating, seed=9, report=report)
        for game, pair in enumerate(map(tuple, seating.tolist())):
            assert results.lengths[game] == alone[pair].lengths[0], num_envs
            assert np.array_equal(results.returns[game], alone[pair].returns[0])
            assert results.sequences[game] == alone[pair].sequences[0]
        assert results.num_distinct == len({int(each.sequences[0]) for each in alone.values()})
        assert reports[-1] == (60, 60)  # progress ends with all games
    assert len({int(each.lengths[0]) for each in alone.values()}) > 1


class Watched(Player):
    """Takes the first legal action, and records whose turn it was in the rows it was asked for."""

    name = "watched"

    def __init__(self) -> None:
        self.asked: list[np.ndarray] = []

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        self.asked.append(seen.turn[rows].copy())
        return seen.mask[rows].argmax(1)


def test_returns_and_lengths_are_those_that_the_pool_itself_logs() -> None:
    pool = pool_of(Trio(), 7, backend="interpreted")
    results = play_games(pool, [RandomPlayer(), RandomPlayer()], np.tile([0, 1, 0], (7, 1)), seed=1)
    ended = pool.episodes()
    first = [np.flatnonzero(ended.env_ids == env)[:3] for env in range(7)]  # three seats of the first game
    assert np.allclose(results.returns, [ended.returns[each] for each in first])
    assert results.lengths.tolist() == [ended.lengths[each[0]] for each in first]


def test_players_are_asked_for_living_agents_alone_and_dead_ones_earn_nothing() -> None:
    pool, player = pool_of(Mortals(), 5, backend="interpreted"), Watched()
    results = play_games(pool, [player], np.zeros((5, 3), np.int64), seed=1)
    assert all(turn.all() for turn in player.asked)
    assert [len(turn) for turn in player.asked] == [15, 12, 9, 6]  # as their lives tell
    ended = pool.episodes()
    for env in range(5):
        mine = np.flatnonzero(ended.env_ids == env)
        by_agent = {int(ended.players[i]): float(ended.returns[i]) for i in mine[::-1]}  # of the first game
        assert np.allclose(results.returns[env], [by_agent[agent] for agent in range(3)])


def test_an_illegal_move_loses_the_game_is_told_once_and_the_last_one_standing_wins() -> None:
    for illegal in (99, -1, 2**70):
        cheat = UserPlayer(lambda view, action=illegal: action if len(view.legal) < 7 else 0, "cheat")
        results = play_games(four(8), [cheat, taking("leftmost")], in_turn(40), seed=1)  # once a column is full
        assert results.forfeits[results.seating == 0].any(), illegal
        assert not results.forfeits[results.seating == 1].any()
        assert (results.places[results.forfeits] == 2).all()
        (note,) = results.notes
        assert "player cheat chose the illegal action" in note
    masked = UserPlayer(lambda view: next(a for a in range(6) if a not in view.legal), "cheat")
    pool = pool_of(Duel(), 5, backend="interpreted")  # pays for masked actions as for others
    results = play_games(pool, [masked, taking("leftmost")], in_turn(20), seed=1)
    assert (results.places[results.seating == 0] == 2).all()
    cheat, pool = UserPlayer(lambda view: [9, 9], "cheat"), pool_of(Trio(shortest=5), 4, backend="interpreted")
    results = play_games(pool, [cheat], np.zeros((12, 3), np.int64), seed=1)
    assert (results.forfeits.sum(1) <= 2).all()
    assert (results.forfeits.sum(1) == 2).any()
    assert (results.places[~results.forfeits] == 1).all()


def test_games_that_are_too_long_are_cut_and_count_with_their_returns_so_far() -> None:
    pool = pool_of(Duel(), 4, backend="interpreted")
    cautious = UserPlayer(lambda view: view.legal[0], "cautious")  # never wins: the clock stops it after 7
    for num_games in (3, 25):
        seating = np.zeros((num_games, 2), np.int64)
        results = play_games(pool, [cautious], seating, seed=1, max_steps=3)
        assert results.is_cut.all()
        assert (results.lengths == 3).all(), num_games
        whole = play_games(pool, [cautious], seating, seed=1)
        assert not whole.is_cut.any()
        assert (whole.lengths == 7).all(), num_games


def test_snakes_compete() -> None:
    straight = UserPlayer(lambda view: 0, "straight")
    for snakes, frame_stack in ((2, 2), (4, 1)):
        pool: Pool = pool_of(Snake(snakes=snakes, size=10), 8, backend="interpreted")
        pool = pool if frame_stack == 1 else FrameStackPool(pool, frame_stack)
        seating = np.ones((24, snakes), np.int64)
        seating[np.arange(24), np.arange(24) % snakes] = 0
        results = play_games(pool, [straight, RandomPlayer()], seating, seed=1)
        assert results.score(0).games == 24
        assert (results.places.min(1) == 1).all()
        assert (results.lengths > 0).all()


@pytest.mark.rest
def test_tic_tac_toe_of_pettingzoo_is_played() -> None:
    pytest.importorskip("pettingzoo.classic", reason="PettingZoo is an extra")
    pool = scramjet.make("pettingzoo:tictactoe_v3", 4)
    results = play_games(pool, [taking("leftmost"), RandomPlayer()], in_turn(20), seed=1)
    assert results.score(0).games == 20
    assert ((results.lengths >= 5) & (results.lengths <= 9)).all()
    same = play_games(pool, [taking("leftmost"), taking("rightmost")], np.tile([0, 1], (6, 1)), seed=1)
    assert same.num_distinct == 1
    with pytest.raises(ConfigError, match=r"minimax:2 looks ahead, and .*tictactoe.* cannot be simulated"):
        play_games(pool, [MinimaxPlayer(2), RandomPlayer()], in_turn(2), seed=1)
    pool.close()


@pytest.mark.rest
def test_agents_of_pettingzoo_that_act_at_once_are_played() -> None:
    pytest.importorskip("pettingzoo.classic", reason="PettingZoo is an extra")
    pool = scramjet.make("pettingzoo:rps_v2", 2)  # rock, paper, scissors, 15 times
    rock, paper = (UserPlayer(lambda view, action=action: action, "always the same") for action in (0, 1))
    results = play_games(pool, [rock, paper], in_turn(7), seed=1)
    assert (results.returns[results.seating == 1] == 15).all()
    assert results.score(1).wins == 7
    pool.close()


class Broken(Player):
    """A player of many games at once that makes a mistake."""

    name = "broken"

    def __init__(self, mistake: Any) -> None:
        self.mistake = mistake

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return self.mistake(rows)


def test_seatings_worlds_and_mistakes_of_players_that_do_not_fit_are_told() -> None:
    for seating, problem in (
        ([[0, 1, 0]], r"needs \[games, 2\]"), ([], r"needs \[games, 2\]"), ([[0, 2]], "from 0 to 1"),
        ([[0.0, 1.0]], "numbers"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            play_games(four(1), [RandomPlayer(), RandomPlayer()], np.array(seating), seed=1)
    with pytest.raises(ConfigError, match="Snake is played by one"):
        play_games(pool_of(Snake(snakes=1), 1, "interpreted"), [RandomPlayer()], np.zeros((1, 1), int), seed=1)
    for mistake, problem in (
        (lambda rows: rows[:, None], r"chose int64 \[4, 1\] for 4 games"),
        (lambda rows: rows * 0.5, "chose float64"),
        (lambda rows: rows.nothing, "player broken failed in test_matches.py line .*AttributeError"),
    ):
        with pytest.raises(PlayerError, match=problem):
            play_games(four(4), [Broken(mistake)], np.zeros((4, 2), int), seed=1)
