"""Our Connect Four against another one: positions as two Python integers, lines found by shifting them.

A column is seven bits, six cells from the bottom up and one that is always empty, so that no shifted line wraps round.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs.games.connect_four import ConnectFour

ROWS, COLS = 6, 7
SHIFTS = {"up": 1, "across": 7, "falling": 6, "rising": 8}
FULL = sum(0b111111 << 7 * column for column in range(COLS))
BITS = np.array([[7 * column + ROWS - 1 - row for column in range(COLS)] for row in range(ROWS)])  # row 0 is the top
DRAWN_GAME = "436014551150160155104632660465204242223333"
WON_BY_THE_LAST_PIECE = "456444341232530611460223056031100536126255"


def first_cells(pieces: int, shift: int) -> int:
    """The first cells of all lines of four among `pieces` in one direction."""
    return pieces & pieces >> shift & pieces >> 2 * shift & pieces >> 3 * shift


def lines(pieces: int) -> set[tuple[int, ...]]:
    """All lines of four among `pieces`, each as the places of its four bits."""
    return {
        tuple(place + k * shift for k in range(4))
        for shift in SHIFTS.values()
        for place in range(7 * COLS)
        if first_cells(pieces, shift) >> place & 1
    }


@dataclass
class Oracle:
    """One game: the pieces of the side that moves first, and of the other."""

    sides: list[int] = field(default_factory=lambda: [0, 0])
    turn: int = 0

    @property
    def taken(self) -> int:
        return self.sides[0] | self.sides[1]

    def play(self, column: int) -> None:
        self.sides[self.turn] |= (self.taken + (1 << 7 * column)) & ~self.taken & (0b111111 << 7 * column)
        self.turn = 1 - self.turn

    def legal(self) -> list[bool]:
        return [not self.taken >> 7 * column + ROWS - 1 & 1 for column in range(COLS)]

    def has_line(self, side: int) -> bool:
        return any(first_cells(self.sides[side], shift) for shift in SHIFTS.values())

    def rewards(self) -> list[float]:
        result = float(self.has_line(0)) - float(self.has_line(1))
        return [result, -result]

    def is_over(self) -> bool:
        return self.has_line(0) or self.has_line(1) or self.taken == FULL

    def planes(self, side: int) -> np.ndarray:
        """Own pieces and the other's [2, 6, 7]."""
        return np.stack([self.sides[side] >> BITS & 1, self.sides[1 - side] >> BITS & 1])


def assert_same_view(out, i: int, game: Oracle, where: str) -> None:
    """Whose turn it is, what that seat sees and where it may play."""
    assert out.turn[i] == game.turn, where
    np.testing.assert_array_equal(out.obs[i], game.planes(game.turn), err_msg=where)
    assert out.mask[i].tolist() == game.legal(), where


@pytest.mark.parametrize(("backend", "num_envs", "steps"), [("cpu", 64, 300), ("interpreted", 3, 100)])
def test_random_games_equal_the_oracle_at_every_move(backend, num_envs: int, steps: int) -> None:
    pool = NativePool(ConnectFour(), num_envs, num_threads=1, backend=backend)
    out, random = pool.reset(0), np.random.default_rng(0)
    games = [Oracle() for _ in range(num_envs)]
    lines_seen: set[tuple[int, ...]] = set()
    num_drawn = 0
    for t in range(steps):
        for i, game in enumerate(games):
            assert_same_view(out, i, game, f"env {i} before move {t}")
        actions = np.array([random.choice(np.flatnonzero(legal)) for legal in out.mask])
        out = pool.step(actions)
        for i, game in enumerate(games):
            where = f"env {i} after move {t}"
            game.play(int(actions[i]))
            assert out.reward[i].tolist() == game.rewards(), where
            assert out.terminated[i] == game.is_over(), where
            assert not out.truncated[i]
            if game.is_over():
                for seat in (0, 1):
                    np.testing.assert_array_equal(out.final_obs[2 * i + seat], game.planes(seat), err_msg=where)
                lines_seen |= lines(game.sides[0]) | lines(game.sides[1])
                num_drawn += not any(game.rewards())
                games[i] = Oracle()
    if backend == "cpu":
        assert len(lines_seen) > 50
        assert num_drawn > 0


def position_before(line: tuple[int, ...], last: int, side: int, random: np.random.Generator) -> Oracle | None:
    """A position without a line in which `side` completes `line` by dropping onto `last`; None if it cannot be so."""
    column_of_last = last // 7
    if any(place // 7 == column_of_last and place > last for place in line):
        return None  # its piece would have to hang in the air
    for _ in range(1000):
        game = Oracle(turn=side)
        for column in range(COLS):
            above = [place + 1 for place in line if place // 7 == column]
            top = last if column == column_of_last else max(above, default=7 * column + random.integers(ROWS + 1))
            for place in range(7 * column, int(top)):
                owner = side if place in line else int(random.integers(2))
                game.sides[owner] |= 1 << place
        if not game.has_line(0) and not game.has_line(1):
            return game
    raise AssertionError(f"no position found for {line} completed at {last}")


def as_states(pool: NativePool, games: list[Oracle]) -> np.ndarray:
    """Records that hold these positions."""
    states = np.zeros(len(games), pool.states().dtype)
    for i, game in enumerate(games):
        states["pieces"][i] = game.planes(0)
        states["heights"][i] = game.planes(0).sum(axis=(0, 1))
        states["turn"][i] = game.turn
        states["moves"][i] = game.taken.bit_count()
    return states


def test_every_line_wins_for_either_side_whichever_of_its_pieces_comes_last() -> None:
    random = np.random.default_rng(0)
    cases = [
        (game, last // 7, line)
        for line in sorted(lines(FULL))
        for last in line
        for side in (0, 1)
        if (game := position_before(line, last, side, random)) is not None
    ]
    assert len(lines(FULL)) == 69  # 24 across, 21 up, 12 on each diagonal
    assert len(cases) == 2 * (4 * (24 + 12 + 12) + 21)
    pool = NativePool(ConnectFour(), 1, num_threads=1)
    pool.reset(0)
    states = as_states(pool, [game for game, _, _ in cases])
    _, out = pool.simulate(states, np.array([column for _, column, _ in cases]))
    for i, (game, column, line) in enumerate(cases):
        mover = game.turn
        game.play(column)
        assert line in lines(game.sides[mover])
        assert out.terminated[i], line
        assert out.reward[i].tolist() == game.rewards() == [1.0 - 2 * mover, 2.0 * mover - 1.0], line


def test_positions_close_to_a_line_are_judged_as_the_oracle_does() -> None:
    """From positions one piece short of a line, all seven moves: most complete nothing."""
    random = np.random.default_rng(1)
    positions = [position_before(line, max(line), side, random) for line in sorted(lines(FULL)) for side in (0, 1)]
    cases = [(game, column) for game in positions if game is not None for column in range(COLS) if game.legal()[column]]
    pool = NativePool(ConnectFour(), 1, num_threads=1)
    pool.reset(0)
    states, columns = as_states(pool, [game for game, _ in cases]), np.array([column for _, column in cases])
    _, out = pool.simulate(states, columns)
    num_quiet = 0
    for i, (before, column) in enumerate(cases):
        game = Oracle(list(before.sides), before.turn)
        game.play(column)
        assert out.reward[i].tolist() == game.rewards()
        assert out.terminated[i] == game.is_over()
        num_quiet += not game.is_over()
    assert len(cases) // 4 < num_quiet < len(cases)


@pytest.mark.parametrize("backend", ["cpu", "interpreted"])
@pytest.mark.parametrize(("columns", "is_draw"), [(DRAWN_GAME, True), (WON_BY_THE_LAST_PIECE, False)])
def test_a_full_board_is_a_draw_unless_its_last_piece_makes_a_line(columns: str, is_draw: bool, backend) -> None:
    pool = NativePool(ConnectFour(), 1, num_threads=1, backend=backend)
    out, game = pool.reset(0), Oracle()
    for move, column in enumerate(map(int, columns)):
        assert_same_view(out, 0, game, f"before move {move}")
        out = pool.step(np.array([column]))
        game.play(column)
        assert out.terminated[0] == (move == 41) == game.is_over()
        assert out.reward[0].tolist() == game.rewards()
    assert game.taken == FULL
    assert game.rewards() == ([0.0, 0.0] if is_draw else [-1.0, 1.0])
    assert pool.episodes().stats["draw"].tolist() == [float(is_draw)] * 2
