"""Grades players of Connect Four by perfect play: how often a move keeps the value of a position, how often it is best.

A move keeps the value if a won position stays won and a drawn one is not lost; it is optimal if it also wins as soon
as can be, or loses as late. Both are counted over the positions of `arena.solver.graded_positions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.algorithms.intervals import wilson_interval
from scramjet.arena.solver.graded_positions import CLASSES, COLS, ROWS, GradedPositions, graded_positions
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.policies.policy import Policy

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
    if not isinstance(world, ConnectFour) or (world.rows, world.cols, world.connect) != (ROWS, COLS, 4):
        raise ConfigError(
            f"a grade compares moves with perfect play, which is known of connect_four with {ROWS} rows, {COLS} "
            f"columns and four in a line alone, not of {world!r}; other worlds are measured by scramjet eval RUN, "
            f"games for several by scramjet eval RUN --against random"
        )
