"""The positions that come with the package are what they are said to be, and their labels are right."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.arena.solver.graded_positions import CELLS, CLASSES, PositionClass, class_of, graded_positions
from scramjet.arena.solver.opening_book import canonical
from scramjet.arena.solver.position import Position, plies_left
from scramjet.arena.solver.search import NO_MOVE
from scramjet.arena.solver.solver import Solver


def rows_of(each: PositionClass) -> np.ndarray:
    return np.flatnonzero(graded_positions().class_index == CLASSES.index(each))


@pytest.mark.parametrize("each", CLASSES, ids=lambda each: each.name)
def test_a_class_has_1000_positions_with_its_number_of_plies_and_plies_left(each: PositionClass) -> None:
    positions, rows = graded_positions(), rows_of(each)
    assert len(rows) == 1000
    for row in rows:
        plies, best = len(positions.moves[row]), int(positions.scores[row].max())
        assert plies in each.plies
        assert plies_left(best, plies, CELLS) in each.left
        assert class_of(best, plies) is each


def test_no_position_comes_twice_mirrored_or_not_and_all_leave_a_choice() -> None:
    positions = graded_positions()
    keys = {canonical(Position.from_moves(moves))[0] for moves in positions.moves}
    assert len(keys) == len(positions.moves) == 6000
    assert positions.mask.sum(1).min() >= 2


def test_no_game_is_over_and_full_columns_have_no_score() -> None:
    positions = graded_positions()
    for moves, scores in zip(positions.moves[::10], positions.scores[::10], strict=True):
        position = Position.from_moves(moves)
        assert not position.is_over
        assert [column for column in range(7) if scores[column] != NO_MOVE] == position.legal


@pytest.mark.parametrize(
    ("name", "step"), [("End-Easy", 2), ("Middle-Easy", 4), ("Middle-Medium", 40), ("Begin-Easy", 250)]
)
def test_labels_are_the_scores_of_the_positions_after_each_move(name: str, step: int) -> None:
    positions, solver = graded_positions(), Solver()
    for row in rows_of(next(each for each in CLASSES if each.name == name))[::step]:
        position = Position.from_moves(positions.moves[row])
        for column in position.legal:
            after = position.after(column)
            expected = (CELLS + 1 - position.plies) // 2 if after.is_lost else -solver.score(after)
            assert positions.scores[row, column] == expected
