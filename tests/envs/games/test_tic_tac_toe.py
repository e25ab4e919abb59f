"""Tic-tac-toe: every position against another program of it, and what a game ends with."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from scramjet.engine import NativePool
from scramjet.envs import load_env
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.errors import WorldError

LINES = [0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100]
"""The eight lines as sets of bits, cells row by row."""


def has_line(cells: int) -> bool:
    return any(cells & line == line for line in LINES)


def bits_of(planes: np.ndarray) -> tuple[int, int]:
    """Own and the other's cells of an observation, as sets of bits."""
    own, other = ((plane.ravel() << np.arange(9)).sum() for plane in planes.astype(np.int64))
    return int(own), int(other)


def test_every_position_is_judged_as_another_program_judges_it() -> None:
    pool = NativePool(TicTacToe(), 1, num_threads=1)
    out = pool.reset(0)
    states, obs, masks = pool.states(), out.obs.copy(), out.mask.copy()
    num_positions, num_won, num_drawn = 1, 0, 0
    for ply in range(9):
        boards = [bits_of(planes) for planes in obs]
        for (own, other), legal in zip(boards, masks, strict=True):
            assert legal.tolist() == [not (own | other) >> cell & 1 for cell in range(9)]
        rows, cells = np.nonzero(masks)
        after, out = pool.simulate(states[rows], cells)
        for i, (row, cell) in enumerate(zip(rows, cells, strict=True)):
            own, other = boards[row][0] | 1 << int(cell), boards[row][1]
            assert bits_of(out.obs[i]) == (other, own)
            wins = has_line(own)
            assert out.terminated[i] == (wins or ply == 8)
            assert out.reward[i, ply % 2] == -out.reward[i, 1 - ply % 2] == float(wins)
        _, first = np.unique(after["pieces"].reshape(len(after), -1), axis=0, return_index=True)
        num_positions += len(first)
        num_won += int((out.terminated[first] & (out.reward[first] != 0).any(axis=1)).sum())
        num_drawn += int((out.terminated[first] & (out.reward[first] == 0).all(axis=1)).sum())
        going_on = first[~out.terminated[first]]
        states, obs, masks = after[going_on], out.obs[going_on], out.mask[going_on]
    assert (num_positions, num_won, num_drawn) == (5478, 626 + 316, 16)  # known: 626 wins of X, 316 of O, 16 draws


def test_who_takes_a_taken_cell_loses() -> None:
    pool = NativePool(TicTacToe(), 1, num_threads=1)
    pool.reset(0)
    pool.step(np.array([4]))
    out = pool.step(np.array([4]))
    assert out.reward[0].tolist() == [1.0, -1.0]
    assert out.terminated[0]
    episodes = pool.episodes()
    assert episodes.stats["win"].tolist() == [1.0, 0.0]
    assert episodes.stats["loss"].tolist() == [0.0, 1.0]
    assert episodes.stats["moves"].tolist() == [1.0, 1.0]


def test_openings_have_every_length_and_none_ends_the_game() -> None:
    pool = NativePool(TicTacToe(opening_plies=8), 300, backend="interpreted")
    out = pool.reset(0)
    states = pool.states()
    assert set(states["moves"].tolist()) == set(range(9))
    assert (states["winner"] == 0).all()
    assert not any(has_line(cells) for planes in out.obs for cells in bits_of(planes))
    np.testing.assert_array_equal(out.turn, states["moves"] % 2)
    counts = np.bincount(states["moves"][states["moves"] < 4])  # later ones may be cut short
    assert counts == pytest.approx(300 / 9, abs=5 * np.sqrt(300 / 9))


def test_an_opening_longer_than_the_board_is_refused() -> None:
    with pytest.raises(WorldError, match="opening_plies=9 must be from 0 to 8"):
        load_env("tic_tac_toe", opening_plies=9)


def test_the_text_shows_the_board_and_the_picture_marks_the_line_that_won() -> None:
    env = TicTacToe()
    pool = NativePool(env, 1, backend="interpreted")
    pool.reset(0)
    s, reward = pool.record(0), np.zeros(2)
    for cell in (0, 4, 1, 8):
        env.step(s, cell, reward)
    assert env.ascii(s).splitlines() == [" 1 X X .", " 2 . O .", " 3 . . O", "   a b c", "X to move"]
    before = env.render(s)
    assert (before.dtype, before.shape[2]) == (np.uint8, 3)
    assert env.step(s, 2, reward)
    assert env.ascii(s).endswith("X wins")
    changed = np.argwhere((env.render(s) != before).any(axis=2))
    assert changed[:, 1].min() < before.shape[1] / 3  # not only the new piece
    stats = SimpleNamespace()
    env.stats(s, stats, 0)
    assert vars(stats) == {"win": 1.0, "draw": 0.0, "loss": 0.0, "moves": 5}
