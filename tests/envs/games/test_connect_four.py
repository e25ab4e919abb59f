"""Connect Four: lines by another count of them, what each seat is told, and the game against random moves."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
WAYS = ((0, 1), (1, 0), (1, 1), (1, -1))
LINES = [
    [(row + k * down, column + k * right) for k in range(4)]
    for row in range(ROWS)
    for column in range(COLS)
    for down, right in WAYS
    if row + 3 * down < ROWS and 0 <= column + 3 * right < COLS
]
DRAWN_GAME = "436014551150160155104632660465204242223333"
WON_BY_THE_LAST_PIECE = "456444341232530611460223056031100536126255"


def has_line(plane: np.ndarray, connect: int = 4) -> bool:
    """Whether so many in a line stand on a board of any size; counted from every piece in every direction."""
    pieces = set(map(tuple, np.argwhere(plane).tolist()))
    return any(
        all((row + k * down, column + k * right) in pieces for k in range(connect))
        for row, column in pieces
        for down, right in WAYS
    )


# --- two seats --------------------------------------------------------------------------------------------------


def test_a_full_board_is_a_draw_unless_its_last_piece_makes_a_line() -> None:
    for columns, rewards in ((DRAWN_GAME, [0.0, 0.0]), (WON_BY_THE_LAST_PIECE, [-1.0, 1.0])):
        env = ConnectFour()
        s = begun(env)
        assert play(env, s, columns[:-1]) == ([0.0, 0.0], False)
        assert play(env, s, columns[-1:]) == (rewards, True)
        assert s.pieces.sum() == 42
        assert has_line(s.pieces[1]) == (rewards[1] == 1)


def position_before(line: list[tuple[int, int]], last: tuple[int, int], side: int, random) -> np.ndarray | None:
    """A position without a line in which `side` completes `line` by dropping onto `last`; None if it cannot be so."""
    if any(column == last[1] and row < last[0] for row, column in line):
        return None  # its piece would have to hang in the air
    for _ in range(1000):
        pieces = np.zeros((2, ROWS, COLS), np.int8)
        for column in range(COLS):
            of_line = [row for row, beside in line if beside == column]
            highest = last[0] + 1 if column == last[1] else min(of_line, default=random.integers(ROWS + 1))
            for row in range(highest, ROWS):
                pieces[side if (row, column) in line else random.integers(2), row, column] = 1
        if not any(map(has_line, pieces)):
            return pieces
    raise AssertionError(f"no position found for {line} completed at {last}")


def after_drops(cases: list[tuple[np.ndarray, int, int]]) -> Transition:
    """What the world says where a side drops a piece into a column."""
    pool, _ = compiled(ConnectFour())
    states = np.zeros(len(cases), pool.states().dtype)
    pieces, states["turn"], columns = map(np.array, zip(*cases, strict=True))
    states["pieces"], states["heights"], states["moves"] = pieces, pieces.sum(axis=(1, 2)), pieces.sum(axis=(1, 2, 3))
    return pool.simulate(states, columns)[1]


def test_every_line_wins_for_either_side_whichever_of_its_pieces_comes_last() -> None:
    random = np.random.default_rng(0)
    tries = [(line, last, side) for line in LINES for last in line for side in (0, 1)]
    positions = [(position_before(*each, random), *each) for each in tries]
    possible = [(pieces, side, last[1], line) for pieces, line, last, side in positions if pieces is not None]
    assert len(LINES) == 69  # 24 across, 21 up, 12 on each diagonal
    assert len(possible) == 2 * (4 * (24 + 12 + 12) + 21)
    out = after_drops([(pieces, side, column) for pieces, side, column, _ in possible])
    for i, (_, side, _, line) in enumerate(possible):
        assert out.terminated[i], line
        assert out.reward[i].tolist() == [1.0 - 2 * side, 2.0 * side - 1.0], line


def test_positions_close_to_a_line_are_judged_by_all_lines_there_are() -> None:
    """From positions one piece short of a line, all seven moves: most complete nothing."""
    random, cases, results = np.random.default_rng(1), [], []
    for line in LINES:
        for side in (0, 1):
            pieces = position_before(line, min(line), side, random)
            heights = pieces.sum(axis=(0, 1))
            for column in np.flatnonzero(heights < ROWS):
                cases.append((pieces, side, column))
                after = pieces.copy()
                after[side, ROWS - 1 - heights[column], column] = 1
                results.append((has_line(after[side]), after.sum() == 42))
    out = after_drops(cases)
    for i, (has_won, is_full) in enumerate(results):
        assert out.reward[i, cases[i][1]] == -out.reward[i, 1 - cases[i][1]] == has_won
        assert out.terminated[i] == (has_won or is_full)
    assert len(cases) // 4 < sum(not has_won for has_won, _ in results) < len(cases)


SMALL_BOARDS = st.builds(
    lambda rows, cols, connect: ConnectFour(rows=rows, cols=cols, connect=min(connect, max(rows, cols))),
    st.integers(2, 7),
    st.integers(2, 8),
    st.integers(2, 5),
)


@given(SMALL_BOARDS | st.just(ConnectFour()), st.data())
@settings(max_examples=80)
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
    obs = interpreted(ConnectFour(random_opponent=True), 1000)[1].obs
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
