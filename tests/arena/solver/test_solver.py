"""The solver gives what brute force gives on small boards, whatever its table has forgotten."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from scramjet.arena.solver.position import Position
from scramjet.arena.solver.search import NO_MOVE
from scramjet.arena.solver.solver import Solver
from scramjet.errors import ConfigError
from tests.helpers.brute_force import BruteForce


@cache
def small_games() -> tuple[BruteForce, list[tuple[int, ...]]]:
    """Every position of 4 x 4 in which the game goes on, as moves that lead to it."""
    brute, found = BruteForce(4, 4), []
    brute.every_position(found.append)
    return brute, found


def position_after(moves: tuple[int, ...], rows: int, cols: int) -> Position:
    position = Position(rows=rows, cols=cols)
    for column in moves:
        position = position.after(column)
    return position


def words(positions: list[Position]) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.array([getattr(each, name) for each in positions], np.uint64) for name in ("own", "taken"))


def random_positions(count: int, plies: int, seed: int, rows: int = 6, cols: int = 7) -> list[Position]:
    """Positions of random games that go on after so many plies."""
    generator, found = np.random.default_rng(seed), []
    while len(found) < count:
        position = Position(rows=rows, cols=cols)
        while position.plies < plies and not position.is_over:
            position = position.after(int(generator.choice(position.legal)))
        if not position.is_over:
            found.append(position)
    return found


def test_positions_of_4_x_4_have_the_scores_of_brute_force_with_a_table_that_forgets_most() -> None:
    brute, games = small_games()
    assert len(games) == 134_289
    games = games[::10]  # the start is among them
    expected = np.array([brute.score(moves) for moves in games])
    own, taken = words([position_after(moves, 4, 4) for moves in games])
    solver = Solver(4, 4, table_bits=8)
    assert np.array_equal(solver.score_batch(own, taken), expected)
    assert np.array_equal(solver.score_batch(own, taken, weak=True), np.sign(expected))


@pytest.mark.rest
def test_positions_of_5_columns_by_4_rows_have_the_scores_of_brute_force() -> None:
    brute, solver = BruteForce(4, 5), Solver(4, 5)
    generator = np.random.default_rng(1)
    compared = 0
    for _ in range(300):
        moves: tuple[int, ...] = ()
        while len(moves) < 10 and not (moves and brute.is_over(moves)):
            position = position_after(moves, 4, 5)
            moves = (*moves, int(generator.choice(position.legal)))
        if not brute.is_over(moves):
            assert solver.score(position_after(moves, 4, 5)) == brute.score(moves)
            compared += 1
    assert compared > 100
    # a draw from the start, by brute force over 2.8 million positions: benchmarks/connect_four_solver.py --brute-force
    assert solver.score(Position(rows=4, cols=5)) == 0


def test_moves_have_the_scores_of_the_positions_after_them_and_the_best_ones_that_of_the_position() -> None:
    solver = Solver()
    for position in random_positions(60, 17, seed=2):
        scores = solver.scores_of_moves(position)
        for column, score in enumerate(scores):
            if score is None:
                assert not position.is_legal(column)
            elif position.after(column).is_lost:
                assert score == (position.cells + 1 - position.plies) // 2
            else:
                assert score == -solver.score(position.after(column))
        best = max(score for score in scores if score is not None)
        assert solver.score(position) == best
        assert solver.best_moves(position) == [column for column, score in enumerate(scores) if score == best]


def test_mirrored_positions_have_equal_scores_from_solvers_that_know_nothing_of_each_other() -> None:
    positions = random_positions(40, 16, seed=3)
    left = Solver().scores_of_moves_batch(*words(positions))
    right = Solver().scores_of_moves_batch(*words([position.mirrored() for position in positions]))
    assert np.array_equal(left, right[:, ::-1])
    assert (left != NO_MOVE).any()


def test_a_table_of_256_entries_shared_by_two_threads_gives_the_scores_of_a_large_one() -> None:
    own, taken = words(random_positions(400, 20, seed=4))
    expected = Solver(table_bits=22).score_batch(own, taken)
    assert np.array_equal(Solver(table_bits=8, num_threads=2).score_batch(own, taken), expected)
    assert len(set(expected.tolist())) > 10


def test_a_solver_that_has_solved_other_positions_gives_the_same_scores_as_one_that_has_not() -> None:
    positions = random_positions(100, 18, seed=5)
    used = Solver(table_bits=16)
    used.score_batch(*words(random_positions(300, 17, seed=6)))
    assert [used.score(each) for each in positions] == [Solver(table_bits=16).score(each) for each in positions]


def test_boards_that_are_too_large_games_that_are_won_and_positions_of_another_board_are_refused() -> None:
    for rows, cols in ((6, 8), (7, 7), (20, 20)):
        with pytest.raises(ConfigError, match=r"--env\.rows 6 --env\.cols 7"):
            Solver(rows, cols)
    with pytest.raises(ConfigError, match="the game is over"):
        Solver().score(Position.from_moves("1213141"))
    with pytest.raises(ConfigError, match=r"Solver\(4, 5\)"):
        Solver().score(Position(rows=4, cols=5))


def test_a_full_board_is_a_draw() -> None:
    brute, games = small_games()
    moves = next(each for each in reversed(games) if len(each) == 15 and brute.score(each) == 0)
    last = position_after(moves, 4, 4)
    full = last.after(last.legal[0])
    assert full.is_over
    assert Solver(4, 4).score(full) == 0
