"""The turns and mirrors that worlds declare: a move on the turned board leads to the turned position."""

from typing import Any

import numpy as np

from scramjet.engine.actions import random_actions
from scramjet.envs import Env, Symmetry
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.othello import Othello
from scramjet.envs.games.square_board import cell_names, square_symmetries
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.envs.puzzles.rubiks_cube import RubiksCube
from scramjet.envs.puzzles.sliding_tiles import SlidingTiles
from scramjet.envs.puzzles.sokoban import Sokoban
from scramjet.policies.symmetries import tables_of_world
from tests.helpers.playing import interpreted, restored

WORLDS = [  # with how many symmetries they have, the identity among them
    (TicTacToe(opening_plies=8), 8),
    (Othello(size=6, opening_plies=12), 8),
    (ConnectFour(rows=4, cols=5, opening_plies=9), 2),
    (SlidingTiles(size=4, scrambles=60), 2),
    (Sokoban(rows=7, cols=7, boxes=2, pulls=3), 8),
    (Sokoban(rows=6, cols=8, boxes=2, pulls=3), 4),
    (RubiksCube(), 48),
]


def turned(env: Env, states: np.ndarray, obs: np.ndarray, symmetry: Symmetry) -> np.ndarray:
    """The records of the turned positions; `obs` is what is seen of the given ones."""
    after, seen = states.copy(), symmetry.observe(obs)
    if isinstance(env, RubiksCube):
        after["cube"] = seen.argmax(axis=-1)
    elif isinstance(env, SlidingTiles):
        after["tiles"] = seen.argmax(axis=-1)
        after["gap"] = after["tiles"].argmin(axis=1)
    elif isinstance(env, Sokoban):
        after["grid"] = symmetry.observe(states["grid"])
        player = np.argwhere(seen[:, 3])
        after["row"], after["column"] = player[:, 1], player[:, 2]
    else:
        after["pieces"] = symmetry.observe(states["pieces"])
        if isinstance(env, ConnectFour):
            after["heights"] = after["pieces"].sum(axis=(1, 2))
    return after


def test_a_move_on_the_turned_board_leads_to_the_turned_position() -> None:
    for env, count in WORLDS:
        pool, out = interpreted(env, 12)
        states, obs, mask = pool.states(), out.obs.copy(), out.mask.copy()
        actions = random_actions(pool, out, np.random.default_rng(0))
        _, after = pool.simulate(states, actions)
        expected: dict[str, Any] = {
            name: getattr(after, name).copy() for name in ("obs", "mask", "reward", "terminated")
        }
        names = {symmetry.name for symmetry in env.symmetries}
        for symmetry in env.symmetries:
            where, places = f"{env}: {symmetry.name}", np.asarray(symmetry.actions)
            begin = turned(env, states, obs, symmetry)
            _, got = pool.simulate(begin, places[actions])
            np.testing.assert_array_equal(got.obs, symmetry.observe(expected["obs"]), err_msg=where)
            np.testing.assert_array_equal(got.obs[0], symmetry.observe(expected["obs"][0]), err_msg=where)
            np.testing.assert_array_equal(got.reward, expected["reward"], err_msg=where)
            np.testing.assert_array_equal(got.terminated, expected["terminated"], err_msg=where)
            if mask.size:
                np.testing.assert_array_equal(got.mask[:, places], expected["mask"], err_msg=where)
                np.testing.assert_array_equal(restored(pool, begin).mask[:, places], mask, err_msg=where)
        tables = tables_of_world(env, env.observation_space, env.action_space)
        assert tables.count == count, env
        assert len(names) == len(env.symmetries)
        assert len(np.unique(tables.action_sources.numpy(), axis=0)) == count, env


def test_a_solved_puzzle_stays_solved_however_it_is_turned() -> None:
    for env, solved in (
        (SlidingTiles(size=4), np.eye(16)[[*range(1, 16), 0]]),
        (RubiksCube(), np.eye(6)[np.repeat(np.arange(6), 9)]),
    ):
        for symmetry in env.symmetries:
            np.testing.assert_array_equal(symmetry.observe(solved), solved, err_msg=f"{env}: {symmetry.name}")


def test_the_symmetries_of_a_square_are_all_eight_but_the_identity() -> None:
    board = np.arange(16).reshape(1, 4, 4)
    seen = {symmetry.observe(board).tobytes() for symmetry in square_symmetries(4)}
    transposed = board.transpose(0, 2, 1)
    assert seen | {board.tobytes()} == {
        kind[:, ::down, ::right].tobytes() for kind in (board, transposed) for down in (1, -1) for right in (1, -1)
    }
    assert len(seen) == 7


def test_cells_are_named_by_column_and_row_and_actions_beside_them_stay_what_they_are() -> None:
    names = cell_names(8)
    assert (names[0], names[1], names[8], names[63]) == ("a1", "b1", "a2", "h8")
    for symmetry in square_symmetries(4, 1):
        assert sorted(symmetry.actions) == list(range(17))
        assert symmetry.actions[16] == 16
