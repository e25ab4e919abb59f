"""Alpha-beta search with null windows over bitboards, compiled.

A search asks whether the score of a position is at least `bound`. The answer is yes or no, so no window is kept: where
one side asks for at least b, the other side asks in the next position whether its own score is at least 1 - b. Exact
scores are found by bisection. Answers are kept in a table, as a lower and an upper bound of the score beside the whole
key of the position, so that an entry is never taken for another position's.

Boards are words of 64 bits. A column takes `rows + 1` bits, its lowest cell first. The bit above a column is always
empty, so that no line runs from the top of one column into the next. A position is two words: the pieces of the side to
move, and the cells taken by either side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scramjet.compile.jit import compiled, inlined_in_compiled

# --- boards as words: what can be said of all cells at once

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


# --- the search

NO_MOVE = -128
"""In place of a score: the column is full."""

BOUND_BITS = np.uint64(6)
BOUND_MASK = np.uint64(63)
BOUND_OFFSET = 32  # bounds from -32 to 31 are written as 0 to 63
KEY_SHIFT = np.uint64(12)
KEY_BITS = 52
"""Bits of an entry that hold the position's key; the others hold the two bounds."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: keys that differ little fall far apart

MIN_EMPTY = 10
"""Cells that must be empty for a position to be kept in the table: with fewer, searching again is as fast as a look."""
LOOK_AHEAD = 12
"""Cells that must be empty for a look at the table's entries of the positions after each move: lower down, a look costs
more than it saves."""

MOVES_LEFT, FIRST_MOVE = 2, 3  # where a row of the stack keeps the number of moves left to try, and the moves
UNKNOWN, NO, YES = -1, 0, 1


class Workspace(NamedTuple):
    """The memory that a search works in; threads may share the table, whose entries are read and written whole."""

    table: Any
    """uint64 [2^n]: a position's key, an upper and a lower bound of its score in one word each; 0 is empty."""
    shift: Any
    """64 - n: brings the spread key of a position to a place in the table."""
    stack: Any
    """uint64 [cells + 2, 3 + 2 * cols]: by depth the own pieces, the cells taken, the number of moves left to try,
    these moves with the best one last, and their values."""
    nodes: Any
    """int64 [1]: how many positions were looked at."""


def make_workspace(board: Board, table: np.ndarray) -> Workspace:
    """Memory for one thread, with a table of 2^n entries."""
    stack = np.zeros((board.cells + 2, FIRST_MOVE + 2 * board.cols), np.uint64)
    return Workspace(table, np.uint64(64 - (len(table).bit_length() - 1)), stack, np.zeros(1, np.int64))


@inlined_in_compiled
def upper_bound(entry: Any) -> Any:
    """The upper bound of the score in an entry of the table."""
    return np.int64((entry >> BOUND_BITS) & BOUND_MASK) - BOUND_OFFSET


@inlined_in_compiled
def lower_bound(entry: Any) -> Any:
    """The lower bound of the score in an entry of the table."""
    return np.int64(entry & BOUND_MASK) - BOUND_OFFSET


@inlined_in_compiled
def remember(board: Any, work: Any, depth: int, bound: int, is_reached: bool) -> None:
    """Write into the table that the score of the position at `depth` is at least `bound`, or that it is below."""
    key = work.stack[depth, 0] + work.stack[depth, 1] + board.bottom
    place = (key * SPREAD) >> work.shift
    entry = work.table[place]
    lower, upper = np.uint64(0), BOUND_MASK
    if entry >> KEY_SHIFT == key:
        lower, upper = entry & BOUND_MASK, (entry >> BOUND_BITS) & BOUND_MASK
    if is_reached:
        lower = np.uint64(bound + BOUND_OFFSET)
    else:
        upper = np.uint64(bound - 1 + BOUND_OFFSET)
    work.table[place] = (key << KEY_SHIFT) | (upper << BOUND_BITS) | lower


@inlined_in_compiled
def has_known_answer(board: Any, work: Any, own: Any, taken: Any, moves: Any, bound: int) -> bool:
    """Whether the table holds a position after one of the moves that shows that `bound` is reached."""
    after = (own ^ taken) + taken + board.bottom
    while moves:
        move = moves & (~moves + ONE)  # the lowest
        moves ^= move
        key = after + move
        entry = work.table[(key * SPREAD) >> work.shift]
        if entry >> KEY_SHIFT == key and -upper_bound(entry) >= bound:
            return True
    return False


@inlined_in_compiled
def answer_at_once(board: Any, work: Any, own: Any, taken: Any, moves: Any, played: Any, bound: int) -> int:
    """YES or NO where that follows without a search: by the pieces left or by the table; else UNKNOWN."""
    cells = board.cells
    if moves == 0:  # the other side wins with its next piece
        return YES if -((cells - played) // 2) >= bound else NO
    if played >= cells - 2:
        return YES if bound <= 0 else NO
    if bound <= -((cells - 2 - played) // 2):  # neither side wins with its next piece
        return YES
    if bound > (cells - 1 - played) // 2:
        return NO
    if cells - played < MIN_EMPTY:
        return UNKNOWN
    key = own + taken + board.bottom
    entry = work.table[(key * SPREAD) >> work.shift]
    if entry >> KEY_SHIFT == key:
        if bound <= lower_bound(entry):
            return YES
        if bound > upper_bound(entry):
            return NO
    if cells - played >= LOOK_AHEAD and has_known_answer(board, work, own, taken, moves, bound):
        return YES
    return UNKNOWN


@inlined_in_compiled
def list_moves(board: Any, moves: Any, row: Any) -> None:
    """Write the moves of a position into its row of the stack, that with most threats, nearest the centre, last."""
    own, taken = row[0], row[1]
    listed, values = row[FIRST_MOVE:], row[FIRST_MOVE + board.cols :]
    count = 0
    for place in range(board.cols - 1, -1, -1):
        move = moves & board.centre_first[place]
        if move:
            value = count_bits(winning_cells(board, own | move, taken | move))
            at = count
            while at > 0 and values[at - 1] > value:
                values[at], listed[at] = values[at - 1], listed[at - 1]
                at -= 1
            values[at], listed[at] = value, move
            count += 1
    row[MOVES_LEFT] = np.uint64(count)


@inlined_in_compiled
def is_at_least(board: Any, work: Any, own: Any, taken: Any, bound: int) -> bool:
    """Whether the score of a position is at least `bound`; call this where the side to move cannot win at once."""
    stack, nodes, cells = work.stack, 0, board.cells
    depth, played = 0, np.int64(count_bits(taken))
    stack[0, 0], stack[0, 1] = own, taken
    while True:
        nodes += 1
        moves = safe_moves(board, own, taken)
        answer = answer_at_once(board, work, own, taken, moves, played, bound)
        if answer == UNKNOWN:
            list_moves(board, moves, stack[depth])
        # Back to the last position in which a move is left to try, handing each answer to the position before it.
        while answer != UNKNOWN or stack[depth, MOVES_LEFT] == 0:
            if answer == UNKNOWN:
                answer = NO
                if cells - played >= MIN_EMPTY:
                    remember(board, work, depth, bound, False)
            if depth == 0:
                work.nodes[0] += nodes
                return answer == YES
            depth, played, bound = depth - 1, played - 1, 1 - bound
            if answer == NO:
                answer = YES
                if cells - played >= MIN_EMPTY:
                    remember(board, work, depth, bound, True)
            else:
                answer = UNKNOWN
        stack[depth, MOVES_LEFT] -= ONE
        move = stack[depth, FIRST_MOVE + np.int64(stack[depth, MOVES_LEFT])]
        own, taken = stack[depth, 0] ^ stack[depth, 1], stack[depth, 1] | move
        depth, played, bound = depth + 1, played + 1, 1 - bound
        stack[depth, 0], stack[depth, 1] = own, taken


@inlined_in_compiled
def can_win(board: Any, own: Any, taken: Any) -> bool:
    """Whether the side to move has a winning move."""
    return winning_cells(board, own, taken) & open_cells(board, taken) != 0


@inlined_in_compiled
def exact_score(board: Any, work: Any, own: Any, taken: Any, is_weak: bool) -> int:
    """The score of a position for the side to move, or where `is_weak` its sign."""
    cells, played = board.cells, np.int64(count_bits(taken))
    if can_win(board, own, taken):
        return 1 if is_weak else (cells + 1 - played) // 2
    lowest, highest = -((cells - played) // 2), max((cells - 1 - played) // 2, 0)
    if is_weak:
        lowest, highest = max(lowest, -1), min(highest, 1)
    while lowest < highest:
        if lowest < 0 <= highest:  # the sign first
            bound = 1 if highest > 0 else 0
        else:
            bound = lowest + (highest - lowest + 1) // 2
        if is_at_least(board, work, own, taken, bound):
            lowest = bound
        else:
            highest = bound - 1
    return lowest


@compiled
def solve(board: Any, work: Any, own: Any, taken: Any, scores: Any, is_weak: bool) -> None:
    """Write the scores of positions, own uint64 [N] and taken uint64 [N], into int8 [N]."""
    for row in range(len(own)):
        scores[row] = exact_score(board, work, own[row], taken[row], is_weak)


@compiled
def solve_moves(board: Any, work: Any, own: Any, taken: Any, scores: Any, is_weak: bool) -> None:
    """Write the scores of every move in positions into int8 [N, cols]; NO_MOVE where a column is full."""
    for row in range(len(own)):
        wins = winning_cells(board, own[row], taken[row])
        played = np.int64(count_bits(taken[row]))
        for column in range(board.cols):
            move = open_cells(board, taken[row]) & board.columns[column]
            if move == 0:
                scores[row, column] = NO_MOVE
            elif move & wins:
                scores[row, column] = 1 if is_weak else (board.cells + 1 - played) // 2
            else:
                scores[row, column] = -exact_score(board, work, own[row] ^ taken[row], taken[row] | move, is_weak)


@compiled
def solve_best_moves(board: Any, work: Any, own: Any, taken: Any, is_best: Any) -> None:
    """Write into bool [N, cols] which moves have the score of their position; faster than the scores of all moves."""
    for row in range(len(own)):
        score = exact_score(board, work, own[row], taken[row], False)
        moves, wins = open_cells(board, taken[row]), winning_cells(board, own[row], taken[row])
        played = np.int64(count_bits(taken[row]))
        for column in range(board.cols):
            move = moves & board.columns[column]
            after, now_taken = own[row] ^ taken[row], taken[row] | move
            if move == 0 or moves & wins:
                is_best[row, column] = move & wins != 0
            elif can_win(board, after, now_taken):
                is_best[row, column] = score == -((board.cells - played) // 2)
            else:
                is_best[row, column] = not is_at_least(board, work, after, now_taken, 1 - score)
