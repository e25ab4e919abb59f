"""Sokoban: push every box onto a goal, in a room that is new in every episode.

Hiroyuki Imabayashi (1981). Steps and rewards are those of Sokoban-v0 of Jumanji (Bonnet et al. 2024), which follows
Boxoban (Guez et al. 2019, "An investigation of model-free planning"); their levels come from files, ours from `reset`,
and each of ours can be solved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box as BoxSpace
from scramjet.envs.api import Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color, direction_to
from scramjet.envs.games.square_board import direction_symmetries
from scramjet.envs.rng import randint

# --- Levels, made backwards: boxes begin on the goals and are pulled away at random
#
# A pull is a push undone, so pushing the boxes back the way they came solves the level.


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


# --- The rules


SMALLEST_SIDE, LARGEST_SIDE = 5, 16
MOST_BOXES = 8
CELLS_PER_BOX = 5  # inside the walls, so that there is room to push
MOST_PULLS = 1000
ATTEMPTS = 20  # at a level with no box on a goal; after that one box off its goal is enough

SYMBOLS = {0: " ", WALL: "#", GOAL: ".", BOX: "$", GOAL | BOX: "*"}

CELL = 48  # pixels of a cell in the picture
BRICKS: Color = (90, 98, 112)
FLOOR: Color = (250, 248, 244)
TARGET: Color = (214, 92, 84)
WOOD: tuple[Color, Color] = ((160, 112, 62), (214, 164, 100))  # rim and face
PLACED: tuple[Color, Color] = ((86, 128, 84), (134, 176, 118))
PLAYER: Color = (76, 100, 200)


def count_cells(grid: Any, bits: int) -> int:
    """How many cells have all of `bits`."""
    count = 0
    for row in range(grid.shape[0]):
        for column in range(grid.shape[1]):
            count += grid[row, column] & bits == bits
    return count


def can_move(grid: Any, row: int, column: int, down: int, right: int) -> bool:
    """Whether the player at (row, column) can go one cell on: no wall is there, and no box that cannot be pushed."""
    if is_blocked(grid, row + down, column + right, WALL):
        return False
    is_push = grid[row + down, column + right] & BOX != 0
    return not (is_push and is_blocked(grid, row + 2 * down, column + 2 * right, WALL | BOX))


class Sokoban(Env):
    """Push every box onto a goal. Every level is new and can be solved."""

    rows: int = 9
    cols: int = 9
    boxes: int = 3
    pulls: int = 60
    step_reward: float = -0.1
    box_reward: float = 1.0
    solved_reward: float = 10.0

    max_episode_steps = 120
    action_space = Discrete(4)
    action_names = ("up", "right", "down", "left")
    stat_names = ("solved", "boxes_on_goals")

    @property
    def observation_space(self) -> BoxSpace:
        return BoxSpace(0, 1, (4, self.rows, self.cols), np.int8)  # walls, goals, boxes, the player

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        return direction_symmetries(is_square=self.rows == self.cols)

    @property
    def state(self) -> dict[str, Any]:
        return {
            "row": np.int16,
            "column": np.int16,
            "num_placed": np.int16,  # boxes on goals
            "grid": (np.int8, (self.rows, self.cols)),  # WALL, GOAL and BOX
            # only used while a level is made: cells, row by row
            "box_cells": (np.uint8, self.boxes),
            "goal_cells": (np.uint8, self.boxes),
            "best_cells": (np.uint8, self.boxes),
            "queue": (np.uint8, self.rows * self.cols),
        }

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        player = {"row": (1, self.rows - 2), "column": (1, self.cols - 2)}
        return {**player, "num_placed": (0, self.boxes), "grid": (0, GOAL | BOX)}

    def reset(self, s: Any) -> None:
        num_off = 0
        attempt = 0
        while num_off == 0 or (num_off < min(self.boxes, self.pulls) and attempt < ATTEMPTS):
            make_level(s, self.pulls)
            s.num_placed = count_cells(s.grid, GOAL | BOX)
            num_off = self.boxes - s.num_placed
            attempt += 1

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        down, right = ROW_STEP[action], COLUMN_STEP[action]
        if not can_move(s.grid, s.row, s.column, down, right):
            return self.step_reward, False
        before = s.num_placed
        row, column = s.row + down, s.column + right
        if s.grid[row, column] & BOX != 0:
            s.grid[row, column] &= ~BOX
            s.grid[row + down, column + right] |= BOX
            s.num_placed -= s.grid[row, column] & GOAL != 0
            s.num_placed += s.grid[row + down, column + right] & GOAL != 0
        s.row, s.column = row, column
        is_solved = s.num_placed == self.boxes
        reward = self.step_reward + self.box_reward * (s.num_placed - before)
        return reward + (self.solved_reward if is_solved else 0.0), is_solved

    def mask(self, s: Any, mask: Any) -> None:
        for action in range(4):
            mask[action] = can_move(s.grid, s.row, s.column, ROW_STEP[action], COLUMN_STEP[action])

    def observe(self, s: Any, obs: Any) -> None:
        for row in range(self.rows):
            for column in range(self.cols):
                obs[0, row, column] = s.grid[row, column] & WALL != 0
                obs[1, row, column] = s.grid[row, column] & GOAL != 0
                obs[2, row, column] = s.grid[row, column] & BOX != 0
                obs[3, row, column] = row == s.row and column == s.column

    def stats(self, s: Any, stats: Any) -> None:
        stats.solved = 1.0 if s.num_placed == self.boxes else 0.0
        stats.boxes_on_goals = s.num_placed / self.boxes

    def validate(self) -> None:
        limits = {"rows": (SMALLEST_SIDE, LARGEST_SIDE), "cols": (SMALLEST_SIDE, LARGEST_SIDE)}
        for name, (least, most) in {**limits, "boxes": (1, MOST_BOXES), "pulls": (1, MOST_PULLS)}.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name}={getattr(self, name)} must be from {least} to {most}")
        most_boxes = (self.rows - 2) * (self.cols - 2) // CELLS_PER_BOX
        if self.boxes > most_boxes:
            raise ValueError(
                f"boxes={self.boxes} have no room to move in rows={self.rows} x cols={self.cols}, walls included; "
                f"boxes={most_boxes} have"
            )

    def render(self, s: Any) -> np.ndarray:
        canvas = Canvas(CELL * self.cols, CELL * self.rows, BRICKS)
        for row in range(self.rows):
            for column in range(self.cols):
                if s.grid[row, column] & WALL == 0:
                    is_player = row == s.row and column == s.column
                    picture = cell_picture(int(s.grid[row, column]), is_player)
                    canvas.pixels[CELL * row : CELL * (row + 1), CELL * column : CELL * (column + 1)] = picture
        return canvas.pixels

    def action_at(self, s: Any, x: float, y: float) -> int | None:
        right, down = x * self.cols - s.column - 0.5, y * self.rows - s.row - 0.5
        return direction_to(right, down) if max(abs(right), abs(down)) > 0.5 else None

    def ascii(self, s: Any) -> str:
        cells = [[SYMBOLS[int(cell)] for cell in row] for row in s.grid]
        cells[s.row][s.column] = "+" if s.grid[s.row, s.column] & GOAL else "@"
        return "\n".join("".join(row) for row in cells)


def cell_picture(bits: int, is_player: bool) -> np.ndarray:
    """A cell of the floor and what stands on it, [CELL, CELL, 3]."""
    canvas, middle = Canvas(CELL, CELL, FLOOR), (CELL / 2, CELL / 2)
    if bits & GOAL:
        canvas.disc(middle, 0.2 * CELL, TARGET)
        canvas.disc(middle, 0.1 * CELL, FLOOR)
    if bits & BOX:
        rim, face = PLACED if bits & GOAL else WOOD
        low, high = 0.1 * CELL, 0.9 * CELL
        canvas.rectangle(low, low, high, high, rim)
        canvas.rectangle(low + 4, low + 4, high - 4, high - 4, face)
        canvas.line((low + 8, low + 8), (high - 8, high - 8), 4, rim)
        canvas.line((low + 8, high - 8), (high - 8, low + 8), 4, rim)
    if is_player:
        canvas.disc((CELL / 2, 0.34 * CELL), 0.15 * CELL, PLAYER)
        canvas.line((CELL / 2, 0.62 * CELL), (CELL / 2, 0.76 * CELL), 0.36 * CELL, PLAYER)
    return canvas.pixels
