"""The positions by which players of Connect Four on 6 x 7 are graded: six classes, every move with its exact score.

They come with the package, a file a class, a line a position: the columns played, counted from 1, and the score of a
move in each column, `.` where it is full. `benchmarks/connect_four_positions.py` made them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from scramjet.arena.solver.position import Position, pieces_of_words, plies_left
from scramjet.arena.solver.search import NO_MOVE

ROWS, COLS = 6, 7
CELLS = ROWS * COLS
FOLDER = Path(__file__).parent / "positions"


@dataclass(frozen=True)
class PositionClass:
    """Positions alike in how many plies were played, and how many are left to the end under best play."""

    name: str
    plies: range
    left: range

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name.lower().replace('-', '_')}.txt"


END, MIDDLE, BEGIN = range(29, CELLS), range(15, 29), range(15)
EASY, MEDIUM, HARD = range(1, 14), range(14, 29), range(29, CELLS + 1)

CLASSES = (
    PositionClass("End-Easy", END, EASY),
    PositionClass("Middle-Easy", MIDDLE, EASY),
    PositionClass("Middle-Medium", MIDDLE, MEDIUM),
    PositionClass("Begin-Easy", BEGIN, EASY),
    PositionClass("Begin-Medium", BEGIN, MEDIUM),
    PositionClass("Begin-Hard", BEGIN, HARD),
)


def class_of(score: int, plies: int) -> PositionClass:
    """The class of a position with a score for the side to move."""
    left = plies_left(score, plies, CELLS)
    return next(each for each in CLASSES if plies in each.plies and left in each.left)


@dataclass(frozen=True)
class GradedPositions:
    """Positions with the score of every move."""

    moves: tuple[str, ...]
    """The columns played, counted from 1; N games."""
    own: np.ndarray  # uint64 [N], see Position
    taken: np.ndarray  # uint64 [N]
    scores: np.ndarray  # int8 [N, cols], NO_MOVE where a column is full
    class_index: np.ndarray  # int64 [N], into CLASSES

    @cached_property
    def obs(self) -> np.ndarray:
        """What connect_four shows the side to move, int8 [N, 2, rows, cols]."""
        return pieces_of_words(self.own, self.taken, ROWS, COLS)

    @cached_property
    def mask(self) -> np.ndarray:
        """Which columns have room, bool [N, cols]."""
        return self.scores != NO_MOVE


@cache
def graded_positions() -> GradedPositions:
    """All positions that come with the package."""
    lines = [(index, line.split()) for index, each in enumerate(CLASSES) for line in each.path.read_text().splitlines()]
    positions = [Position.from_moves(moves) for _, (moves, *_) in lines]
    return GradedPositions(
        moves=tuple(moves for _, (moves, *_) in lines),
        own=np.array([position.own for position in positions], np.uint64),
        taken=np.array([position.taken for position in positions], np.uint64),
        scores=np.array([[NO_MOVE if x == "." else int(x) for x in scores] for _, (_, *scores) in lines], np.int8),
        class_index=np.array([index for index, _ in lines]),
    )
