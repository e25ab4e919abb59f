"""Rubik's cube: its turns make the group that is known of it, starts are fair, and the numbers about it are true."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.engine.layout import state_dtype
from scramjet.engine.worlds.interpreted import Record
from scramjet.envs import load_env
from scramjet.envs.puzzles.rubiks_cube import COLORS, RubiksCube, turn
from scramjet.errors import WorldError
from scramjet.policies.symmetries import tables_of_world

NAMES = RubiksCube.action_names
SOLVED = np.repeat(np.arange(6), 9)
CORNERS = [9 * face + place for face in range(6) for place in (0, 2, 6, 8)]
EDGES = [9 * face + place for face in range(6) for place in (1, 3, 5, 7)]
CENTRES = [9 * face + 4 for face in range(6)]
SUPERFLIP = "U R2 F B R B2 R U2 L B2 R U' D' R2 F R' L B2 U2 F2"  # Reid 1995

moves = st.sampled_from(NAMES)


def played(text: str, times: int = 1) -> np.ndarray:
    """Where each of 54 stickers, all told apart, has come to: entry i is the number of the sticker at place i."""
    cube = np.arange(54)
    for name in text.split() * times:
        turn(cube, NAMES.index(name))
    return cube


def order(text: str) -> int:
    """How often a sequence is played until all stickers are back."""
    times = 1
    while not np.array_equal(played(text, times), np.arange(54)):
        times += 1
    return times


def begin(env: RubiksCube, cube: np.ndarray) -> Any:
    """A game at a position, as the record that the rules work on."""
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(0)
    s = pool.record(0)
    s.cube[:] = cube
    return s


def starts(num_games: int, **parameters: int) -> np.ndarray:
    """The stickers of new games, [games, 54], without what is seen of them."""
    env = RubiksCube(**parameters)
    states = np.zeros(num_games, state_dtype(env))
    states["_index"] = np.arange(num_games)
    for state in states:
        env.reset(Record(state, "RubiksCube"))
    return states["cube"]


# --- turns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", "UFRBLD")
def test_a_turn_has_order_four_and_its_inverse_and_half_turn_are_made_of_it(face: str) -> None:
    assert order(face) == 4
    np.testing.assert_array_equal(played(f"{face}'"), played(face, 3))
    np.testing.assert_array_equal(played(f"{face}2"), played(face, 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("R U R' U'", 6), ("F R F' R'", 6), ("R U", 105), ("R U'", 63), ("R L", 4), ("R2 U2", 6), ("F2 D2", 6)],
)
def test_sequences_have_the_orders_that_are_known(text: str, expected: int) -> None:
    assert order(text) == expected


@pytest.mark.parametrize(("first", "second"), [("U", "D"), ("F", "B"), ("R", "L")])
def test_turns_of_opposite_faces_can_be_exchanged(first: str, second: str) -> None:
    np.testing.assert_array_equal(played(f"{first} {second}"), played(f"{second} {first}"))


def test_the_superflip_turns_every_edge_over_and_nothing_else() -> None:
    flipped = played(SUPERFLIP)
    np.testing.assert_array_equal(flipped[CORNERS + CENTRES], CORNERS + CENTRES)
    assert (flipped[EDGES] != EDGES).all()
    assert flipped[1] == 9 * 3 + 1  # the edge of up and back
    assert flipped[7] == 9 * 1 + 1  # the edge of up and front
    assert order(SUPERFLIP) == 2


def test_as_many_positions_lie_one_two_and_three_turns_away_as_are_known() -> None:
    """1, 18, 243, 3240: Rokicki et al. 2013, "The diameter of the Rubik's cube group is twenty"."""
    turns = np.array([played(name) for name in NAMES])
    seen, frontier, counts = {SOLVED.astype(np.int8).tobytes()}, [SOLVED.astype(np.int8)], []
    for _ in range(3):
        reached = {cube.tobytes(): cube for before in frontier for cube in before[turns]}
        frontier = [cube for key, cube in reached.items() if key not in seen]
        seen |= set(reached)
        counts.append(len(frontier))
    assert counts == [18, 243, 3240]


@given(st.lists(moves, max_size=30))
@settings(deadline=None, max_examples=50)
def test_playing_the_inverse_of_any_sequence_solves_the_cube_with_the_last_turn(names: list[str]) -> None:
    opposite = {name: name if name.endswith("2") else name[:-1] if name.endswith("'") else f"{name}'" for name in NAMES}
    there, back = ["R", *names], [opposite[name] for name in names[::-1]]
    env, s = RubiksCube(), begin(RubiksCube(), SOLVED)
    for name in [*there, *back]:
        env.step(s, NAMES.index(name))
    assert not np.array_equal(s.cube, SOLVED)
    assert env.step(s, NAMES.index("R'")) == (1.0, True)


def test_a_step_pays_only_where_all_faces_are_of_one_colour() -> None:
    env, s = RubiksCube(), begin(RubiksCube(), SOLVED)
    stats = SimpleNamespace()
    assert env.step(s, NAMES.index("F")) == (0.0, False)
    env.stats(s, stats)
    assert stats.solved == 0
    assert env.step(s, NAMES.index("F2")) == (0.0, False)
    assert env.step(s, NAMES.index("F")) == (1.0, True)
    env.stats(s, stats)
    assert vars(stats) == {"solved": 1}


# --- starts -----------------------------------------------------------------------------------------------------


def test_two_scrambles_give_each_unsolved_position_as_often_as_random_turns_do() -> None:
    num_games = 5000
    found, counts = np.unique(starts(num_games, scrambles=2), axis=0, return_counts=True)
    pairs = np.array([SOLVED[played(f"{first} {second}")] for first in NAMES for second in NAMES])
    unsolved = pairs[(pairs != SOLVED).any(axis=1)]
    expected, weights = np.unique(unsolved, axis=0, return_counts=True)
    np.testing.assert_array_equal(found, expected)
    mean = num_games * weights / len(unsolved)
    assert (np.abs(counts - mean) < 5 * np.sqrt(mean)).all()


def test_varied_scrambles_are_as_often_one_as_any_other_number() -> None:
    num_games = 3000
    one_turn = {SOLVED[played(name)].astype(np.int8).tobytes() for name in NAMES}
    share = np.mean([cube.tobytes() in one_turn for cube in starts(num_games, scrambles=2, varied_scrambles=True)])
    of_two = 36 / 306  # 6 faces x 3 x 3 pairs of one face, 18 of which undo each other and 36 do not
    expected = (1 + of_two) / 2
    assert share == pytest.approx(expected, abs=5 * np.sqrt(expected / num_games))


@pytest.mark.parametrize("scrambles", [1, 2, 30])
def test_no_game_begins_with_a_solved_cube_and_none_lacks_a_colour(scrambles: int) -> None:
    cubes = starts(200, scrambles=scrambles)
    assert (cubes != SOLVED).any(axis=1).all()
    np.testing.assert_array_equal(np.sort(cubes, axis=1), np.broadcast_to(SOLVED, cubes.shape))
    np.testing.assert_array_equal(cubes[:, CENTRES], np.broadcast_to(np.arange(6), (200, 6)))


@pytest.mark.parametrize("scrambles", [0, -1, 1001])
def test_numbers_of_scrambles_that_make_no_puzzle_are_refused(scrambles: int) -> None:
    with pytest.raises(WorldError, match=f"scrambles={scrambles} must be from 1 to 1000"):
        load_env("RubiksCube-v0", scrambles=scrambles)


# --- what is seen -----------------------------------------------------------------------------------------------


def test_the_observation_is_the_colour_of_each_sticker_one_hot() -> None:
    pool = NativePool(RubiksCube(), 50, num_threads=1)
    out = pool.reset(0)
    np.testing.assert_array_equal(out.obs, np.eye(6, dtype=np.int8)[pool.states()["cube"]])


def test_a_turn_of_the_rotated_or_mirrored_cube_leads_to_the_rotated_or_mirrored_position() -> None:
    env = RubiksCube()
    pool = NativePool(env, 60, num_threads=1)
    out = pool.reset(0)
    before, actions = out.obs.copy(), np.random.default_rng(0).integers(18, size=60)
    states = pool.states()
    after = pool.simulate(states, actions)[1].obs.copy()
    for symmetry in env.symmetries:
        turned = states.copy()
        turned["cube"] = symmetry.observe(before).argmax(axis=-1)
        got = pool.simulate(turned, np.asarray(symmetry.actions)[actions])[1].obs
        np.testing.assert_array_equal(got, symmetry.observe(after), err_msg=symmetry.name)
        solved = np.eye(6)[SOLVED]
        np.testing.assert_array_equal(symmetry.observe(solved), solved)


def test_the_symmetries_make_all_forty_eight_of_a_cube() -> None:
    env = RubiksCube()
    tables = tables_of_world(env, env.observation_space, env.action_space)
    assert tables.count == 48
    assert len(np.unique(tables.action_sources.numpy(), axis=0)) == 48


def test_the_picture_as_text_is_the_unfolded_cube() -> None:
    env = RubiksCube()
    s = begin(env, SOLVED)
    env.step(s, NAMES.index("F"))
    env.step(s, NAMES.index("U"))
    assert env.ascii(s).splitlines() == [
        "      L U U",
        "      L U U",
        "      L U U",
        "F F F U R R B B B L L D",
        "L L D F F F U R R B B B",
        "L L D F F F U R R B B B",
        "      R R R",
        "      D D D",
        "      D D D",
    ]


def test_the_picture_has_the_colour_of_each_sticker() -> None:
    env = RubiksCube()
    picture = env.render(begin(env, SOLVED))
    assert picture.shape == (360, 474, 3)
    for color in COLORS:
        assert (picture == color).all(axis=-1).sum() == 9 * 32 * 32
