"""What perfect play says of one move in Connect Four, in numbers and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scramjet.arena.solver.position import Position, plies_left
from scramjet.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a move compares with the best ones; columns are counted from 0, scores are those of `Solver`."""

    column: int
    score: int
    """The score of the move, for the side that makes it."""
    best_score: int
    best_columns: tuple[int, ...]
    text: str
    """In words, such as "a draw; better in column 4: a win in 13 plies"; columns are counted from 1 there."""

    @property
    def keeps_value(self) -> bool:
        """Whether a won position stays won, and a drawn one is not lost."""
        return _sign(self.score) == _sign(self.best_score)

    @property
    def is_optimal(self) -> bool:
        """Whether no move wins sooner, or loses later."""
        return self.score == self.best_score


def verdict(position: Position, column: int, scores: Sequence[int | None]) -> Verdict:
    """The verdict on a move, from the scores of all moves as `Solver.scores_of_moves` gives them."""
    score = scores[column] if 0 <= column < len(scores) else None
    if score is None:
        raise ConfigError(f"column {column} has no room or is not on the board; choose one of {position.legal}")
    best_score = max(each for each in scores if each is not None)
    best = tuple(place for place, each in enumerate(scores) if each == best_score)
    text = in_words(score, position)
    if score != best_score:
        named = f"column {best[0] + 1}" if len(best) == 1 else f"columns {', '.join(str(1 + place) for place in best)}"
        text = f"{text}; better in {named}: {in_words(best_score, position)}"
    return Verdict(column, score, best_score, best, text)


def in_words(score: int, position: Position) -> str:
    """A score for the side to move as words: "a win in 13 plies", "a draw", "a loss in 8 plies"."""
    if score == 0:
        return "a draw"
    left = plies_left(score, position.plies, position.cells)
    return f"a {'win' if score > 0 else 'loss'} in {left} {'ply' if left == 1 else 'plies'}"


def _sign(score: int) -> int:
    return (score > 0) - (score < 0)
