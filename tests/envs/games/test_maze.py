"""Maze: every maze is fair and of the right family, moves obey the walls, and the numbers about it are true."""

from collections import Counter
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.envs.games.maze import Maze
from tests.helpers.playing import begun, changed, episode_stats, interpreted, legal, observation, record, restored

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}


def drawn_game(picture: str) -> tuple[Maze, SimpleNamespace]:
    """The maze of a picture as `ascii` draws it."""
    cells = np.array([row.split() for row in picture.split("\n")])
    env = Maze(rows=cells.shape[0], cols=cells.shape[1])
    ((row, col),), ((target_row, target_col),) = (np.argwhere(cells == symbol).tolist() for symbol in "@$")
    return env, record(env, walls=cells == "#", row=row, col=col, target_row=target_row, target_col=target_col)


def distances_from(walls: np.ndarray, start: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Steps from `start` to every cell within reach, ring by ring."""
    free = {(int(r), int(c)) for r, c in np.argwhere(walls == 0)}
    found, ring = {start: 0}, {start}
    while ring:
        steps = found[next(iter(ring))] + 1
        ring = {(r + dr, c + dc) for r, c in ring for dr, dc in MOVES.values()} & (free - found.keys())
        found |= dict.fromkeys(ring, steps)
    return found


SIZES = st.tuples(st.integers(1, 13), st.integers(1, 13)).filter(lambda size: size != (1, 1))


@settings(max_examples=60)
@given(SIZES, st.integers(0, 2**40))
def test_a_maze_is_a_tree_of_free_cells_with_walls_at_odd_places_and_moves_go_where_it_is_free(size, seed) -> None:
    env = Maze(rows=size[0], cols=size[1])
    s = begun(env, seed)
    free = s.walls == 0
    distances = distances_from(s.walls, (s.row, s.col))
    assert len(distances) == free.sum()  # all connected
    doors = (free[1:] & free[:-1]).sum() + (free[:, 1:] & free[:, :-1]).sum()
    assert doors == free.sum() - 1  # and without a loop: a tree
    assert free[::2, ::2].all()
    assert (s.walls[1::2, 1::2] == 1).all()
    assert set(np.unique(s.walls)) <= {0, 1}
    assert free[s.row, s.col]
    assert (s.row, s.col) != (s.target_row, s.target_col)
    assert s.shortest == distances[s.target_row, s.target_col]
    obs = observation(env, s)
    np.testing.assert_array_equal(obs["walls"], s.walls)
    assert (obs["agent"].tolist(), obs["target"].tolist()) == ([s.row, s.col], [s.target_row, s.target_col])
    start, allowed = (s.row, s.col), legal(env, s)
    for action, (down, right) in MOVES.items():
        changed(s, row=start[0], col=start[1], steps=0)
        env.step(s, action)
        beyond = (start[0] + down, start[1] + right)
        assert (s.row, s.col) == (beyond if beyond in distances else start)
        assert ((s.row, s.col) != start) == (action in allowed)
        assert np.squeeze(observation(env, s)["step_count"]) == 1


def test_each_pair_of_cells_is_as_likely() -> None:
    games = [begun(Maze(rows=1, cols=3), seed) for seed in range(1800)]
    pairs = Counter((s.col, s.target_col) for s in games)
    assert len(pairs) == 6
    assert sum((count - 300) ** 2 / 300 for count in pairs.values()) < 25.7  # chi squared, 5 degrees, p = 1e-4


@cache
def likely_mazes(height: int, width: int) -> Counter[frozenset[tuple[int, int]]]:
    """Each maze that recursive division can make, as its set of walls, with its probability."""
    if min(height, width) < 2:
        return Counter({frozenset(): 1.0})
    mazes: Counter = Counter()
    is_upright = width >= height
    short, long = sorted((height, width))
    splits = [(at, opening) for at in range(1, long, 2) for opening in range(0, short, 2)]
    for at, opening in splits:
        places = [i for i in range(short) if i != opening]
        wall = {(i, at) if is_upright else (at, i) for i in places}
        down, along = (0, at + 1) if is_upright else (at + 1, 0)
        first = likely_mazes(short, at) if is_upright else likely_mazes(at, short)
        second = likely_mazes(short, long - at - 1) if is_upright else likely_mazes(long - at - 1, short)
        for one, one_chance in first.items():
            for other, other_chance in second.items():
                moved = {(row + down, col + along) for row, col in other}
                mazes[frozenset(wall | one | moved)] += one_chance * other_chance / len(splits)
    return mazes


def test_mazes_come_as_often_as_recursive_division_makes_them() -> None:
    expected = likely_mazes(4, 6)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) == 56
    mazes = [begun(Maze(rows=4, cols=6), seed).walls for seed in range(1200)]
    seen = Counter(frozenset(map(tuple, np.argwhere(walls).tolist())) for walls in mazes)
    assert seen.keys() <= expected.keys()
    score = sum((seen[maze] - 1200 * chance) ** 2 / (1200 * chance) for maze, chance in expected.items())
    degrees = len(expected) - 1
    assert score < degrees + 5 * np.sqrt(2 * degrees)


def test_the_stack_of_rooms_holds_the_worst_maze_of_every_size() -> None:
    @cache
    def most_waiting(height: int, width: int) -> int:
        """The highest the stack can get while a room and all its parts are split."""
        if min(height, width) < 2:
            return 0
        short, long = sorted((height, width))
        most = 1
        for before in range(1, long, 2):
            waits = 1 if min(short, before) >= 2 else 0
            most = max(most, waits + most_waiting(short, long - before - 1), most_waiting(short, before))
        return most

    for rows in range(1, 31):
        for cols in range(1, 31):
            if (rows, cols) != (1, 1):
                assert most_waiting(rows, cols) <= Maze(rows=rows, cols=cols).state["rooms"][1][0], (rows, cols)


def test_the_target_pays_one_and_ends_the_episode_and_excess_compares_the_way_with_the_shortest() -> None:
    for way, excess in (((RIGHT, DOWN), 1.0), ((RIGHT, LEFT, DOWN, RIGHT, DOWN), 2.5), ((LEFT, RIGHT, DOWN), 1.5)):
        env, s = drawn_game("@ .\n# $")
        s.shortest = 2
        assert [env.step(s, action) for action in way] == [(0.0, False)] * (len(way) - 1) + [(1.0, True)], way
        assert episode_stats(env, s) == {"solved": 1.0, "excess": excess}, way


def test_an_episode_is_truncated_after_rows_times_cols_steps() -> None:
    env, s = drawn_game("@ . .\n# # .\n$ . .")
    assert env.max_episode_steps == 9
    pool, _ = interpreted(env)
    states = pool.states()
    for name in ("row", "col", "target_row", "target_col", "walls"):
        states[name] = getattr(s, name)
    states["shortest"] = 6
    restored(pool, states)
    for step in range(1, 10):
        out = pool.step(np.array([RIGHT if step % 2 else LEFT]))
        assert not out.terminated[0]
        assert out.truncated[0] == (step == 9)
    episodes = pool.episodes()
    assert (episodes.lengths.tolist(), episodes.returns.tolist()) == ([9], [0.0])
    assert {name: values.tolist() for name, values in episodes.stats.items()} == {"solved": [0.0], "excess": [9 / 6]}


def test_the_pictures_show_the_maze() -> None:
    env, s = drawn_game(". @ .\n# # .\n$ . .")
    assert env.ascii(s) == ". @ .\n# # .\n$ . ."
    picture = env.render(s)
    assert picture.dtype == np.uint8
    cell = picture.shape[0] // 3
    colors = [tuple(picture[cell // 2, cell * i + cell // 2]) for i in range(3)]
    assert colors[0] == colors[2] != colors[1]
    assert tuple(picture[cell + cell // 2, cell // 2]) not in colors
