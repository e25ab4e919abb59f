"""Connect Four: the rules by hand, what each seat sees, and the game against random moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import WorldError

SMALL_BOARDS = st.builds(
    lambda rows, cols, connect: ConnectFour(rows=rows, cols=cols, connect=min(connect, max(rows, cols))),
    st.integers(2, 7),
    st.integers(2, 8),
    st.integers(2, 5),
)


def begin(env: ConnectFour, seed: int = 0) -> Any:
    """A fresh game, as the record that the rules work on."""
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(seed)
    return pool.record(0)


def play(env: ConnectFour, s: Any, columns: Any) -> tuple[list[float], bool]:
    """Drop pieces in turn; the rewards and the end of the last move."""
    reward, over = np.zeros(env.num_seats), False
    for column in columns:
        assert not over, "the game had ended"
        reward[:] = 0
        over = env.step(s, int(column), reward)
    return reward.tolist(), over


def stats_of(env: ConnectFour, s: Any, player: int) -> dict[str, float]:
    stats = SimpleNamespace()
    env.stats(s, stats, player)
    assert set(vars(stats)) == set(env.stat_names)
    return vars(stats)


def view(env: ConnectFour, s: Any, player: int) -> np.ndarray:
    obs = np.full(env.observation_space.shape, 99, np.int8)
    env.observe(s, obs, player)
    assert env.observation_space.contains(obs)
    return obs


def legal(env: ConnectFour, s: Any) -> list[int]:
    mask = np.ones(env.cols, bool)
    env.mask(s, mask, 0)
    return np.flatnonzero(mask).tolist()


# --- two seats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "rewards"),
    [
        ([0, 0, 1, 1, 2, 2, 3], [1.0, -1.0]),  # across
        ([6, 5, 6, 5, 6, 5, 6], [1.0, -1.0]),  # up, at the edge
        ([0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3], [1.0, -1.0]),  # rising to the right
        ([6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3], [1.0, -1.0]),  # rising to the left
        ([6, 0, 6, 1, 5, 2, 5, 3], [-1.0, 1.0]),  # for the second side
        ([0, 6, 1, 6, 3, 5, 4, 5, 2], [1.0, -1.0]),  # five across, the gap in the middle filled last
    ],
)
def test_four_in_a_line_win_and_the_other_seat_loses(columns, rewards) -> None:
    env = ConnectFour()
    s = begin(env)
    assert play(env, s, columns[:-1]) == ([0.0, 0.0], False)
    assert play(env, s, columns[-1:]) == (rewards, True)
    won = [stats_of(env, s, seat)["win"] for seat in (0, 1)]
    lost = [stats_of(env, s, seat)["loss"] for seat in (0, 1)]
    assert won == [float(reward > 0) for reward in rewards] == lost[::-1]


def test_a_line_does_not_go_round_the_edge_of_the_board() -> None:
    env = ConnectFour()
    s = begin(env)
    # side 0 holds 5 and 6 of the bottom row and 0 and 1 of the row above
    assert play(env, s, [5, 0, 6, 1, 0, 3, 1, 3]) == ([0.0, 0.0], False)


def test_the_seats_take_turns_and_seat_0_begins() -> None:
    env = ConnectFour()
    s = begin(env)
    for move, column in enumerate([3, 3, 2, 4, 4]):
        assert env.seat(s) == move % 2
        play(env, s, [column])


def test_a_full_column_is_masked_and_who_chooses_it_all_the_same_loses() -> None:
    env = ConnectFour()
    s = begin(env)
    play(env, s, [3] * 6)
    assert legal(env, s) == [0, 1, 2, 4, 5, 6]
    assert play(env, s, [3]) == ([-1.0, 1.0], True)
    assert stats_of(env, s, 0)["loss"] == stats_of(env, s, 1)["win"] == 1.0
    assert stats_of(env, s, 0)["moves"] == 6


def test_a_full_board_without_a_line_is_a_draw() -> None:
    env = ConnectFour(rows=2, cols=3, connect=3)
    s = begin(env)
    assert play(env, s, [0, 1, 2, 0, 1]) == ([0.0, 0.0], False)
    assert legal(env, s) == [2]
    assert play(env, s, [2]) == ([0.0, 0.0], True)
    for seat in (0, 1):
        result = stats_of(env, s, seat)
        assert (result["win"], result["draw"], result["loss"], result["moves"]) == (0.0, 1.0, 0.0, 6)


def test_a_game_cut_short_is_neither_won_nor_drawn_nor_lost() -> None:
    env = ConnectFour()
    s = begin(env)
    play(env, s, [3, 3])
    result = stats_of(env, s, 0)
    assert (result["win"], result["draw"], result["loss"]) == (0.0, 0.0, 0.0)


def test_wins_are_told_apart_by_who_moved_first() -> None:
    env = ConnectFour()
    s = begin(env)
    play(env, s, [6, 0, 6, 1, 5, 2, 5, 3])  # seat 1 wins
    first, second = stats_of(env, s, 0), stats_of(env, s, 1)
    assert (first["first"], first["win_first"], first["win_second"]) == (1.0, 0.0, 0.0)
    assert (second["first"], second["win_first"], second["win_second"]) == (0.0, 0.0, 1.0)


@given(SMALL_BOARDS, st.data())
@settings(max_examples=60)
def test_pieces_stand_on_one_another_and_each_seat_sees_the_same_board_from_its_side(env, data) -> None:
    s = begin(env)
    over, moves = False, 0
    while not over:
        own, other = view(env, s, env.seat(s)), view(env, s, 1 - env.seat(s))
        np.testing.assert_array_equal(own, other[::-1])
        assert own[0].sum() == moves // 2  # the seat to move has as many pieces as the other, or one less
        assert own[1].sum() == (moves + 1) // 2
        taken = own.sum(axis=0)
        assert taken.max() <= 1
        assert (np.diff(taken, axis=0) >= 0).all()  # nothing hangs in the air: row 0 is the top
        assert legal(env, s) == np.flatnonzero(taken[0] == 0).tolist()
        _, over = play(env, s, [data.draw(st.sampled_from(legal(env, s)))])
        moves += 1
        assert moves <= env.rows * env.cols
    results = [stats_of(env, s, seat) for seat in (0, 1)]
    assert [result["win"] + result["draw"] + result["loss"] for result in results] == [1.0, 1.0]
    assert results[0]["win"] == results[1]["loss"]
    assert results[0]["moves"] == moves


@given(SMALL_BOARDS, st.data())
@settings(max_examples=60)
def test_a_board_in_the_mirror_is_the_same_game(env, data) -> None:
    first, second, over = begin(env), begin(env), False
    while not over:
        column = data.draw(st.sampled_from(legal(env, first)))
        reward, over = play(env, first, [column])
        assert play(env, second, [env.cols - 1 - column]) == (reward, over)
    np.testing.assert_array_equal(view(env, first, 0), view(env, second, 0)[:, :, ::-1])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rows": 1}, "rows=1 must be from 2 to 20"),
        ({"cols": 21}, "cols=21 must be from 2 to 20"),
        ({"connect": 1}, "connect=1 must be from 2 to 7"),
        ({"opening_plies": -1}, "opening_plies=-1 must be at least 0"),
        (
            {"rows": 4, "cols": 4, "connect": 5},
            "connect=5 must be from 2 to 4, the longest line on a board of 4 x 4; lower connect, or raise rows or cols",
        ),
    ],
)
def test_boards_that_make_no_game_are_refused(parameters, message: str) -> None:
    with pytest.raises(WorldError, match=message):
        load_env("scramjet.envs.games.connect_four:ConnectFour", **parameters)


def test_a_line_that_fits_only_across_can_still_be_made() -> None:
    env = ConnectFour(rows=2, cols=9, connect=9)
    s = begin(env)
    # side 0 takes the bottom row from the left, side 1 answers on top of it
    columns = [column for column in range(8) for _ in (0, 1)]
    assert play(env, s, columns) == ([0.0, 0.0], False)
    assert play(env, s, [8]) == ([1.0, -1.0], True)


def test_an_opening_has_from_none_to_the_given_number_of_plies_each_as_likely() -> None:
    pool = NativePool(ConnectFour(opening_plies=5), 1800, backend="interpreted")
    out = pool.reset(0)
    plies = pool.states()["moves"]
    counts = np.bincount(plies, minlength=6)
    assert counts == pytest.approx(300, abs=5 * np.sqrt(300))
    assert len(counts) == 6
    np.testing.assert_array_equal(out.turn, plies % 2)
    np.testing.assert_array_equal(out.obs.sum(axis=(2, 3)), np.stack([plies // 2, (plies + 1) // 2], axis=1))
    first = pool.states()["pieces"][plies == 1, 0, 5]  # the first column, each of seven as likely
    assert first.sum(axis=0) == pytest.approx(len(first) / 7, rel=0.5)


@pytest.mark.parametrize("random_opponent", [False, True])
def test_no_opening_ends_the_game_and_it_stops_where_every_move_would(random_opponent: bool) -> None:
    env = ConnectFour(rows=3, cols=4, connect=3, opening_plies=99, random_opponent=random_opponent)
    pool = NativePool(env, 150, backend="interpreted")
    pool.reset(0)
    states = pool.states()
    assert (states["winner"] == 0).all()
    assert not any(has_three(plane) for planes in states["pieces"] for plane in planes)
    assert states["moves"].max() > 5
    assert states["moves"].max() < 12
    np.testing.assert_array_equal(states["turn"], states["moves"] % 2)
    if random_opponent:
        np.testing.assert_array_equal(states["turn"], states["seat_0_side"])
        assert states["seat_0_side"].mean() == pytest.approx(0.5, abs=0.2)


def test_the_mirror_that_the_world_declares_maps_what_is_seen_and_played() -> None:
    env = ConnectFour(rows=4, cols=5, opening_plies=9)
    (mirror,) = env.symmetries
    first = NativePool(env, 64, backend="interpreted")
    out = first.reset(0)
    states = first.states()
    mirrored = states.copy()
    mirrored["pieces"], mirrored["heights"] = states["pieces"][..., ::-1], states["heights"][:, ::-1]
    actions = np.array([np.flatnonzero(legal)[-1] for legal in out.mask])
    _, one = first.simulate(states, actions)
    _, two = first.simulate(mirrored, np.asarray(mirror.actions)[actions])
    np.testing.assert_array_equal(mirror.observe(one.obs), two.obs)
    np.testing.assert_array_equal(mirror.observe(one.obs[0]), two.obs[0])
    np.testing.assert_array_equal(one.mask, two.mask[:, mirror.actions])
    assert one.reward.tolist() == two.reward.tolist()


def test_columns_are_called_by_their_numbers_counted_from_1() -> None:
    assert ConnectFour().action_names == ("1", "2", "3", "4", "5", "6", "7")


# --- against random moves ---------------------------------------------------------------------------------------


def test_against_a_random_opponent_there_is_one_seat_and_it_is_always_its_turn() -> None:
    env = ConnectFour(random_opponent=True)
    assert (env.num_seats, ConnectFour().num_seats) == (1, 2)
    for seed in range(20):
        s = begin(env, seed)
        assert env.seat(s) == 0
        play(env, s, [3])
        assert env.seat(s) == 0


def test_the_learner_begins_in_half_of_the_games_and_else_finds_a_piece_on_the_board() -> None:
    env = ConnectFour(random_opponent=True)
    obs = NativePool(env, 2000, backend="interpreted").reset(0).obs
    assert not obs[:, 0].any()
    others = obs[:, 1].sum(axis=(1, 2))
    assert set(others.tolist()) == {0, 1}
    assert others.mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2000))
    opening = obs[:, 1, 5].sum(axis=0)  # the opponent's first column, each of seven as likely
    assert opening == pytest.approx(others.sum() / 7, rel=0.35)


def test_the_opponent_answers_in_the_same_step_with_any_open_column() -> None:
    env = ConnectFour(rows=2, cols=3, connect=3, random_opponent=True)
    answers = {1: 0, 2: 0}
    for seed in range(600):
        s = begin(env, seed)
        if view(env, s, 0).any():  # the opponent began
            continue
        s.pieces[1, 1, 0] = s.heights[0] = s.moves = 1  # the lower cell of column 0 is the opponent's
        play(env, s, [0])
        own, other = view(env, s, 0)
        assert own.tolist() == [[1, 0, 0], [0, 0, 0]]
        assert other.sum() == 2
        answers[int(other[1, 1:].argmax()) + 1] += 1
    assert answers[1] + answers[2] > 200
    assert answers[1] / answers[2] == pytest.approx(1.0, abs=0.35)


def test_rewards_are_the_learners_whichever_side_it_plays() -> None:
    env = ConnectFour(rows=4, cols=4, connect=3, random_opponent=True)
    seen = set()
    random = np.random.default_rng(0)
    for seed in range(200):
        s, over, reward = begin(env, seed), False, [0.0]
        while not over:
            assert reward == [0.0]
            reward, over = play(env, s, [random.choice(legal(env, s))])
        result = stats_of(env, s, 0)
        assert reward == [result["win"] - result["loss"]]
        assert result["win"] == result["win_first"] + result["win_second"]
        assert result["win_first"] <= result["first"]
        assert result["win_second"] <= 1 - result["first"]
        own, other = view(env, s, 0)
        assert has_three(own) == bool(result["win"])
        assert has_three(other) == bool(result["loss"])
        seen.add((result["first"], reward[0]))
    assert seen >= {(first, reward) for first in (0.0, 1.0) for reward in (-1.0, 1.0)}


@pytest.mark.parametrize("backend", ["interpreted", "cpu"])
def test_a_pool_of_games_against_random_moves_has_one_row_and_one_reward_a_game(backend) -> None:
    env = ConnectFour(rows=4, cols=4, connect=3, random_opponent=True)
    pool = NativePool(env, 8, num_threads=1, backend=backend)
    out, random, num_ended = pool.reset(0), np.random.default_rng(0), 0
    for _ in range(60):
        columns = np.array([random.choice(np.flatnonzero(row)) for row in out.mask])
        before = out.obs.copy()
        out = pool.step(columns)
        for i, column in enumerate(columns):
            after = out.final_obs[i] if out.terminated[i] else out.obs[i]
            assert np.argwhere(after[0] != before[i, 0])[:, 1].tolist() == [column]
            assert (after[1] != before[i, 1]).sum() == 1 or out.terminated[i]
            assert out.reward.reshape(8)[i] == float(has_three(after[0])) - float(has_three(after[1]))
        num_ended += int(out.terminated.sum())
    assert len(pool.episodes()) == num_ended > 50


def has_three(plane: np.ndarray) -> bool:
    """Whether three in a line stand on a small board; counted on every window of 3 x 3."""
    windows = [plane[r : r + 3, c : c + 3] for r in range(plane.shape[0] - 2) for c in range(plane.shape[1] - 2)]
    return any(
        w.all(axis=0).any() or w.all(axis=1).any() or w.diagonal().all() or w[::-1].diagonal().all() for w in windows
    )


def test_against_a_random_opponent_a_full_column_loses_at_once() -> None:
    env = ConnectFour(random_opponent=True)
    s = begin(env)
    s.heights[3] = 6
    assert play(env, s, [3]) == ([-1.0], True)
    assert stats_of(env, s, 0)["loss"] == 1.0


# --- pictures ---------------------------------------------------------------------------------------------------


def test_the_picture_as_text_shows_the_pieces_and_who_moves_or_has_won() -> None:
    env = ConnectFour(rows=3, cols=4, connect=3)
    s = begin(env)
    play(env, s, [1, 1])
    assert env.ascii(s).splitlines() == [
        "| . . . . |",
        "| . O . . |",
        "| . X . . |",
        "+---------+",
        "  1 2 3 4",
        "X to move",
    ]
    play(env, s, [2, 2, 3])
    assert env.ascii(s).endswith("X wins")


def test_the_picture_shows_each_piece_in_its_colour_and_marks_the_line_that_won() -> None:
    env = ConnectFour(rows=3, cols=4, connect=3)
    s = begin(env)
    empty = env.render(s)
    assert (empty.dtype, empty.shape[2]) == (np.uint8, 3)
    play(env, s, [0])
    one = env.render(s)
    play(env, s, [0])
    two = env.render(s)
    changed = [np.argwhere((a != b).any(axis=2)) for a, b in ((empty, one), (one, two))]
    assert changed[0].min(axis=0)[0] > changed[1].min(axis=0)[0]  # the second piece lies above the first
    colours = [
        tuple(picture[tuple(places[len(places) // 2])]) for picture, places in zip((one, two), changed, strict=True)
    ]
    assert colours[0] != colours[1]
    play(env, s, [1, 1])
    before = env.render(s)
    play(env, s, [2])
    marked = np.argwhere((env.render(s) != before).any(axis=2))
    assert marked[:, 1].min() < empty.shape[1] / 4  # not only the new piece has changed
