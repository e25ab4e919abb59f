"""2048: slides and merges are those of a plain list, new tiles are fair, and the game ends when nothing moves."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scramjet.engine import NativePool
from scramjet.engine.layout import state_dtype
from scramjet.engine.random_play import random_actions
from scramjet.engine.worlds.interpreted import Record
from scramjet.envs import load_env
from scramjet.envs.puzzles.game_2048 import DOWN, LEFT, RIGHT, UP, Game2048, add_tile, can_slide, slide
from scramjet.errors import WorldError

TURNS_TO_LEFT = {LEFT: 0, UP: 1, RIGHT: 2, DOWN: 3}
"""Quarter turns to the left after which a slide goes to the left."""

boards = st.integers(2, 5).flatmap(
    lambda size: st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 9]), min_size=size**2, max_size=size**2)
)


def as_board(tiles: list[int]) -> np.ndarray:
    size = round(len(tiles) ** 0.5)
    return np.array(tiles, np.int8).reshape(size, size)


def new_game(env: Game2048, board: np.ndarray | None = None, seed: int = 0) -> Record:
    states = np.zeros(1, state_dtype(env))
    states["_seed"] = seed
    if board is not None:
        states["board"] = board
    return Record(states[0], "Game2048")


def merged_line(tiles: list[int]) -> tuple[list[int], int]:
    """A line after a slide to its beginning, and the sum of the tiles that merging made."""
    waiting, done, total = [tile for tile in tiles if tile], [], 0
    while waiting:
        tile = waiting.pop(0)
        if waiting and waiting[0] == tile:
            waiting.pop(0)
            tile += 1
            total += 2**tile
        done.append(tile)
    return done + [0] * (len(tiles) - len(done)), total


def slid(board: np.ndarray, action: int) -> tuple[np.ndarray, int]:
    """The board after a slide, by turning it until the slide goes to the left."""
    turned = np.rot90(board, TURNS_TO_LEFT[action])
    lines = [merged_line(line.tolist()) for line in turned]
    after = np.array([line for line, _ in lines], np.int8)
    return np.rot90(after, -TURNS_TO_LEFT[action]), sum(total for _, total in lines)


@given(boards, st.integers(0, 3))
def test_a_slide_is_that_of_another_implementation(tiles, action) -> None:
    board = as_board(tiles)
    expected, total = slid(board, action)
    is_allowed = can_slide(board, action)
    assert slide(board, action) == total
    np.testing.assert_array_equal(board, expected)
    assert is_allowed == (not np.array_equal(expected, as_board(tiles)))


@pytest.mark.parametrize(
    ("before", "after", "reward"),
    [
        ([1, 1, 1, 1], [2, 2, 0, 0], 8),
        ([1, 1, 2, 0], [2, 2, 0, 0], 4),
        ([0, 1, 1, 1], [2, 1, 0, 0], 4),
        ([3, 0, 0, 3], [4, 0, 0, 0], 16),
        ([1, 2, 1, 2], [1, 2, 1, 2], 0),
    ],
)
def test_equal_tiles_merge_once_beginning_at_the_side_they_slide_to(before, after, reward) -> None:
    board = as_board([*before, *[0] * 12])
    assert slide(board, LEFT) == reward
    assert board[0].tolist() == after


@given(boards, st.integers(0, 3), st.integers(0, 2**40))
def test_a_step_slides_and_adds_one_tile_or_changes_nothing(tiles, action, seed) -> None:
    board = as_board(tiles)
    env = Game2048(size=len(board))
    s = new_game(env, board, seed)
    reward, is_over = env.step(s, action)
    expected, total = slid(board, action)
    assert reward == total
    new = np.argwhere(s.board != expected)
    if np.array_equal(expected, board):
        assert len(new) == 0
    else:
        assert len(new) == 1
        assert expected[tuple(new[0])] == 0
        assert s.board[tuple(new[0])] in (1, 2)
    moves = [not np.array_equal(slid(s.board, other)[0], s.board) for other in range(4)]
    assert is_over == (not any(moves))
    mask = np.ones(4, np.bool_)
    env.mask(s, mask)
    assert mask.tolist() == (moves if any(moves) else [True] * 4)


def test_new_tiles_fall_on_every_empty_cell_alike_and_one_in_ten_is_a_4() -> None:
    board, count = as_board([0, 5, 0, 0]), 3000
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(count):
        s = new_game(Game2048(size=2), board, seed)
        add_tile(s)
        (cell,) = np.flatnonzero(s.board != board)
        seen[int(cell), int(s.board.ravel()[cell])] += 1
    expected = {(cell, tile): count / 3 * (0.9 if tile == 1 else 0.1) for cell in (0, 2, 3) for tile in (1, 2)}
    assert seen.keys() == expected.keys()
    score = sum((seen[key] - mean) ** 2 / mean for key, mean in expected.items())
    assert score < 25.7  # chi squared, 5 degrees, p = 1e-4


def test_a_game_begins_with_one_tile() -> None:
    pool = NativePool(Game2048(), 50, num_threads=1)
    pool.reset(3)
    boards = pool.states()["board"]
    assert ((boards > 0).sum(axis=(1, 2)) == 1).all()
    assert set(np.unique(boards)) == {0, 1, 2}


def test_no_game_on_2_by_2_gets_beyond_the_highest_tile_and_some_get_there() -> None:
    """All boards that any game can reach."""
    waiting = [tuple(int(tile) * (cell == i) for cell in range(4)) for i in range(4) for tile in (1, 2)]
    reached = set(waiting)
    while waiting:
        board = as_board([*waiting.pop()])
        for action in range(4):
            after = slid(board, action)[0].ravel()
            if np.array_equal(after, board.ravel()):
                continue
            for cell, tile in product(np.flatnonzero(after == 0), (1, 2)):
                after[cell] = tile
                found = tuple(after.tolist())
                after[cell] = 0
                if found not in reached:
                    reached.add(found)
                    waiting.append(found)
    assert max(map(max, reached)) == Game2048(size=2).highest == 5


def test_what_is_seen_is_a_plane_for_every_tile() -> None:
    pool = NativePool(Game2048(size=3), 4, backend="interpreted")
    out, random = pool.reset(5), np.random.default_rng(5)
    for _ in range(60):
        boards = pool.states()["board"]
        assert out.obs.shape == (4, 10, 3, 3)
        np.testing.assert_array_equal(out.obs, boards[:, None] == np.arange(1, 11)[:, None, None])
        out = pool.step(random_actions(pool, out, random))
    assert pool.episodes().num_ended > 0


@given(boards, st.integers(0, 3))
def test_a_slide_of_the_turned_board_is_the_turned_slide(tiles, action) -> None:
    board = as_board(tiles)
    env = Game2048(size=len(board))
    assert len({symmetry.name for symmetry in env.symmetries}) == 7
    after = board.copy()
    total = slide(after, action)
    for symmetry in env.symmetries:
        turned = np.ascontiguousarray(symmetry.observe(board))
        assert slide(turned, symmetry.actions[action]) == total
        np.testing.assert_array_equal(turned, symmetry.observe(after), err_msg=symmetry.name)


@pytest.mark.parametrize(("exponent", "tile", "won"), [(1, 2.0, 0.0), (10, 1024.0, 0.0), (11, 2048.0, 1.0)])
def test_the_stats_tell_the_highest_tile_and_whether_it_is_2048(exponent, tile, won) -> None:
    stats = SimpleNamespace()
    env = Game2048()
    env.stats(new_game(env, as_board([0, exponent, 1, *[0] * 13])), stats)
    assert (stats.highest_tile, stats.reached_2048) == (tile, won)


def test_it_is_found_by_jumanjis_name() -> None:
    assert isinstance(load_env("Game2048-v1"), Game2048)


@pytest.mark.parametrize("size", [1, 7])
def test_a_board_too_small_or_large_is_refused(size) -> None:
    with pytest.raises((ValueError, WorldError), match=f"size={size} must be from 2 to 6"):
        Game2048(size=size)


def test_the_pictures_show_the_tiles() -> None:
    env = Game2048(size=2)
    s = new_game(env, as_board([0, 1, 12, 4]))
    assert env.ascii(s) == "   .    2\n4096   16"
    corners = [tuple(env.render(s)[row, column]) for row in (12, 96) for column in (12, 96)]
    assert len(set(corners)) == 4
