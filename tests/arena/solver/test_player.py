"""The perfect player makes the best moves, from the book and solved, on either side of the board."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.arena.solver.graded_positions import graded_positions
from scramjet.arena.solver.opening_book import add, best_moves_in, canonical
from scramjet.arena.solver.player import PerfectPlayer
from scramjet.arena.solver.position import Position
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError


def test_its_moves_are_those_with_the_highest_score_mirrored_or_not() -> None:
    positions = graded_positions()
    rows = np.arange(0, 2000, 10)  # End-Easy and Middle-Easy
    expected = positions.mask[rows] & (positions.scores[rows] == positions.scores[rows].max(1, keepdims=True))
    player = PerfectPlayer()
    assert np.array_equal(player.best_moves(positions.obs[rows]), expected)
    assert np.array_equal(player.best_moves(positions.obs[rows][..., ::-1]), expected[:, ::-1])


def test_among_equal_moves_it_draws_each() -> None:
    positions = graded_positions()
    is_best = positions.mask & (positions.scores == positions.scores.max(1, keepdims=True))
    row = int(np.flatnonzero(is_best.sum(1) == 3)[0])

    class Seen:
        obs = np.repeat(positions.obs[row][None], 300, 0)

    chosen = PerfectPlayer().choose(Seen(), np.arange(300), np.random.default_rng(0))  # type: ignore[arg-type]
    counts = np.bincount(chosen, minlength=7)
    assert np.array_equal(counts > 0, is_best[row])
    assert counts[is_best[row]].min() > 60


def test_a_book_gives_a_positions_moves_to_its_mirror_image_too() -> None:
    position, book = Position.from_moves("1123"), {}
    add(book, position, [0, 4])
    assert best_moves_in(book, position) == [0, 4]
    assert best_moves_in(book, position.mirrored()) == [2, 6]
    assert best_moves_in(book, Position.from_moves("4")) is None
    assert canonical(position)[0] == canonical(position.mirrored())[0]


def test_other_rules_are_refused() -> None:
    with pytest.raises(ConfigError, match="minimax:3"):
        PerfectPlayer().begin(NativePool(ConnectFour(connect=3), 1))
