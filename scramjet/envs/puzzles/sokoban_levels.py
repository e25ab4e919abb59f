"""Levels of Sokoban that can be solved, made backwards: boxes begin on the goals and are pulled away at random.

A pull is a push undone, so pushing the boxes back the way they came solves the level.
"""

from __future__ import annotations

from typing import Any

from scramjet.envs.rng import randint

ROW_STEP = (-1, 0, 1, 0)  # up, right, down, left
COLUMN_STEP = (0, 1, 0, -1)

WALL, GOAL, BOX = 1, 2, 4  # bits of a cell
REACHED = 8  # one more while a level is made: within the player's reach


def is_blocked(grid: Any, row: int, column: int, bits: int) -> bool:
    """Whether a cell has one of `bits`, or lies outside."""
    return not (0 <= row < grid.shape[0] and 0 <= column < grid.shape[1]) or grid[row, column] & bits != 0


def dig_room(s: Any, num_floor: int) -> None:
    """Fill the grid with walls and dig out `num_floor` cells or one more: a random walk, in places two cells wide."""
    rows, columns = s.grid.shape
    for row in range(rows):
        for column in range(columns):
            s.grid[row, column] = WALL
    row, column = 1 + randint(s, rows - 2), 1 + randint(s, columns - 2)
    direction = randint(s, 4)
    num_dug = 0
    while num_dug < num_floor:
        num_dug += dig(s.grid, row, column)
        if randint(s, 2) == 0:
            beside = (direction + 1) % 4
            num_dug += dig(s.grid, row + ROW_STEP[beside], column + COLUMN_STEP[beside])
        if randint(s, 3) == 0:
            direction = randint(s, 4)
        if is_diggable(s.grid, row + ROW_STEP[direction], column + COLUMN_STEP[direction]):
            row += ROW_STEP[direction]
            column += COLUMN_STEP[direction]
        else:
            direction = randint(s, 4)


def is_diggable(grid: Any, row: int, column: int) -> bool:
    """Whether a cell is none of the walls around the room."""
    return 0 < row < grid.shape[0] - 1 and 0 < column < grid.shape[1] - 1


def dig(grid: Any, row: int, column: int) -> bool:
    """Make a cell floor, unless it belongs to the walls around the room; whether it was wall before."""
    if not is_diggable(grid, row, column) or grid[row, column] == 0:
        return False
    grid[row, column] = 0
    return True


def random_cell(s: Any) -> int:
    """A cell without walls and boxes, each as likely; there must be one."""
    rows, columns = s.grid.shape
    while True:
        row, column = randint(s, rows), randint(s, columns)
        if s.grid[row, column] & (WALL | BOX) == 0:
            return row * columns + column


def place_player(s: Any, cell: int) -> None:
    """Put the player on a cell."""
    s.row, s.column = cell // s.grid.shape[1], cell % s.grid.shape[1]


def place_boxes(s: Any) -> None:
    """Put a box on a random cell of the floor for each entry of `box_cells`, and make that cell its goal."""
    columns = s.grid.shape[1]
    for box in range(len(s.box_cells)):
        cell = random_cell(s)
        s.grid[cell // columns, cell % columns] = GOAL | BOX
        s.box_cells[box] = s.goal_cells[box] = cell


def mark_reached(s: Any) -> int:
    """Mark the cells that the player can walk to without moving a box, list them in `queue`, return their number."""
    columns = s.grid.shape[1]
    s.grid[s.row, s.column] |= REACHED
    s.queue[0] = s.row * columns + s.column
    first, end = 0, 1
    while first < end:
        row, column = int(s.queue[first]) // columns, int(s.queue[first]) % columns
        first += 1
        for direction in range(4):
            next_row, next_column = row + ROW_STEP[direction], column + COLUMN_STEP[direction]
            if not is_blocked(s.grid, next_row, next_column, WALL | BOX | REACHED):
                s.grid[next_row, next_column] |= REACHED
                s.queue[end] = next_row * columns + next_column
                end += 1
    return end


def unmark_reached(s: Any, num_reached: int) -> None:
    """Take the marks away from the cells in `queue`."""
    columns = s.grid.shape[1]
    for k in range(num_reached):
        s.grid[int(s.queue[k]) // columns, int(s.queue[k]) % columns] &= ~REACHED


def can_pull(s: Any, box: int, direction: int, bits: int) -> bool:
    """Whether the player can get beside a box and go one cell away from it, taking the box along: a push undone.

    Only boxes on cells with all of `bits` count.
    """
    columns = s.grid.shape[1]
    row, column = int(s.box_cells[box]) // columns, int(s.box_cells[box]) % columns
    down, right = ROW_STEP[direction], COLUMN_STEP[direction]
    if s.grid[row, column] & bits != bits or s.grid[row + down, column + right] & REACHED == 0:
        return False
    return not is_blocked(s.grid, row + 2 * down, column + 2 * right, WALL | BOX)


def count_pulls(s: Any, bits: int) -> int:
    """How many pulls there are of boxes on cells with all of `bits`."""
    count = 0
    for choice in range(4 * len(s.box_cells)):
        count += can_pull(s, choice // 4, choice % 4, bits)
    return count


def random_pull(s: Any) -> int:
    """4 times the box and the direction of a pull, of a box on a goal where there is one; -1 where there is none."""
    bits = GOAL
    num_pulls = count_pulls(s, bits)
    if num_pulls == 0:
        bits = 0
        num_pulls = count_pulls(s, bits)
    if num_pulls == 0:
        return -1
    skip = randint(s, num_pulls)
    for choice in range(4 * len(s.box_cells)):
        if can_pull(s, choice // 4, choice % 4, bits):
            if skip == 0:
                return choice
            skip -= 1
    return -1


def pull(s: Any) -> bool:
    """Make a random pull; False where there is none."""
    num_reached = mark_reached(s)
    chosen = random_pull(s)
    unmark_reached(s, num_reached)
    if chosen < 0:
        return False
    down, right = ROW_STEP[chosen % 4], COLUMN_STEP[chosen % 4]
    columns = s.grid.shape[1]
    cell = int(s.box_cells[chosen // 4])
    s.grid[cell // columns, cell % columns] &= ~BOX
    cell += down * columns + right
    s.grid[cell // columns, cell % columns] |= BOX
    s.box_cells[chosen // 4] = cell
    s.row, s.column = cell // columns + down, cell % columns + right
    return True


def displacement(s: Any) -> int:
    """How far the boxes are from the goals: those off any goal count most, then the way of each to its nearest goal."""
    rows, columns = s.grid.shape
    total = 0
    for box in range(len(s.box_cells)):
        nearest = rows + columns
        for other in range(len(s.goal_cells)):
            cell, goal = int(s.box_cells[box]), int(s.goal_cells[other])
            away = abs(cell // columns - goal // columns) + abs(cell % columns - goal % columns)
            nearest = min(nearest, away)
        if nearest > 0:
            total += (rows + columns) * len(s.box_cells) + nearest
    return total


def keep_boxes(s: Any) -> None:
    """Remember where the boxes are."""
    for box in range(len(s.box_cells)):
        s.best_cells[box] = s.box_cells[box]


def restore_boxes(s: Any) -> None:
    """Put the boxes where they were when `keep_boxes` was called last."""
    columns = s.grid.shape[1]
    for box in range(len(s.box_cells)):
        cell = int(s.box_cells[box])
        s.grid[cell // columns, cell % columns] &= ~BOX
    for box in range(len(s.box_cells)):
        cell = int(s.best_cells[box])
        s.grid[cell // columns, cell % columns] |= BOX


def make_level(s: Any, pulls: int) -> None:
    """A room with boxes and goals, from its solution backwards: the most displaced of the positions after each pull."""
    inside = (s.grid.shape[0] - 2) * (s.grid.shape[1] - 2)
    dig_room(s, inside // 2 + randint(s, inside // 4 + 1))
    place_boxes(s)
    place_player(s, random_cell(s))
    best_row, best_column, most = s.row, s.column, 0
    keep_boxes(s)
    for _ in range(pulls):
        if not pull(s):
            break
        found = displacement(s)
        if found > most:
            best_row, best_column, most = s.row, s.column, found
            keep_boxes(s)
    restore_boxes(s)
    s.row, s.column = best_row, best_column
    num_reached = mark_reached(s)
    place_player(s, int(s.queue[randint(s, num_reached)]))
    unmark_reached(s, num_reached)
