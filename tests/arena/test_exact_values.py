"""Games solved by looking at every position: against another search, and against players that make one mistake."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.arena.exact_values import best_play, worst_returns
from scramjet.arena.game_tree import GameTree, game_tree
from scramjet.envs import load_env
from scramjet.errors import ConfigError
from tests.helpers.small_games import best_result, cells


@pytest.fixture(scope="module")
def tree() -> GameTree:
    return game_tree(load_env("tic_tac_toe"))


def test_tic_tac_toe_is_solved_as_another_search_solves_it(tree: GameTree) -> None:
    found = best_play(tree)
    assert len(tree.seat) == 5478 - 958  # all positions but those in which the game is over
    assert found.values[0].tolist() == [0, 0]
    for place in range(0, len(tree.seat), 7):
        own, other = map(cells, tree.obs[place])
        assert found.values[place, tree.seat[place]] == best_result(own, other)
        for cell in np.flatnonzero(tree.mask[place]):
            assert found.moves[place, cell] == -best_result(other, own | 1 << int(cell))
    assert (found.moves[~tree.mask] == -np.inf).all()


def test_best_play_never_loses_and_one_mistake_is_found(tree: GameTree) -> None:
    found = best_play(tree)
    actions = found.moves.argmax(axis=1)
    assert worst_returns(tree, actions).tolist() == [0, 0]
    assert found.keeps_value[np.arange(len(actions)), actions].all()
    corner = next(  # seat 0 has begun in a corner: only the centre saves seat 1
        place for place in range(*tree.levels[1].indices(len(actions))) if tree.obs[place, 1, 0, 0] == 1
    )
    assert np.flatnonzero(found.keeps_value[corner]).tolist() == [4]
    actions[corner] = 1
    assert worst_returns(tree, actions).tolist() == [0, -1]


def test_connect_four_on_a_small_board_is_solved() -> None:
    small = game_tree(load_env("connect_four", rows=2, cols=3, connect=2))
    assert best_play(small).values[0].tolist() == [1, -1]  # the second piece of the first side makes a pair


def test_games_that_cannot_be_listed_are_refused() -> None:
    for world, parameters, message in (
        ("cartpole", {}, "CartPole cannot be listed: that needs seats"),
        ("tic_tac_toe", {"opening_plies": 3}, "TicTacToe begins at random; set its parameters"),
        ("connect_four", {"random_opponent": True}, "ConnectFour begins at random"),
    ):
        with pytest.raises(ConfigError, match=message):
            game_tree(load_env(world, **parameters), backend="interpreted")
