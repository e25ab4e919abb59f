"""Tic-tac-toe: every position against another program of it, and what a game ends with."""

from __future__ import annotations

import numpy as np

from scramjet.envs.games.tic_tac_toe import TicTacToe
from tests.helpers.playing import assert_as_likely, begun, compiled, episode_stats, interpreted, play

LINES = [0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100]
"""The eight lines as sets of bits, cells row by row."""


def has_line(cells: int) -> bool:
    return any(cells & line == line for line in LINES)


def bits_of(planes: np.ndarray) -> tuple[int, int]:
    """Own and the other's cells of an observation, as sets of bits."""
    own, other = ((plane.ravel() << np.arange(9)).sum() for plane in planes.astype(np.int64))
    return int(own), int(other)


def test_every_position_is_judged_as_another_program_judges_it() -> None:
    pool, out = compiled(TicTacToe())
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
    env = TicTacToe()
    s = begun(env)
    assert play(env, s, [4, 4]) == ([1.0, -1.0], True)
    assert episode_stats(env, s, 0) == {"win": 1.0, "draw": 0.0, "loss": 0.0, "moves": 1}
    assert episode_stats(env, s, 1) == {"win": 0.0, "draw": 0.0, "loss": 1.0, "moves": 1}


def test_openings_have_every_length_and_none_ends_the_game() -> None:
    pool, out = interpreted(TicTacToe(opening_plies=8), 300)
    states = pool.states()
    assert set(states["moves"].tolist()) == set(range(9))
    assert (states["winner"] == 0).all()
    assert not any(has_line(cells) for planes in out.obs for cells in bits_of(planes))
    np.testing.assert_array_equal(out.turn, states["moves"] % 2)
    short = states["moves"] < 4  # later ones may be cut short
    assert_as_likely(np.bincount(states["moves"][short]))


def test_the_text_shows_the_board_and_the_picture_marks_the_line_that_won() -> None:
    env = TicTacToe()
    s = begun(env)
    play(env, s, (0, 4, 1, 8))
    assert env.ascii(s).splitlines() == [" 1 X X .", " 2 . O .", " 3 . . O", "   a b c", "X to move"]
    before = env.render(s)
    assert (before.dtype, before.shape[2]) == (np.uint8, 3)
    assert play(env, s, [2])[1]
    assert env.ascii(s).endswith("X wins")
    changed = np.argwhere((env.render(s) != before).any(axis=2))
    assert changed[:, 1].min() < before.shape[1] / 3  # not only the new piece
    assert episode_stats(env, s, 0) == {"win": 1.0, "draw": 0.0, "loss": 0.0, "moves": 5}
