"""2048: slides and merges are those of a plain list, new tiles are fair, and the game ends when nothing moves."""

from collections import Counter
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scramjet.envs import load_env
from scramjet.envs.puzzles.game_2048 import DOWN, LEFT, RIGHT, UP, Game2048, add_tile, can_slide, slide
from tests.helpers.playing import begun, episode_stats, legal, observation, record

TURNS_TO_LEFT = {LEFT: 0, UP: 1, RIGHT: 2, DOWN: 3}
"""Quarter turns to the left after which a slide goes to the left."""

boards = st.integers(2, 5).flatmap(
    lambda size: st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 9]), min_size=size**2, max_size=size**2)
)


def as_board(tiles: list[int]) -> np.ndarray:
    size = round(len(tiles) ** 0.5)
    return np.array(tiles, np.int8).reshape(size, size)


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


@given(boards, st.integers(0, 3), st.integers(0, 2**40))
def test_a_slide_is_that_of_another_implementation_and_a_step_adds_one_tile_or_changes_nothing(
    tiles, action, seed
) -> None:
    board = as_board(tiles)
    env, before = Game2048(size=len(board)), board.copy()
    expected, total = slid(board, action)
    is_allowed = not np.array_equal(expected, board)
    assert can_slide(board, action) == is_allowed
    assert slide(board, action) == total
    np.testing.assert_array_equal(board, expected)
    for symmetry in env.symmetries:
        turned = np.ascontiguousarray(symmetry.observe(before))
        assert slide(turned, symmetry.actions[action]) == total
        np.testing.assert_array_equal(turned, symmetry.observe(expected), err_msg=symmetry.name)
    s = record(env, seed, board=before)
    reward, is_over = env.step(s, action)
    assert reward == total
    new = np.argwhere(s.board != expected)
    assert len(new) == is_allowed
    for cell in map(tuple, new):
        assert expected[cell] == 0
        assert s.board[cell] in (1, 2)
    moves = [other for other in range(4) if not np.array_equal(slid(s.board, other)[0], s.board)]
    assert is_over == (not moves)
    assert legal(env, s) == (moves or [0, 1, 2, 3])


def test_new_tiles_fall_on_every_empty_cell_alike_and_one_in_ten_is_a_4() -> None:
    board, count = as_board([0, 5, 0, 0]), 3000
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(count):
        s = record(Game2048(size=2), seed, board=board)
        add_tile(s)
        (cell,) = np.flatnonzero(s.board != board)
        seen[int(cell), int(s.board.ravel()[cell])] += 1
    expected = {(cell, tile): count / 3 * (0.9 if tile == 1 else 0.1) for cell in (0, 2, 3) for tile in (1, 2)}
    assert seen.keys() == expected.keys()
    score = sum((seen[key] - mean) ** 2 / mean for key, mean in expected.items())
    assert score < 25.7  # chi squared, 5 degrees, p = 1e-4


def test_a_game_begins_with_one_tile_and_a_plane_is_seen_for_every_tile() -> None:
    env, random, tiles = Game2048(size=3), np.random.default_rng(5), set()
    for seed in range(20):
        s, is_over = begun(env, seed), False
        (tile,) = s.board[s.board > 0].tolist()
        tiles.add(tile)
        while not is_over:
            np.testing.assert_array_equal(observation(env, s), s.board == np.arange(1, 11)[:, None, None])
            _, is_over = env.step(s, int(random.choice(legal(env, s))))
    assert tiles == {1, 2}


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


def test_the_stats_tell_the_highest_tile_and_whether_it_is_2048() -> None:
    env = Game2048()
    for exponent in (1, 10, 11):
        s = record(env, board=as_board([0, exponent, 1, *[0] * 13]))
        assert episode_stats(env, s) == {"highest_tile": 2.0**exponent, "reached_2048": float(exponent == 11)}


def test_it_is_found_by_jumanjis_name_and_has_all_symmetries_of_a_square() -> None:
    assert isinstance(load_env("Game2048-v1"), Game2048)
    assert len({symmetry.name for symmetry in Game2048().symmetries}) == 7


def test_the_pictures_show_the_tiles() -> None:
    env = Game2048(size=2)
    s = record(env, board=as_board([0, 1, 12, 4]))
    assert env.ascii(s) == "   .    2\n4096   16"
    corners = [tuple(env.render(s)[row, column]) for row in (12, 96) for column in (12, 96)]
    assert len(set(corners)) == 4
