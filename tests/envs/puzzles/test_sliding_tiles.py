"""Sliding tiles: every start can be solved, moves and rewards are right, checked against a search of all positions."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from scramjet.envs.puzzles.sliding_tiles import RIGHT as GREEN
from scramjet.envs.puzzles.sliding_tiles import SlidingTiles
from tests.helpers.playing import assert_as_likely, begun, episode_stats, legal, observation, record

UP, RIGHT, DOWN, LEFT = range(4)
Position = tuple[int, ...]


def neighbours(position: Position, size: int) -> dict[int, Position]:
    """The positions one move away, by the way the gap goes."""
    gap, found = position.index(0), {}
    for way, step in ((UP, -size), (RIGHT, 1), (DOWN, size), (LEFT, -1)):
        other = gap + step
        if 0 <= other < size * size and (way in (UP, DOWN) or other // size == gap // size):
            tiles = list(position)
            tiles[gap], tiles[other] = tiles[other], tiles[gap]
            found[way] = tuple(tiles)
    return found


def goal(size: int) -> Position:
    return (*range(1, size * size), 0)


@cache
def distances(size: int) -> dict[Position, int]:
    """Moves to the goal from every position that can be solved, by breadth-first search."""
    found, frontier, distance = {goal(size): 0}, [goal(size)], 0
    while frontier:
        distance += 1
        frontier = [new for old in frontier for new in neighbours(old, size).values() if new not in found]
        found.update(dict.fromkeys(frontier, distance))
        frontier = list(dict.fromkeys(frontier))
    return found


def starts(num_games: int, **parameters: int) -> np.ndarray:
    """The tiles of new games, [games, cells]."""
    env = SlidingTiles(**parameters)
    return np.array([begun(env, seed).tiles for seed in range(num_games)])


def at(env: SlidingTiles, position: Position) -> SimpleNamespace:
    return record(env, tiles=position, gap=position.index(0))


# --- starts -----------------------------------------------------------------------------------------------------


def test_as_many_positions_can_be_solved_as_are_known() -> None:
    """Of 9! half can be, the farthest by 31 moves (Reinefeld 1993); of 4! half, the farthest by 6."""
    assert (len(distances(3)), max(distances(3).values())) == (181_440, 31)
    assert (len(distances(2)), max(distances(2).values())) == (12, 6)


def test_every_start_can_be_solved_in_at_most_as_many_moves_as_it_was_scrambled() -> None:
    for scrambles in (1, 3, 6, 13, 201):
        away = np.array([distances(3)[tuple(tiles)] for tiles in starts(100, scrambles=scrambles).tolist()])
        assert 1 <= away.min() <= away.max() <= scrambles
        assert (away % 2 == scrambles % 2).all()  # each move takes the gap to a cell of the other colour
        if scrambles <= 6:  # no circle is shorter than 12 moves, so a walk that never turns back is the shortest way
            assert (away == scrambles).all()
        if scrambles == 201:
            assert away.mean() == pytest.approx(np.mean([d for d in distances(3).values() if d % 2]), abs=1)
    for scrambles, expected in ((5, 5), (11, 1), (12, 1), (24, 1)):  # a walk that comes full circle goes one further
        tiles = starts(50, size=2, scrambles=scrambles).tolist()
        assert {distances(2)[tuple(each)] for each in tiles} == {expected}, scrambles


def test_varied_scrambles_are_as_often_one_as_any_other_number() -> None:
    tiles = starts(1200, scrambles=6, varied_scrambles=True)
    counts = np.bincount([distances(3)[tuple(each)] for each in tiles.tolist()])
    assert (counts[0], len(counts)) == (0, 7)
    assert_as_likely(counts[1:])


def test_scrambling_takes_every_way_but_back_equally_often() -> None:
    num_games = 2000
    found, counts = np.unique(starts(num_games, scrambles=3), axis=0, return_counts=True)
    # right to the edge, into the middle or on to the next corner; from there three ways, or one
    chance = {tiles: 0.0 for tiles, distance in distances(3).items() if distance == 3}
    walks = [(goal(3), goal(3), 1.0)]
    for _ in range(3):
        walks = [
            (new, old, share / len(ways))
            for old, before, share in walks
            for ways in [[new for new in neighbours(old, 3).values() if new != before]]
            for new in ways
        ]
    for tiles, _, share in walks:
        chance[tiles] += share
    expected = np.array([num_games * chance[tuple(tiles)] for tiles in found.tolist()])
    assert len(found) == len(chance) == 8
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


# --- play -------------------------------------------------------------------------------------------------------


def test_moves_and_masks_are_those_of_the_search_from_every_place_of_the_gap() -> None:
    env = SlidingTiles()
    for position in list(distances(3))[::9973]:
        ways = neighbours(position, 3)
        assert legal(env, at(env, position)) == sorted(ways)
        for way in range(4):
            s = at(env, position)
            env.step(s, way)
            expected = ways.get(way, position)
            assert (tuple(s.tiles.tolist()), s.gap) == (expected, expected.index(0))
            np.testing.assert_array_equal(observation(env, s), np.eye(9, dtype=np.int8)[s.tiles])


def test_the_shortest_way_is_paid_once_at_its_end() -> None:
    env = SlidingTiles()
    s = at(env, max(distances(3), key=lambda tiles: distances(3)[tiles]))
    for left in range(30, -1, -1):
        ways = neighbours(tuple(s.tiles.tolist()), 3)
        way = min(ways, key=lambda way: distances(3)[ways[way]])
        assert episode_stats(env, s)["solved"] == 0
        assert env.step(s, way) == ((1.0, True) if left == 0 else (0.0, False))
    assert episode_stats(env, s) == {"solved": 1, "right": 1}


def test_dense_rewards_add_up_to_the_cells_that_are_right() -> None:
    env = SlidingTiles(dense_reward=True)
    s, total = at(env, goal(3)), 9.0
    for way in np.random.default_rng(0).integers(4, size=200):
        total += env.step(s, int(way))[0]
        assert episode_stats(env, s)["right"] == (s.tiles == goal(3)).sum() / 9 == total / 9


def test_the_picture_as_text_shows_the_numbers_and_the_gap() -> None:
    env = SlidingTiles(size=4)
    position = (5, 1, 2, 4, 9, 0, 6, 3, 13, 10, 7, 8, 14, 15, 11, 12)
    assert env.ascii(at(env, position)).splitlines() == [" 5  1  2  4", " 9  .  6  3", "13 10  7  8", "14 15 11 12"]


def test_the_picture_has_a_tile_in_each_cell_but_the_gap_green_where_it_is_right() -> None:
    for size in (3, 10):
        env = SlidingTiles(size=size)
        picture = env.render(at(env, (2, 1, *goal(size)[2:])))
        side = 400 // size
        corners = picture[13 : 13 + size * side : side, 13 : 13 + size * side : side].reshape(size * size, 3)
        is_green = (corners == GREEN).all(axis=1)
        np.testing.assert_array_equal(is_green, [False, False, *[True] * (size * size - 3), False])
        assert picture.shape == (size * side + 20, size * side + 20, 3)
