"""Boards of Connect Four as words of 64 bits, and what can be said of all their cells at once.

A column takes `rows + 1` bits, its lowest cell first. The bit above a column is always empty, so that no line runs from
the top of one column into the next. A position is two words: the pieces of the side to move, and the cells taken by
either side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scramjet.compile.jit import inlined_in_compiled

ONE = np.uint64(1)
TWO = np.uint64(2)
THREE = np.uint64(3)


class Board(NamedTuple):
    """The size of a board, as compiled code reads it."""

    stride: Any
    """Bits of a column: rows + 1."""
    cols: int
    cells: int
    bottom: Any
    """The lowest cell of every column."""
    every_cell: Any
    columns: Any
    """The cells of each column, uint64 [cols]."""
    centre_first: Any
    """The same from the centre outwards, uint64 [cols]."""


def make_board(rows: int, cols: int) -> Board:
    """The board of a size."""
    stride = rows + 1
    bottom = sum(1 << (stride * column) for column in range(cols))
    columns = np.array([((1 << rows) - 1) << (stride * column) for column in range(cols)], np.uint64)
    outwards = sorted(range(cols), key=lambda column: (abs(2 * column - cols + 1), column))
    return Board(
        stride=np.uint64(stride),
        cols=cols,
        cells=rows * cols,
        bottom=np.uint64(bottom),
        every_cell=np.bitwise_or.reduce(columns),
        columns=columns,
        centre_first=columns[outwards],
    )


@inlined_in_compiled
def winning_cells(board: Any, pieces: Any, taken: Any) -> Any:
    """The empty cells that complete a line of four of these pieces, whether they can be reached yet or not."""
    cells = (pieces << ONE) & (pieces << TWO) & (pieces << THREE)  # on top of three
    for direction in range(3):  # falling, across, rising
        step = board.stride + np.uint64(direction) - ONE
        two, three = step << ONE, step + (step << ONE)
        pair_before = (pieces << step) & (pieces << two)
        pair_after = (pieces >> step) & (pieces >> two)
        cells |= pair_before & ((pieces << three) | (pieces >> step))
        cells |= pair_after & ((pieces >> three) | (pieces << step))
    return cells & (board.every_cell ^ taken)


@inlined_in_compiled
def open_cells(board: Any, taken: Any) -> Any:
    """The cells in which the next piece of each column that has room comes to lie."""
    return (taken + board.bottom) & board.every_cell


@inlined_in_compiled
def safe_moves(board: Any, own: Any, taken: Any) -> Any:
    """The moves after which the other side cannot win at once, as cells.

    Own winning moves are not looked for: call this where the side to move has none.
    """
    threats = winning_cells(board, own ^ taken, taken)
    moves = open_cells(board, taken)
    forced = moves & threats
    if forced:
        if forced & (forced - ONE):
            return forced ^ forced  # two threats cannot both be parried
        moves = forced
    return moves & ~(threats >> ONE)  # not below a cell that wins for the other side


@inlined_in_compiled
def count_bits(word: Any) -> Any:
    """How many bits of a word are set."""
    word -= (word >> ONE) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> TWO) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)
