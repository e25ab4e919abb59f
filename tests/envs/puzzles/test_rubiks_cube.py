"""Rubik's cube: its turns make the group that is known of it, starts are fair, and the numbers about it are true."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.puzzles.rubiks_cube import COLORS, RubiksCube, turn
from tests.helpers.playing import begun, episode_stats, observation, record

NAMES = RubiksCube.action_names
SOLVED = np.repeat(np.arange(6), 9)
CORNERS = [9 * face + place for face in range(6) for place in (0, 2, 6, 8)]
EDGES = [9 * face + place for face in range(6) for place in (1, 3, 5, 7)]
CENTRES = [9 * face + 4 for face in range(6)]
SUPERFLIP = "U R2 F B R B2 R U2 L B2 R U' D' R2 F R' L B2 U2 F2"  # Reid 1995


def played(text: str, times: int = 1) -> np.ndarray:
    """Where each of 54 stickers, all told apart, has come to: entry i is the number of the sticker at place i."""
    cube = np.arange(54)
    for name in text.split() * times:
        turn(cube, NAMES.index(name))
    return cube


def order(text: str) -> int:
    times = 1
    while not np.array_equal(played(text, times), np.arange(54)):
        times += 1
    return times


def starts(num_games: int, **parameters: int) -> np.ndarray:
    """The stickers of new games, [games, 54]."""
    env = RubiksCube(**parameters)
    return np.array([begun(env, seed).cube for seed in range(num_games)])


# --- turns ------------------------------------------------------------------------------------------------------


def test_turns_and_sequences_have_the_orders_that_are_known() -> None:
    orders = {"R U R' U'": 6, "F R F' R'": 6, "R U": 105, "R U'": 63, "R L": 4, "R2 U2": 6, "F2 D2": 6}
    for text, expected in (orders | dict.fromkeys("UFRBLD", 4)).items():
        assert order(text) == expected, text
    for face in "UFRBLD":
        np.testing.assert_array_equal(played(f"{face}'"), played(face, 3), err_msg=face)
        np.testing.assert_array_equal(played(f"{face}2"), played(face, 2), err_msg=face)
    for first, second in ("UD", "FB", "RL"):  # opposite faces
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


@given(st.lists(st.sampled_from(NAMES), max_size=30))
@settings(max_examples=50)
def test_playing_the_inverse_of_any_sequence_solves_the_cube_with_the_last_turn(names: list[str]) -> None:
    opposite = {name: name if name.endswith("2") else name[:-1] if name.endswith("'") else f"{name}'" for name in NAMES}
    there, back = ["R", *names], [opposite[name] for name in names[::-1]]
    env, s = RubiksCube(), record(RubiksCube(), cube=SOLVED)
    for name in [*there, *back]:
        reward, is_over = env.step(s, NAMES.index(name))
        is_solved = all(len(set(face)) == 1 for face in s.cube.reshape(6, 9).tolist())
        assert (reward, is_over) == (float(is_solved), is_solved)
        assert episode_stats(env, s) == {"solved": is_solved}
    assert not is_over
    assert env.step(s, NAMES.index("R'")) == (1.0, True)


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


def test_no_game_begins_with_a_solved_cube_and_none_lacks_a_colour() -> None:
    for scrambles in (1, 2, 30):
        cubes = starts(100, scrambles=scrambles)
        assert (cubes != SOLVED).any(axis=1).all()
        np.testing.assert_array_equal(np.sort(cubes, axis=1), np.broadcast_to(SOLVED, cubes.shape))
        np.testing.assert_array_equal(cubes[:, CENTRES], np.broadcast_to(np.arange(6), (100, 6)))


# --- what is seen -----------------------------------------------------------------------------------------------


def test_the_observation_is_the_colour_of_each_sticker_one_hot() -> None:
    env = RubiksCube()
    for seed in range(5):
        s = begun(env, seed)
        np.testing.assert_array_equal(observation(env, s), np.eye(6, dtype=np.int8)[s.cube])


def test_text_and_picture_are_the_unfolded_cube() -> None:
    env, s = RubiksCube(), record(RubiksCube(), cube=SOLVED)
    picture = env.render(s)
    assert picture.shape == (360, 474, 3)
    for color in COLORS:
        assert (picture == color).all(axis=-1).sum() == 9 * 32 * 32
    for name in "FU":
        env.step(s, NAMES.index(name))
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
