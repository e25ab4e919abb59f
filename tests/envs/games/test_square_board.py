"""The turns and mirrors of a square board: the games that declare them stay the same under each."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.envs.games.square_board import cell_names, square_symmetries

GAMES = [("tic_tac_toe", {"opening_plies": 8}), ("othello", {"size": 6, "opening_plies": 12})]


@pytest.mark.parametrize(("name", "parameters"), GAMES)
def test_a_move_on_the_turned_board_leads_to_the_turned_position(name, parameters) -> None:
    env = load_env(name, **parameters)
    pool = NativePool(env, 60, backend="interpreted")
    out = pool.reset(0)
    states, actions = pool.states(), np.array([np.flatnonzero(legal)[-1] for legal in out.mask])
    _, after = pool.simulate(states, actions)
    assert len({symmetry.name for symmetry in env.symmetries}) == 7
    for symmetry in env.symmetries:
        turned = states.copy()
        turned["pieces"] = symmetry.observe(states["pieces"])
        places = np.asarray(symmetry.actions)
        _, got = pool.simulate(turned, places[actions])
        np.testing.assert_array_equal(got.obs, symmetry.observe(after.obs), err_msg=symmetry.name)
        np.testing.assert_array_equal(got.mask[:, places], after.mask, err_msg=symmetry.name)
        np.testing.assert_array_equal(got.reward, after.reward)
        np.testing.assert_array_equal(got.terminated, after.terminated)


def test_the_symmetries_of_a_square_are_all_eight_but_the_identity() -> None:
    board = np.arange(16).reshape(1, 4, 4)
    seen = {symmetry.observe(board).tobytes() for symmetry in square_symmetries(4)}
    transposed = board.transpose(0, 2, 1)
    assert seen | {board.tobytes()} == {
        kind[:, ::down, ::right].tobytes() for kind in (board, transposed) for down in (1, -1) for right in (1, -1)
    }
    assert len(seen) == 7


def test_actions_beside_the_cells_stay_what_they_are() -> None:
    for symmetry in square_symmetries(4, 1):
        assert sorted(symmetry.actions) == list(range(17))
        assert symmetry.actions[16] == 16


def test_cells_are_named_by_column_and_row_from_the_upper_left() -> None:
    names = cell_names(8)
    assert (names[0], names[1], names[8], names[63]) == ("a1", "b1", "a2", "h8")
