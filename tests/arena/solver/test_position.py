"""Positions are read from moves and from pieces as the world has them; scores tell how many plies are left."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.arena.solver.position import Position, pieces_of_words, plies_left, words_of_pieces
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError


def test_moves_lead_to_the_pieces_that_the_world_shows_after_them() -> None:
    pool = NativePool(ConnectFour(), 1)
    for moves in ("", "4", "4453", "112233", "777777"):
        out = pool.reset(0)
        for column in moves:
            out = pool.step(np.array([int(column) - 1]))
        position = Position.from_moves(moves)
        assert np.array_equal(position.pieces(), out.obs[0]), moves
        assert Position.from_pieces(out.obs[0]) == position
        assert position.legal == np.flatnonzero(out.mask[0]).tolist()
        record = pool.record(0)
        assert Position.from_pieces(record.pieces[:: 1 if record.turn == 0 else -1]) == position


def test_games_of_the_world_end_where_positions_say_so() -> None:
    generator, pool = np.random.default_rng(0), NativePool(ConnectFour(), 50)
    out, positions, ends = pool.reset(0), [Position()] * 50, 0
    for _ in range(84):
        actions = np.array([generator.choice(position.legal) for position in positions])
        out = pool.step(actions)
        positions = [position.after(int(column)) for position, column in zip(positions, actions, strict=True)]
        assert [position.is_over for position in positions] == out.terminated.tolist()
        assert [position.is_lost for position in positions] == (np.abs(out.reward).max(1) > 0).tolist()
        positions = [Position() if position.is_over else position for position in positions]
        ends += int(out.terminated.sum())
    assert ends > 100


def test_a_batch_of_pieces_becomes_words_and_pieces_again() -> None:
    positions = [Position.from_moves(moves) for moves in ("", "4453", "121212")]
    pieces = np.stack([position.pieces() for position in positions])
    own, taken = words_of_pieces(pieces)
    assert [(int(a), int(b)) for a, b in zip(own, taken, strict=True)] == [(each.own, each.taken) for each in positions]
    assert np.array_equal(pieces_of_words(own, taken, 6, 7), pieces)


def test_a_mirrored_position_is_that_of_mirrored_moves() -> None:
    assert Position.from_moves("1123576").mirrored() == Position.from_moves("7765312")


def test_moves_that_no_game_has_and_pieces_that_float_or_overlap_are_refused() -> None:
    for moves, message in (
        ("48", "move 2 .* columns are 1 to 7"), ("4x", "columns are 1 to 7"), ("1111111", "column 1 is full"),
        ("12121212", "move 7 .* wins the game"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            Position.from_moves(moves)
    floating, overlapping = np.zeros((2, 2, 6, 7), np.int8)
    floating[0, 4, 3] = 1
    overlapping[:, 5, 3] = 1
    for pieces, message in ((floating, "float"), (overlapping, "float"), (np.zeros((6, 7)), "expected")):
        with pytest.raises(ConfigError, match=message):
            Position.from_pieces(pieces)


def test_a_score_says_when_the_winner_makes_the_last_move() -> None:
    for cells, plies in ((size, plies) for size in (16, 25, 42) for plies in range(size)):
        assert plies_left(0, plies, cells) == cells - plies
        for last in range(plies + 1, cells + 1):  # the piece that wins
            pieces_of_winner = (last + 1) // 2 if last % 2 else last // 2
            half = (cells + 1) // 2 if last % 2 else cells // 2
            score = half - pieces_of_winner + 1
            is_own = (last - plies) % 2 == 1
            assert plies_left(score if is_own else -score, plies, cells) == last - plies
