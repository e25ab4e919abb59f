"""Maze: every maze is fair and of the right family, moves obey the walls, and the numbers about it are true."""

from __future__ import annotations

from collections import Counter
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.engine.layout import state_dtype
from scramjet.engine.worlds.interpreted import Record
from scramjet.envs.games.maze import Maze
from scramjet.errors import WorldError

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}

sizes = st.tuples(st.integers(1, 13), st.integers(1, 13)).filter(lambda size: size != (1, 1))
seeds = st.integers(0, 2**40)


def empty_record(env: Maze, seed: int = 0) -> Record:
    states = np.zeros(1, state_dtype(env))
    states["_seed"] = seed
    return Record(states[0], "Maze")


def new_game(env: Maze, seed: int) -> Record:
    s = empty_record(env, seed)
    env.reset(s)
    return s


def drawn_game(picture: str) -> tuple[Maze, Record]:
    """The maze of a picture as `ascii` draws it."""
    cells = np.array([row.split() for row in picture.split("\n")])
    env = Maze(rows=cells.shape[0], cols=cells.shape[1])
    s = empty_record(env)
    s.walls[:] = cells == "#"
    s.row, s.col = (int(i) for i in np.argwhere(cells == "@")[0])
    s.target_row, s.target_col = (int(i) for i in np.argwhere(cells == "$")[0])
    return env, s


def distances_from(walls: np.ndarray, start: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Steps from `start` to every cell within reach, ring by ring."""
    free = {(int(r), int(c)) for r, c in np.argwhere(walls == 0)}
    found, ring = {start: 0}, {start}
    while ring:
        steps = found[next(iter(ring))] + 1
        ring = {(r + dr, c + dc) for r, c in ring for dr, dc in MOVES.values()} & (free - found.keys())
        found |= dict.fromkeys(ring, steps)
    return found


def legal(env: Maze, s: Record) -> list[bool]:
    mask = np.ones(4, np.bool_)
    env.mask(s, mask)
    return mask.tolist()


@settings(max_examples=80)
@given(sizes, seeds)
def test_one_path_leads_from_any_free_cell_to_any_other(size, seed) -> None:
    s = new_game(Maze(rows=size[0], cols=size[1]), seed)
    free = s.walls == 0
    assert len(distances_from(s.walls, (s.row, s.col))) == free.sum()  # all connected
    doors = (free[1:] & free[:-1]).sum() + (free[:, 1:] & free[:, :-1]).sum()
    assert doors == free.sum() - 1  # and without a loop: a tree


@settings(max_examples=50)
@given(sizes, seeds)
def test_walls_stand_at_odd_places_and_fill_every_crossing(size, seed) -> None:
    s = new_game(Maze(rows=size[0], cols=size[1]), seed)
    assert not s.walls[::2, ::2].any()
    assert s.walls[1::2, 1::2].all()
    assert set(np.unique(s.walls)) <= {0, 1}


@settings(max_examples=50)
@given(sizes, seeds)
def test_agent_and_target_are_two_free_cells(size, seed) -> None:
    s = new_game(Maze(rows=size[0], cols=size[1]), seed)
    assert (s.row, s.col) != (s.target_row, s.target_col)
    assert s.walls[s.row, s.col] == 0
    assert s.walls[s.target_row, s.target_col] == 0


@settings(max_examples=50)
@given(sizes, seeds)
def test_the_shortest_path_is_that_of_another_search(size, seed) -> None:
    s = new_game(Maze(rows=size[0], cols=size[1]), seed)
    assert s.shortest == distances_from(s.walls, (s.row, s.col))[s.target_row, s.target_col]


def test_each_pair_of_cells_is_as_likely() -> None:
    env = Maze(rows=1, cols=3)
    games = [new_game(env, seed) for seed in range(1800)]
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
    env = Maze(rows=4, cols=6)
    walls = [new_game(env, seed).walls for seed in range(1200)]
    seen = Counter(frozenset((int(row), int(col)) for row, col in np.argwhere(maze)) for maze in walls)
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


def test_a_move_goes_where_it_says_and_into_a_wall_or_out_of_the_maze_it_stays() -> None:
    env, s = drawn_game(". . .\n. @ #\n# . $")
    assert legal(env, s) == [True, False, True, True]
    assert env.step(s, RIGHT) == (0.0, False)
    assert (s.row, s.col) == (1, 1)
    for action, place in [(UP, (0, 1)), (UP, (0, 1)), (LEFT, (0, 0)), (LEFT, (0, 0)), (DOWN, (1, 0)), (DOWN, (1, 0))]:
        assert env.step(s, action) == (0.0, False)
        assert (s.row, s.col) == place
    assert s.steps == 7
    assert legal(env, s) == [True, True, False, False]


def test_reaching_the_target_pays_one_and_ends_the_episode() -> None:
    env, s = drawn_game("@ .\n# $")
    assert env.step(s, RIGHT) == (0.0, False)
    assert env.step(s, DOWN) == (1.0, True)


@settings(max_examples=25)
@given(sizes, seeds)
def test_the_mask_allows_just_the_moves_that_move(size, seed) -> None:
    env = Maze(rows=size[0], cols=size[1])
    s = new_game(env, seed)
    start = s.row, s.col
    for action, allowed in enumerate(legal(env, s)):
        s.row, s.col = start
        env.step(s, action)
        assert ((s.row, s.col) != start) == allowed


def test_what_is_seen_is_the_maze_both_cells_and_the_steps_taken() -> None:
    pool = NativePool(Maze(rows=4, cols=7), 3, backend="interpreted")
    out, random = pool.reset(5), np.random.default_rng(5)
    for _ in range(40):
        for i in range(3):
            s, obs = pool.record(i), {name: values[i] for name, values in out.obs.items()}
            np.testing.assert_array_equal(obs["walls"], s.walls)
            assert obs["agent"].tolist() == [s.row, s.col]
            assert obs["target"].tolist() == [s.target_row, s.target_col]
            assert int(np.squeeze(obs["step_count"])) == s.steps
        out = pool.step(np.array([random.choice(np.flatnonzero(row)) for row in out.mask]))
    assert pool.episodes().num_ended > 0


def test_an_episode_is_truncated_after_rows_times_cols_steps() -> None:
    env, s = drawn_game("@ . .\n# # .\n$ . .")
    assert env.max_episode_steps == 9
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(0)
    snapshot = pool.snapshot()
    states = snapshot["states"].view(state_dtype(env))
    for name in ("row", "col", "target_row", "target_col", "walls"):
        states[name] = getattr(s, name)
    states["shortest"] = 6
    pool.restore(snapshot)
    for step in range(1, 10):
        out = pool.step(np.array([RIGHT if step % 2 else LEFT]))
        assert not out.terminated[0]
        assert out.truncated[0] == (step == 9)
    episodes = pool.episodes()
    assert (episodes.lengths.tolist(), episodes.returns.tolist()) == ([9], [0.0])
    assert episodes.stats["solved"].tolist() == [0.0]
    assert episodes.stats["excess"].tolist() == [9 / 6]


@pytest.mark.parametrize(
    ("way", "excess"), [((RIGHT, DOWN), 1.0), ((RIGHT, LEFT, DOWN, RIGHT, DOWN), 2.5), ((LEFT, RIGHT, DOWN), 1.5)]
)
def test_excess_compares_the_way_taken_with_the_shortest(way, excess) -> None:
    env, s = drawn_game("@ .\n# $")
    s.shortest = 2
    for action in way:
        env.step(s, action)
    stats = SimpleNamespace()
    env.stats(s, stats)
    assert (stats.solved, stats.excess) == (1.0, excess)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rows": 0}, "rows=0 must be at least 1"),
        ({"cols": -3}, "cols=-3 must be at least 1"),
        ({"rows": 1, "cols": 1}, "leave no cell for the target; make rows or cols at least 2"),
    ],
)
def test_a_maze_without_room_is_refused(parameters, message) -> None:
    with pytest.raises((ValueError, WorldError), match=message):
        Maze(**parameters)


def test_the_pictures_show_the_maze() -> None:
    env, s = drawn_game(". @ .\n# # .\n$ . .")
    assert env.ascii(s) == ". @ .\n# # .\n$ . ."
    picture = env.render(s)
    assert picture.dtype == np.uint8
    cell = picture.shape[0] // 3
    colors = [tuple(picture[cell // 2, cell * i + cell // 2]) for i in range(3)]
    assert colors[0] == colors[2] != colors[1]
    assert tuple(picture[cell + cell // 2, cell // 2]) not in colors
