"""Grades players of Connect Four by perfect play: how often a move keeps the value of a position, how often it is best.

A move keeps the value if a won position stays won and a drawn one is not lost; it is optimal if it also wins as soon
as can be, or loses as late. Both are counted over positions of Connect Four on 6 x 7 in six classes, every move with
its exact score. They come with the package, a file for each class and a line for each position: the columns played,
counted from 1, and the score of a move in each column, `.` where it is full. `benchmarks/connect_four_positions.py`
made them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scramjet.algorithms.intervals import wilson_interval
from scramjet.arena.solver.search import NO_MOVE
from scramjet.arena.solver.solver import COLS, ROWS, Position, is_usual_board, pieces_of_words, plies_left
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.policies.policy import Policy

# --- the positions

CELLS = ROWS * COLS
FOLDER = Path(__file__).parent / "solver" / "positions"


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


# --- the grades

ALL = "All"


@dataclass(frozen=True, slots=True)
class Grade:
    """A player's moves in some positions, beside what random legal moves would reach."""

    name: str
    positions: int
    value_kept: int
    """Moves that keep the value."""
    optimal: int
    """Moves that are best by distance, too."""
    random_value_kept: float
    random_optimal: float
    """The expected shares of random legal moves."""

    def as_dict(self) -> dict[str, Any]:
        """Shares from 0 to 1, with their 95 % intervals as [low, high]."""
        shares: dict[str, Any] = {"positions": self.positions}
        for name, count in (("value_kept", self.value_kept), ("optimal", self.optimal)):
            shares[name] = count / self.positions
            shares[f"{name}_interval"] = list(wilson_interval(count, self.positions))
            shares[f"random_{name}"] = getattr(self, f"random_{name}")
        return shares


@dataclass(frozen=True, slots=True)
class Grades:
    """A player's grades by class of positions, and over all of them."""

    by_class: tuple[Grade, ...]
    total: Grade

    def as_dict(self) -> dict[str, Any]:
        """Each class's shares by its name, those over all positions under "All"."""
        return {grade.name: grade.as_dict() for grade in (*self.by_class, self.total)}

    def markdown(self) -> str:
        """A table with a line for each class, padded so that it reads as well in a terminal."""
        head = ("class", "positions", "keeps the value", "95 %", "random", "optimal", "95 %", "random")
        lines = [head, *(_cells(grade) for grade in (*self.by_class, self.total))]
        widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
        ruler = [f"{'-' * (widths[0] + 2)}", *(f"{'-' * (width + 1)}:" for width in widths[1:])]
        rows = [f"| {' | '.join(_padded(line, widths))} |" for line in lines]
        return "\n".join([rows[0], f"|{'|'.join(ruler)}|", *rows[1:]])


def _cells(grade: Grade) -> tuple[str, ...]:
    """The line of a grade in the table."""
    cells = [grade.name, f"{grade.positions:,}"]
    numbers = grade.as_dict()
    for name in ("value_kept", "optimal"):
        low, high = numbers[f"{name}_interval"]
        cells += [f"{numbers[name]:.1%}", f"{100 * low:.1f} to {100 * high:.1f}", f"{numbers[f'random_{name}']:.1%}"]
    return tuple(cell.replace("%", " %") for cell in cells)


def _padded(line: tuple[str, ...], widths: list[int]) -> list[str]:
    """The first cell to the left, numbers to the right."""
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def grade_moves(moves: np.ndarray, positions: GradedPositions | None = None) -> Grades:
    """Grade one move, a column counted from 0, in each position; illegal moves neither keep a value nor are optimal."""
    positions = positions or graded_positions()
    scores, legal = positions.scores.astype(np.int64), positions.mask
    best = scores.max(1, keepdims=True)
    keeps_value = legal & (np.sign(scores) == np.sign(best))  # [N, cols]
    is_optimal = legal & (scores == best)
    rows = np.arange(len(moves))

    def grade(name: str, counted: np.ndarray) -> Grade:
        chances = [float((good.sum(1) / legal.sum(1))[counted].mean()) for good in (keeps_value, is_optimal)]
        kept, optimal = (int(good[rows, moves][counted].sum()) for good in (keeps_value, is_optimal))
        return Grade(name, int(counted.sum()), kept, optimal, *chances)

    classes = [(each.name, positions.class_index == index) for index, each in enumerate(CLASSES)]
    return Grades(
        tuple(grade(name, counted) for name, counted in classes if counted.any()),
        grade(ALL, np.ones(len(moves), np.bool_)),
    )


def grade_choices(choose: Callable[[np.ndarray, np.ndarray], Any]) -> Grades:
    """Grade a function from observations int8 [N, 2, 6, 7] and masks bool [N, 7] to columns [N], counted from 0."""
    positions = graded_positions()
    moves = np.asarray(choose(positions.obs, positions.mask))
    if moves.shape != (len(positions.own),) or moves.dtype.kind not in "iu" or not _are_columns(moves):
        raise ConfigError(
            f"the choices are {moves.dtype} {list(moves.shape)}; expected {len(positions.own)} columns, 0 to {COLS - 1}"
        )
    return grade_moves(moves)


def _are_columns(moves: np.ndarray) -> bool:
    return bool(((moves >= 0) & (moves < COLS)).all())


def grade_policy(policy: Policy) -> Grades:
    """Grade the most likely moves of a policy, all positions in one batch on its device.

    A policy with memory sees each position as the first of a game.
    """
    shape, num_actions = policy.env_spaces.seen.shape, getattr(policy.env_spaces.chosen, "n", 0)
    if shape != (2, ROWS, COLS) or num_actions != COLS or policy.env_spaces.num_frames != 1:
        raise ConfigError(
            f"the policy sees {shape} and {policy.env_spaces.num_frames} frames; grades are for connect_four with "
            f"--env.rows {ROWS} --env.cols {COLS} and without --frame-stack"
        )
    state = policy.initial_state(len(graded_positions().own)) if policy.state_size else None
    return grade_choices(lambda obs, mask: policy.act(obs, state, mask=mask).cpu().numpy())


def grade_player(player: Player, seed: int = 0) -> Grades:
    """Grade any player: the games that lead to all positions are played on one pool, and it is asked at their ends."""
    positions = graded_positions()
    lengths = np.array([len(moves) for moves in positions.moves])
    pool, generator = NativePool(ConnectFour(), len(lengths)), np.random.default_rng(seed)
    out = pool.reset(seed)
    player.begin(pool)
    chosen = np.zeros(len(lengths), np.int64)
    for ply in range(lengths.max() + 1):
        rows = np.flatnonzero(lengths == ply)
        if len(rows):
            chosen[rows] = player.choose(out, rows, generator)
        actions = out.mask.argmax(1)  # any legal move where the position has been reached
        for row in np.flatnonzero(lengths > ply):
            actions[row] = int(positions.moves[row][ply]) - 1
        out = pool.step(actions)
        player.see(out)
    return grade_choices(lambda obs, mask: chosen)


def check_world(world: Any) -> None:
    """Refuse worlds in which perfect play is not known to the grades."""
    if not is_usual_board(world):
        raise ConfigError(
            f"a grade compares moves with perfect play, which is known of connect_four with {ROWS} rows, {COLS} "
            f"columns and four in a line alone, not of {world!r}; other worlds are measured by scramjet eval RUN, "
            f"games for several by scramjet eval RUN --against random"
        )
