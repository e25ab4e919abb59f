"""Pictures of MiniGrid's worlds, as pixels and as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.drawing import Canvas, Color
from scramjet.envs.minigrid.cells import (
    BALL,
    BOX,
    CLOSED,
    DOOR,
    EMPTY_CELL,
    GOAL,
    KEY,
    LOCKED,
    OPEN,
    WALL,
    X_STEP,
    Y_STEP,
    color_of,
    kind_of,
    state_of,
    write_view,
)

COLORS: tuple[Color, ...] = (
    (218, 66, 60), (84, 176, 92), (72, 120, 224), (150, 88, 200), (236, 192, 64), (150, 154, 162),
)  # fmt: skip
COLOR_LETTERS = ("r", "g", "b", "p", "y", "e")
DARK: Color = (30, 32, 38)
SEEN: Color = (66, 70, 80)
BRICKS: Color = (112, 116, 126)
ARROW: Color = (240, 240, 240)
ARROWS = (">", "v", "<", "^")


def grid_picture(s: Any, view_size: int, sees_through_walls: bool) -> np.ndarray:
    """The whole grid as an RGB image; the floor that the agent sees is lighter."""
    columns, rows = s.grid.shape
    size = max(12, 400 // max(columns, rows))
    canvas = Canvas(size * columns, size * rows, DARK)
    light_view(canvas, s, view_size, sees_through_walls, size)
    for x in range(columns):
        for y in range(rows):
            if s.grid[x, y] != EMPTY_CELL:
                draw_object(canvas, int(s.grid[x, y]), x * size, y * size, size)
    draw_agent(canvas, s, size)
    return canvas.pixels


def light_view(canvas: Canvas, s: Any, view_size: int, sees_through_walls: bool, size: int) -> None:
    """Make the floor of every cell lighter that the agent sees."""
    columns, rows = s.grid.shape
    view = np.zeros((view_size, view_size, 3), dtype=np.uint8)
    write_view(s, view, sees_through_walls)
    forward_x, forward_y = X_STEP[s.direction], Y_STEP[s.direction]
    for i in range(view_size):
        for j in range(view_size):
            depth, across = view_size - 1 - j, i - view_size // 2
            x = s.x + depth * forward_x - across * forward_y
            y = s.y + depth * forward_y + across * forward_x
            if view[i, j, 0] != 0 and 0 <= x < columns and 0 <= y < rows:
                canvas.pixels[size * y + 1 : size * (y + 1), size * x + 1 : size * (x + 1)] = SEEN


def draw_object(canvas: Canvas, code: int, left: float, top: float, size: float) -> None:
    """Draw what stands on a cell."""
    kind, color = kind_of(code), COLORS[color_of(code)]
    middle = (left + size / 2, top + size / 2)
    if kind == WALL:
        canvas.rectangle(left, top, left + size, top + size, BRICKS)
    elif kind == GOAL:
        canvas.rectangle(left + 1, top + 1, left + size - 1, top + size - 1, color)
    elif kind == BALL:
        canvas.disc(middle, 0.3 * size, color)
    elif kind == DOOR:
        draw_door(canvas, state_of(code), color, left, top, size)
    elif kind == BOX:
        low, high = 0.16 * size, 0.84 * size
        canvas.rectangle(left + low, top + low, left + high, top + high, color)
        canvas.line((left + low, top + size / 2), (left + high, top + size / 2), 0.06 * size, DARK)
    elif kind == KEY:
        x, y = middle
        canvas.line((x, y - 0.2 * size), (x, y + 0.34 * size), 0.12 * size, color)
        canvas.line((x, y + 0.3 * size), (x - 0.16 * size, y + 0.3 * size), 0.1 * size, color)
        canvas.line((x, y + 0.12 * size), (x - 0.16 * size, y + 0.12 * size), 0.1 * size, color)
        canvas.disc((x, y - 0.2 * size), 0.18 * size, color)
        canvas.disc((x, y - 0.2 * size), 0.07 * size, DARK)


def draw_door(canvas: Canvas, state: int, color: Color, left: float, top: float, size: float) -> None:
    """Draw a door: a frame if it is open, with a leaf and a knob if closed, filled with a keyhole if locked."""
    canvas.rectangle(left, top, left + size, top + size, color)
    if state != LOCKED:
        rim = 0.1 * size
        canvas.rectangle(left + rim, top + rim, left + size - rim, top + size - rim, SEEN if state == OPEN else DARK)
    if state == CLOSED:
        rim = 0.2 * size
        canvas.rectangle(left + rim, top + rim, left + size - rim, top + size - rim, color)
    if state != OPEN:
        canvas.disc((left + 0.66 * size, top + size / 2), 0.09 * size, DARK)
    if state == LOCKED:
        canvas.line((left + 0.66 * size, top + size / 2), (left + 0.66 * size, top + 0.72 * size), 0.08 * size, DARK)


def draw_agent(canvas: Canvas, s: Any, size: float) -> None:
    """Draw the agent as an arrow, and what it carries in the middle of it."""
    x, y = (s.x + 0.5) * size, (s.y + 0.5) * size
    forward_x, forward_y = 0.4 * size * X_STEP[s.direction], 0.4 * size * Y_STEP[s.direction]
    tip = (x + forward_x, y + forward_y)
    left = (x - forward_x + 0.8 * forward_y, y - forward_y - 0.8 * forward_x)
    right = (x - forward_x - 0.8 * forward_y, y - forward_y + 0.8 * forward_x)
    canvas.polygon([tip, left, right], ARROW)
    if s.carried != EMPTY_CELL:
        half = 0.25 * size
        draw_object(canvas, int(s.carried), x - forward_x / 3 - half, y - forward_y / 3 - half, 2 * half)


def grid_text(s: Any) -> str:
    """The grid as text, two letters a cell: what it is and its colour (grey is e); below, what the agent carries."""
    columns, rows = s.grid.shape
    lines = [[cell_text(int(s.grid[x, y])) for x in range(columns)] for y in range(rows)]
    lines[s.y][s.x] = ARROWS[s.direction] + " "
    carried = "" if s.carried == EMPTY_CELL else "\ncarries " + cell_text(int(s.carried))
    return "\n".join("".join(line).rstrip() for line in lines) + carried


def cell_text(code: int) -> str:
    """A cell in two letters; a locked door is L, a closed one D and an open one _."""
    kind, letter = kind_of(code), COLOR_LETTERS[color_of(code)]
    if code == EMPTY_CELL:
        return "  "
    if kind == WALL:
        return "##"
    if kind == DOOR:
        return ("_", "D", "L")[state_of(code)] + letter
    return {KEY: "K", BALL: "O", BOX: "B", GOAL: "G"}[kind] + letter
