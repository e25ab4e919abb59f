"""Pictures: shapes cover the area that geometry says, numbers differ, and clicks mean what changes there."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.arena.game import Game
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Env
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.drawing import Canvas, cell_at, direction_to, draw_number
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.maze import Maze
from scramjet.envs.games.othello import Othello
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.envs.puzzles.game_2048 import Game2048
from scramjet.envs.puzzles.sliding_tiles import SlidingTiles
from scramjet.envs.puzzles.sokoban import Sokoban

BLACK, WHITE = (0, 0, 0), (255, 255, 255)
TRIANGLE = [(10.2, 5.1), (40.7, 12.9), (25.3, 50.4)]


def coverage(points: list[tuple[float, float]], inset: float = 0.0, size: int = 60) -> np.ndarray:
    """A white polygon on black, each pixel in 0 .. 1."""
    canvas = Canvas(size, size, BLACK)
    canvas.polygon(points, WHITE, inset)
    return canvas.pixels[..., 0] / 255


@settings(max_examples=50)
@given(st.integers(3, 9), st.floats(8, 25), st.floats(0, 7))
def test_a_polygon_covers_its_area_and_an_inset_one_less_by_its_rim(corners, radius, turn) -> None:
    angle = math.pi / corners
    ways = [turn + 2 * angle * k for k in range(corners)]
    points = [(30.3 + radius * math.cos(way), 29.6 + radius * math.sin(way)) for way in ways]
    for inset in (0, 2):
        inner_radius = radius - inset / math.cos(angle)  # its edges lie so many pixels further in
        area = corners * inner_radius**2 * math.sin(angle) * math.cos(angle)
        assert coverage(points, inset).sum() == pytest.approx(area, abs=3), inset


def test_an_upright_polygon_is_a_rectangle() -> None:
    canvas = Canvas(60, 60, BLACK)
    canvas.rectangle(5, 8, 21, 17, WHITE)
    polygon = coverage([(5, 8), (21, 8), (21, 17), (5, 17)])
    np.testing.assert_array_equal(polygon, canvas.pixels[..., 0] / 255)


def test_the_sense_of_the_corners_does_not_matter_and_one_given_twice_counts_once() -> None:
    np.testing.assert_array_equal(coverage(TRIANGLE), coverage(TRIANGLE[::-1]))
    np.testing.assert_array_equal(coverage(TRIANGLE), coverage([*TRIANGLE, TRIANGLE[-1]]))


def test_an_edge_is_shaded_by_the_share_of_the_pixel_inside() -> None:
    shape = coverage([(10, 10), (20.25, 10), (20.25, 20), (10, 20)])
    assert shape[15, 19:22].tolist() == [1, pytest.approx(0.25, abs=0.01), 0]


def test_what_lies_outside_the_canvas_or_has_no_area_is_left_out() -> None:
    assert coverage([(-40, -40), (200, -40), (200, 200), (-40, 200)]).min() == 1
    assert coverage([(70, 70), (90, 70), (90, 90)]).max() == 0
    assert coverage([(-30, 10), (30, 10), (30, 20), (-30, 20)]).sum() == pytest.approx(300)
    assert coverage([(10, 10), (40, 40), (10, 10)]).max() == 0
    assert coverage([(10, 10), (10, 10), (10, 10)]).max() == 0


def ink(number: int, height: float = 20) -> np.ndarray:
    """Where a number darkens a white picture, [40, 100]."""
    canvas = Canvas(100, 40, WHITE)
    draw_number(canvas, (50, 20), height, number, BLACK)
    return canvas.pixels[..., 0] < 128


def test_every_digit_looks_different() -> None:
    shapes = [ink(digit) for digit in range(10)]
    for i in range(10):
        for k in range(i):
            assert (shapes[i] != shapes[k]).sum() > 10, (i, k)


def test_a_number_stays_around_its_center_and_is_as_wide_as_its_digits() -> None:
    stroke = 0.15 * 20
    for number in (*range(10), 16, 2048):
        rows, columns = np.nonzero(ink(number))
        assert 10 - stroke <= rows.min() <= rows.max() <= 30 + stroke, number
        assert np.ptp(rows) >= 18, number
        width = 20 * (0.6 * len(str(number)) + 0.24 * (len(str(number)) - 1))
        assert columns.min() >= 50 - width / 2 - stroke, number
        assert columns.max() <= 50 + width / 2 + stroke, number
    small, large = (np.ptp(np.nonzero(ink(80, height))[1]) for height in (12, 24))
    assert large == pytest.approx(2 * small, abs=3)


# --- clicks -----------------------------------------------------------------------------------------------------

BOARDS = [ConnectFour(), ConnectFour(rows=4, cols=9), TicTacToe(), Othello(size=6), SlidingTiles(size=5)]
STEPS = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}


def a_game(env: Env, num_moves: int, seed: int = 3) -> Game:
    game = Game(NativePool(env, 1, backend="interpreted"))
    game.begin([None] * game.pool.num_players, seed)
    random = np.random.default_rng(seed)
    for _ in range(num_moves):
        legal = game.legal_moves()
        game.move(legal[int(random.integers(len(legal)))].number)
    return game


def test_every_legal_move_has_a_place_and_changes_the_picture_there_and_the_rim_means_nothing() -> None:
    for env in BOARDS:
        for num_moves in (0, 3) if isinstance(env, TicTacToe) else (3,):
            for number in [move.number for move in a_game(env, num_moves).legal_moves()]:
                where = f"{env!r}, move {number} after {num_moves}"
                game = a_game(env, num_moves)
                (place,) = [place for place in game.places() if place.number == number]
                x, y = (place.left + place.right) / 2, (place.top + place.bottom) / 2
                assert game.move_at(x, y) == game.moves[number], where
                before = game.picture()
                game.move(number)
                changed = (game.picture() != before).any(2)
                height, width = changed.shape
                inside = np.s_[int(place.top * height) : int(place.bottom * height) + 2]
                across = np.s_[int(place.left * width) : int(place.right * width) + 2]
                assert changed[inside, across].any(), where
                if isinstance(env, ConnectFour | TicTacToe):  # where a move changes nothing else
                    assert changed.sum() == changed[inside, across].sum(), where
        game = a_game(env, 1)
        assert {game.move_at(*rim) for rim in ((0.0, 0.5), (0.005, 0.005), (0.999, 0.5), (0.999, 0.999))} == {None}


def player_cell(env: Any, game: Game) -> tuple[int, int]:
    s = game.pool.record(0)
    return int(s.row), int(s.col if isinstance(env, Maze) else s.column)


def test_a_click_beside_the_player_leads_there() -> None:
    for env in (Maze(), Maze(rows=6, cols=11), Sokoban(), Sokoban(rows=7, cols=10)):
        for seed in range(2):
            for move in a_game(env, 0, seed).legal_moves():
                game = a_game(env, 0, seed)
                row, column = player_cell(env, game)
                down, right = STEPS[move.name]
                assert game.move_at((column + right + 0.5) / env.cols, (row + down + 0.5) / env.rows) == move
                assert game.move_at((column + 0.5) / env.cols, (row + 0.5) / env.rows) is None
                game.move(move.number)
                assert player_cell(env, game) == (row + down, column + right), (env, move)


def test_tiles_of_2048_slide_to_the_side_that_is_clicked() -> None:
    game = a_game(Game2048(), 0)
    for x, y, name in ((0.5, 0.1, "up"), (0.9, 0.4, "right"), (0.6, 0.8, "down"), (0, 0.3, "left")):
        found = game.move_at(x, y)
        assert found is not None
        assert found.name == name


def test_worlds_that_do_not_say_where_actions_lie_have_no_places() -> None:
    game = a_game(CartPole(), 0)
    assert (game.places(), game.move_at(0.5, 0.5)) == ([], None)


def test_cells_are_found_inside_the_rim_and_directions_go_along_the_longer_way() -> None:
    clicks = {(0.0, 0.0): None, (0.26, 0.26): (0, 0), (0.74, 0.3): (0, 1), (0.49, 0.7): (1, 0), (0.76, 0.5): None}
    for (x, y), cell in clicks.items():
        assert cell_at(x, y, rows=2, columns=2, rim=1.0) == cell, (x, y)
    assert [direction_to(*way) for way in ((0.1, -1), (2, 1), (-1, 3), (-1, 0.5))] == [0, 1, 2, 3]


def test_a_world_without_text_of_its_own_shows_its_fields_with_short_numbers():
    class Plain(Env):
        state = {"at": np.float64, "turn": np.int32, "speed": (np.float32, (2,)), "board": (np.int8, (2, 2))}

    fields = {"at": 0.123456789, "turn": np.int32(7), "speed": np.float32([1e-9, 1 / 3]), "board": np.eye(2, dtype=int)}
    text = "at: 0.1235\nturn: 7\nspeed: [0.     0.3333]\nboard:\n[[1 0]\n [0 1]]"
    assert Plain().ascii(SimpleNamespace(**fields)) == text
