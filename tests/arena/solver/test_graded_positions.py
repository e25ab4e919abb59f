"""The positions that come with the package are what they are said to be; the perfect player finds their best moves."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.arena.solver.graded_positions import CELLS, CLASSES, class_of, graded_positions
from scramjet.arena.solver.opening_book import add, best_moves_in, canonical
from scramjet.arena.solver.player import PerfectPlayer
from scramjet.arena.solver.position import Position, plies_left
from scramjet.arena.solver.search import NO_MOVE
from scramjet.arena.solver.solver import Solver
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError


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
