"""Connect Four solved: positions, scores as brute force gives them, and the positions and books that come with it."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.arena.grading import CELLS, CLASSES, class_of, graded_positions
from scramjet.arena.solver.perfect_player import PerfectPlayer, add, best_moves_in, canonical
from scramjet.arena.solver.search import NO_MOVE
from scramjet.arena.solver.solver import Position, Solver, pieces_of_words, plies_left, words_of_pieces
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError
from tests.helpers.brute_force import BruteForce


def test_games_of_the_world_end_where_positions_say_so() -> None:
    generator, pool = np.random.default_rng(0), NativePool(ConnectFour(), 50)
    out, positions, ends = pool.reset(0), [Position()] * 50, 0
    for _ in range(84):
        actions = np.array([generator.choice(position.legal) for position in positions])
        out = pool.step(actions)
        positions = [position.after(int(column)) for position, column in zip(positions, actions, strict=True)]
        assert [position.is_over for position in positions] == out.terminated.tolist()
        assert [position.is_lost for position in positions] == (np.abs(out.reward).max(1) > 0).tolist()
        positions = [Position() if position.is_over else position for position in positions]
        ends += int(out.terminated.sum())
    assert ends > 100


def test_moves_lead_to_the_pieces_that_the_world_shows_and_a_mirrored_position_to_mirrored_moves() -> None:
    positions = [Position.from_moves(moves) for moves in ("", "4453", "121212")]
    pieces = np.stack([position.pieces() for position in positions])
    own, taken = words_of_pieces(pieces)
    assert [(int(a), int(b)) for a, b in zip(own, taken, strict=True)] == [(each.own, each.taken) for each in positions]
    assert np.array_equal(pieces_of_words(own, taken, 6, 7), pieces)
    assert Position.from_moves("1123576").mirrored() == Position.from_moves("7765312")
    pool = NativePool(ConnectFour(), 1)
    for moves in ("", "4", "4453", "112233", "777777"):
        out = pool.reset(0)
        for column in moves:
            out = pool.step(np.array([int(column) - 1]))
        position = Position.from_moves(moves)
        assert np.array_equal(position.pieces(), out.obs[0]), moves
        assert Position.from_pieces(out.obs[0]) == position
        assert position.legal == np.flatnonzero(out.mask[0]).tolist()
        record = pool.record(0)
        assert Position.from_pieces(record.pieces[:: 1 if record.turn == 0 else -1]) == position


def test_moves_that_no_game_has_and_pieces_that_float_or_overlap_are_refused() -> None:
    for moves, message in (
        ("48", "move 2 .* columns are 1 to 7"), ("4x", "columns are 1 to 7"), ("1111111", "column 1 is full"),
        ("12121212", "move 7 .* wins the game"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            Position.from_moves(moves)
    floating, overlapping = np.zeros((2, 2, 6, 7), np.int8)
    floating[0, 4, 3] = 1
    overlapping[:, 5, 3] = 1
    for pieces, message in ((floating, "float"), (overlapping, "float"), (np.zeros((6, 7)), "expected")):
        with pytest.raises(ConfigError, match=message):
            Position.from_pieces(pieces)


def test_a_score_says_when_the_winner_makes_the_last_move() -> None:
    for cells, plies in ((size, plies) for size in (16, 25, 42) for plies in range(size)):
        assert plies_left(0, plies, cells) == cells - plies
        for last in range(plies + 1, cells + 1):  # the piece that wins
            pieces_of_winner = (last + 1) // 2 if last % 2 else last // 2
            half = (cells + 1) // 2 if last % 2 else cells // 2
            score = half - pieces_of_winner + 1
            is_own = (last - plies) % 2 == 1
            assert plies_left(score if is_own else -score, plies, cells) == last - plies


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
    brute, found = BruteForce(4, 4), list[tuple[int, ...]]()
    brute.every_position(found.append)
    assert len(found) == 134_289
    games = found[::10]  # the start is among them
    expected = np.array([brute.score(moves) for moves in games])
    own, taken = words([position_after(moves, 4, 4) for moves in games])
    solver = Solver(4, 4, table_bits=8)
    assert np.array_equal(solver.score_batch(own, taken), expected)
    assert np.array_equal(solver.score_batch(own, taken, weak=True), np.sign(expected))
    moves = next(each for each in reversed(found) if len(each) == 15 and brute.score(each) == 0)
    last = position_after(moves, 4, 4)
    full = last.after(last.legal[0])
    assert full.is_over
    assert solver.score(full) == 0  # a draw


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


def test_scores_do_not_depend_on_mirrors_tables_threads_or_what_was_solved_before() -> None:
    mirrored = random_positions(40, 16, seed=3)
    left = Solver().scores_of_moves_batch(*words(mirrored))
    right = Solver().scores_of_moves_batch(*words([position.mirrored() for position in mirrored]))
    assert np.array_equal(left, right[:, ::-1])
    assert (left != NO_MOVE).any()
    positions = random_positions(400, 20, seed=4)
    expected = Solver(table_bits=22).score_batch(*words(positions))
    assert len(set(expected.tolist())) > 10
    forgetful = Solver(table_bits=8, num_threads=2)  # 256 entries that two threads share
    assert np.array_equal(forgetful.score_batch(*words(positions)), expected)
    used = Solver(table_bits=16)
    used.score_batch(*words(random_positions(300, 17, seed=6)))
    assert [used.score(each) for each in positions] == expected.tolist()


def test_boards_that_are_too_large_games_that_are_won_and_positions_of_another_board_are_refused() -> None:
    for rows, cols in ((6, 8), (7, 7), (20, 20)):
        with pytest.raises(ConfigError, match=r"--env\.rows 6 --env\.cols 7"):
            Solver(rows, cols)
    with pytest.raises(ConfigError, match="the game is over"):
        Solver().score(Position.from_moves("1213141"))
    with pytest.raises(ConfigError, match=r"Solver\(4, 5\)"):
        Solver().score(Position(rows=4, cols=5))


def test_a_class_has_1000_positions_with_its_number_of_plies_and_plies_left() -> None:
    positions = graded_positions()
    for index, each in enumerate(CLASSES):
        rows = np.flatnonzero(positions.class_index == index)
        assert len(rows) == 1000, each.name
        for row in rows:
            plies, best = len(positions.moves[row]), int(positions.scores[row].max())
            assert plies in each.plies
            assert plies_left(best, plies, CELLS) in each.left
            assert class_of(best, plies) is each


def test_no_position_comes_twice_mirrored_or_not_is_over_or_leaves_no_choice() -> None:
    positions = graded_positions()
    keys = {canonical(Position.from_moves(moves))[0] for moves in positions.moves}
    assert len(keys) == len(positions.moves) == 6000
    assert positions.mask.sum(1).min() >= 2
    for moves, scores in zip(positions.moves[::10], positions.scores[::10], strict=True):
        position = Position.from_moves(moves)
        assert not position.is_over
        assert [column for column in range(7) if scores[column] != NO_MOVE] == position.legal  # none for a full one


def test_labels_are_the_scores_of_the_positions_after_each_move() -> None:
    positions, solver, names = graded_positions(), Solver(), [each.name for each in CLASSES]
    for name, step in (("End-Easy", 2), ("Middle-Easy", 4), ("Middle-Medium", 40), ("Begin-Easy", 250)):
        for row in np.flatnonzero(positions.class_index == names.index(name))[::step]:
            position = Position.from_moves(positions.moves[row])
            for column in position.legal:
                after = position.after(column)
                expected = (CELLS + 1 - position.plies) // 2 if after.is_lost else -solver.score(after)
                assert positions.scores[row, column] == expected, name


def test_the_perfect_players_moves_are_those_with_the_highest_score_mirrored_or_not() -> None:
    positions = graded_positions()
    rows = np.arange(0, 2000, 10)  # End-Easy and Middle-Easy
    expected = positions.mask[rows] & (positions.scores[rows] == positions.scores[rows].max(1, keepdims=True))
    player = PerfectPlayer()
    assert np.array_equal(player.best_moves(positions.obs[rows]), expected)
    assert np.array_equal(player.best_moves(positions.obs[rows][..., ::-1]), expected[:, ::-1])
    with pytest.raises(ConfigError, match="minimax:3"):
        PerfectPlayer().begin(NativePool(ConnectFour(connect=3), 1))


def test_among_equal_moves_it_draws_each() -> None:
    positions = graded_positions()
    is_best = positions.mask & (positions.scores == positions.scores.max(1, keepdims=True))
    row = int(np.flatnonzero(is_best.sum(1) == 3)[0])

    class Seen:
        obs = np.repeat(positions.obs[row][None], 300, 0)

    chosen = PerfectPlayer().choose(Seen(), np.arange(300), np.random.default_rng(0))  # type: ignore[arg-type]
    counts = np.bincount(chosen, minlength=7)
    assert np.array_equal(counts > 0, is_best[row])
    assert counts[is_best[row]].min() > 60


def test_a_book_gives_a_positions_moves_to_its_mirror_image_too() -> None:
    position, book = Position.from_moves("1123"), {}
    add(book, position, [0, 4])
    assert best_moves_in(book, position) == [0, 4]
    assert best_moves_in(book, position.mirrored()) == [2, 6]
    assert best_moves_in(book, Position.from_moves("4")) is None
    assert canonical(position)[0] == canonical(position.mirrored())[0]
