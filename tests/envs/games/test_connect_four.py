"""Connect Four: every move against another program of it, what each seat is told, and the game against random moves.

The other program keeps positions as two Python integers and finds lines by shifting them. A column is seven bits, six
cells from the bottom up and one that is always empty, so that no shifted line wraps round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine.random_play import random_actions
from scramjet.engine.transition import Transition
from scramjet.envs.games.connect_four import ConnectFour
from tests.helpers.playing import (
    assert_as_likely,
    begun,
    compiled,
    episode_stats,
    interpreted,
    legal,
    observation,
    play,
)

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


# --- two seats --------------------------------------------------------------------------------------------------


def assert_same_view(out: Transition, i: int, game: Oracle, where: str) -> None:
    assert out.turn[i] == game.turn, where
    assert out.mask[i].tolist() == game.legal(), where
    np.testing.assert_array_equal(out.obs[i], game.planes(game.turn), err_msg=where)


def test_random_games_equal_the_oracle_at_every_move() -> None:
    num_envs = 32
    pool, out = compiled(ConnectFour(), num_envs)
    random, games = np.random.default_rng(0), [Oracle() for _ in range(num_envs)]
    lines_seen: set[tuple[int, ...]] = set()
    num_drawn = 0
    for t in range(300):
        for i, game in enumerate(games):
            assert_same_view(out, i, game, f"env {i} before move {t}")
        actions = random_actions(pool, out, random)
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
    assert len(lines_seen) > 50
    assert num_drawn > 0


def test_a_full_board_is_a_draw_unless_its_last_piece_makes_a_line() -> None:
    for columns, rewards in ((DRAWN_GAME, [0.0, 0.0]), (WON_BY_THE_LAST_PIECE, [-1.0, 1.0])):
        (pool, out), game = compiled(ConnectFour()), Oracle()
        for move, column in enumerate(map(int, columns)):
            assert_same_view(out, 0, game, f"before move {move}")
            out = pool.step(np.array([column]))
            game.play(column)
            assert out.terminated[0] == (move == 41) == game.is_over()
            assert out.reward[0].tolist() == game.rewards()
        assert game.taken == FULL
        assert game.rewards() == rewards
        assert pool.episodes().stats["draw"].tolist() == [float(rewards == [0.0, 0.0])] * 2


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


def after_drops(cases: list[tuple[Oracle, int]]) -> Transition:
    """What the world says of pieces dropped in these positions."""
    pool, _ = compiled(ConnectFour())
    states = np.zeros(len(cases), pool.states().dtype)
    for i, (game, _) in enumerate(cases):
        states["pieces"][i] = game.planes(0)
        states["heights"][i] = game.planes(0).sum(axis=(0, 1))
        states["turn"][i] = game.turn
        states["moves"][i] = game.taken.bit_count()
    return pool.simulate(states, np.array([column for _, column in cases]))[1]


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
    out = after_drops([(game, column) for game, column, _ in cases])
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
    out, num_quiet = after_drops(cases), 0
    for i, (before, column) in enumerate(cases):
        game = Oracle(list(before.sides), before.turn)
        game.play(column)
        assert out.reward[i].tolist() == game.rewards()
        assert out.terminated[i] == game.is_over()
        num_quiet += not game.is_over()
    assert len(cases) // 4 < num_quiet < len(cases)


def has_line(plane: np.ndarray, connect: int) -> bool:
    """Whether so many in a line stand on a board of any size; counted from every piece in every direction."""
    pieces = set(zip(*(axis.tolist() for axis in np.nonzero(plane)), strict=True))
    return any(
        all((row + k * down, column + k * right) in pieces for k in range(connect))
        for row, column in pieces
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    )


SMALL_BOARDS = st.builds(
    lambda rows, cols, connect: ConnectFour(rows=rows, cols=cols, connect=min(connect, max(rows, cols))),
    st.integers(2, 7),
    st.integers(2, 8),
    st.integers(2, 5),
)


@given(SMALL_BOARDS, st.data())
@settings(max_examples=60)
def test_on_any_board_pieces_stand_on_one_another_each_seat_sees_its_side_and_lines_win(env, data) -> None:
    s = begun(env)
    over, moves = False, 0
    while not over:
        assert env.seat(s) == moves % 2
        own, other = observation(env, s, env.seat(s)), observation(env, s, 1 - env.seat(s))
        assert env.observation_space.contains(own)
        np.testing.assert_array_equal(own, other[::-1])
        assert own[0].sum() == moves // 2  # the seat to move has as many pieces as the other, or one less
        assert own[1].sum() == (moves + 1) // 2
        taken = own.sum(axis=0)
        assert taken.max() <= 1
        assert (np.diff(taken, axis=0) >= 0).all()  # nothing hangs in the air: row 0 is the top
        assert legal(env, s, 0) == np.flatnonzero(taken[0] == 0).tolist()
        reward, over = play(env, s, [data.draw(st.sampled_from(legal(env, s, 0)))])
        moves += 1
        has_won = [has_line(plane, env.connect) for plane in observation(env, s, 0)]
        assert reward == [float(has_won[0]) - has_won[1], float(has_won[1]) - has_won[0]]
        assert over == (any(has_won) or moves == env.rows * env.cols)


def test_the_stats_of_both_seats_tell_the_result_and_who_moved_first() -> None:
    small = ConnectFour(rows=2, cols=3, connect=3)
    for env, columns, ends, results, moves in (
        (ConnectFour(), [0, 0, 1, 1, 2, 2, 3], True, ("win", "loss"), 7),
        (ConnectFour(), [6, 0, 6, 1, 5, 2, 5, 3], True, ("loss", "win"), 8),
        (ConnectFour(), [3] * 7, True, ("loss", "win"), 6),  # into a full column
        (small, [0, 1, 2, 0, 1, 2], True, ("draw", "draw"), 6),
        (ConnectFour(), [3, 3], False, ("cut short", "cut short"), 2),
    ):
        s = begun(env)
        assert play(env, s, columns)[1] == ends, columns
        for seat, result in enumerate(results):
            told = {name: float(name == result) for name in ("win", "draw", "loss")}
            told |= {"moves": moves, "first": 1 - seat}
            told |= {"win_first": told["win"] * (1 - seat), "win_second": told["win"] * seat}
            assert episode_stats(env, s, seat) == told, (columns, seat)


def test_an_opening_has_from_none_to_the_given_number_of_plies_each_as_likely() -> None:
    pool, out = interpreted(ConnectFour(opening_plies=5), 720)
    plies = pool.states()["moves"]
    counts = np.bincount(plies)
    assert len(counts) == 6
    assert_as_likely(counts)
    np.testing.assert_array_equal(out.turn, plies % 2)
    np.testing.assert_array_equal(out.obs.sum(axis=(2, 3)), np.stack([plies // 2, (plies + 1) // 2], axis=1))
    assert_as_likely(pool.states()["pieces"][plies == 1, 0, 5].sum(axis=0))  # the first column


def test_no_opening_ends_the_game_and_it_stops_where_every_move_would() -> None:
    for random_opponent in (False, True):
        env = ConnectFour(rows=3, cols=4, connect=3, opening_plies=99, random_opponent=random_opponent)
        states = interpreted(env, 150)[0].states()
        assert (states["winner"] == 0).all()
        assert not any(has_line(plane, 3) for planes in states["pieces"] for plane in planes)
        assert 5 < states["moves"].max() < 12
        np.testing.assert_array_equal(states["turn"], states["moves"] % 2)
        if random_opponent:
            np.testing.assert_array_equal(states["turn"], states["seat_0_side"])
            assert states["seat_0_side"].mean() == pytest.approx(0.5, abs=0.2)


# --- against random moves ---------------------------------------------------------------------------------------


def test_the_learner_begins_in_half_of_the_games_and_else_finds_a_piece_on_the_board() -> None:
    env = ConnectFour(random_opponent=True)
    obs = interpreted(env, 1000)[1].obs
    assert not obs[:, 0].any()
    others = obs[:, 1].sum(axis=(1, 2))
    assert set(others.tolist()) == {0, 1}
    assert_as_likely(np.bincount(others))
    assert_as_likely(obs[:, 1, 5].sum(axis=0))  # the opponent's first column


def test_the_opponent_answers_in_the_same_step_with_any_open_column() -> None:
    env = ConnectFour(rows=2, cols=3, connect=3, random_opponent=True)
    answers = [0, 0]
    for seed in range(500):
        s = begun(env, seed)
        assert env.seat(s) == 0
        if observation(env, s, 0).any():  # the opponent began
            continue
        s.pieces[1, 1, 0] = s.heights[0] = s.moves = 1  # the lower cell of column 0 is the opponent's
        play(env, s, [0])
        assert env.seat(s) == 0
        own, other = observation(env, s, 0)
        assert own.tolist() == [[1, 0, 0], [0, 0, 0]]
        assert other.sum() == 2
        answers[int(other[1, 1:].argmax())] += 1
    assert sum(answers) > 180
    assert_as_likely(answers)


def test_rewards_are_the_learners_whichever_side_it_plays() -> None:
    env = ConnectFour(rows=4, cols=4, connect=3, random_opponent=True)
    assert (env.num_seats, ConnectFour().num_seats) == (1, 2)
    seen = set()
    random = np.random.default_rng(0)
    for seed in range(150):
        s, over, reward = begun(env, seed), False, [0.0]
        while not over:
            assert reward == [0.0]
            reward, over = play(env, s, [random.choice(legal(env, s, 0))])
        result = episode_stats(env, s, 0)
        own, other = observation(env, s, 0)
        assert (has_line(own, 3), has_line(other, 3)) == (result["win"], result["loss"])
        assert reward == [result["win"] - result["loss"]]
        assert (result["win_first"], result["win_second"]) == (
            result["win"] * result["first"],
            result["win"] * (1 - result["first"]),
        )
        seen.add((result["first"], reward[0]))
    assert seen >= {(first, reward) for first in (0.0, 1.0) for reward in (-1.0, 1.0)}
    s = begun(env)
    s.heights[3] = 4
    assert play(env, s, [3]) == ([-1.0], True)  # a full column
    assert episode_stats(env, s, 0)["loss"] == 1.0


# --- pictures ---------------------------------------------------------------------------------------------------


def test_text_and_picture_show_the_pieces_and_who_moves_or_has_won() -> None:
    env = ConnectFour(rows=3, cols=4, connect=3)
    s = begun(env)
    pictures = [env.render(s)]
    for column in (1, 1):
        play(env, s, [column])
        pictures.append(env.render(s))
    assert env.ascii(s).splitlines() == [
        "| . . . . |",
        "| . O . . |",
        "| . X . . |",
        "+---------+",
        "  1 2 3 4",
        "X to move",
    ]
    first, second = (np.argwhere((a != b).any(axis=2)) for a, b in pairwise(pictures))
    assert first.min(axis=0)[0] > second.min(axis=0)[0]  # the second piece lies above the first
    colors = [tuple(pictures[2][tuple(places[len(places) // 2])]) for places in (first, second)]
    assert colors[0] != colors[1]
    play(env, s, [2, 2])
    before = env.render(s)
    play(env, s, [3])
    assert env.ascii(s).endswith("X wins")
    marked = np.argwhere((env.render(s) != before).any(axis=2))
    assert marked[:, 1].min() < before.shape[1] / 2  # not only the new piece has changed
