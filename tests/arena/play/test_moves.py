"""Moves by name and number as people type them."""

from __future__ import annotations

from typing import Any

import pytest

from scramjet.arena.play.moves import Moves
from scramjet.envs.classic_control.pendulum import Pendulum
from scramjet.envs.games.snake import Snake
from scramjet.errors import ConfigError
from tests.helpers.player_worlds import Duel, Trio


def named(*names: str) -> Moves:
    return Moves(type("Named", (Duel,), {"action_names": names})())


def found(moves: Moves, text: str) -> int | None:
    move = moves.find(text)
    return None if move is None else move.number


def test_without_names_moves_are_called_by_their_numbers() -> None:
    moves = Moves(Duel())
    assert moves.names == ["0", "1", "2", "3", "4", "5"]
    assert [found(moves, text) for text in ("0", " 5 ", "6", "-1", "", "x", "1.0", "²")] == [0, 5] + 6 * [None]


def test_names_are_found_in_any_case_and_numbers_too_where_no_name_is_one() -> None:
    moves = named("up", "Right", "down", "left", "wait", "go back")
    assert [found(moves, text) for text in ("UP", "right", "Go Back", "3", "6")] == [0, 1, 5, 3, None]


def test_where_names_are_numbers_only_they_count() -> None:
    moves = named("1", "2", "3", "4", "5", "6")
    assert [found(moves, text) for text in ("1", "6", "0")] == [0, 5, None]


def test_names_that_differ_in_case_only_are_told_apart() -> None:
    moves = named("a", "A", "b", "B", "c", "C")
    assert [found(moves, text) for text in ("a", "A", "C")] == [0, 1, 5]


def test_several_choices_are_named_one_after_the_other() -> None:
    moves = Moves(Trio())
    assert moves.names[:5] == ["0,0", "0,1", "0,2", "0,3", "1,0"]
    assert [found(moves, text) for text in ("2,3", "3,0")] == [11, None]
    assert moves.actions[6].tolist() == [1, 2]


@pytest.mark.parametrize("action", [7, -1])
def test_an_action_outside_the_space_is_no_move(action: Any) -> None:
    assert Moves(Duel()).number_of(action) is None


def test_real_numbers_are_no_moves() -> None:
    with pytest.raises(ConfigError, match="Pendulum cannot be played by a person"):
        Moves(Pendulum())


def test_too_many_combinations_are_refused() -> None:
    from scramjet.envs import MultiDiscrete

    with pytest.raises(ConfigError, match="1,000,000 moves"):
        Moves(type("Vast", (Snake,), {"action_space": MultiDiscrete([100, 100, 100])})())
