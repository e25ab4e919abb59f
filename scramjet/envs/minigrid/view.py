"""What an agent of MiniGrid sees: the square of cells before it, less what walls and closed doors hide."""

from __future__ import annotations

from typing import Any

from scramjet.envs.minigrid.cells import WALL_CELL, X_STEP, Y_STEP, color_of, is_opaque, kind_of, state_of


def spread_sight(visible: int, opaque: int, size: int) -> tuple[int, int]:
    """Cells seen in a row of the view and, from there, in the row behind it; a bit for each cell, from the left.

    From a cell that is seen and not opaque, its neighbours to the left and right are seen, and the three behind.
    """
    behind = 0
    for i in range(size - 1):
        if (visible & ~opaque) >> i & 1:
            visible |= 2 << i
            behind |= 3 << i
    for i in range(size - 2, -1, -1):
        if (visible & ~opaque) >> i & 2:
            visible |= 1 << i
            behind |= 3 << i
    return visible, behind


def write_view(s: Any, view: Any, sees_through_walls: bool) -> None:
    """Write the square before the agent into `view` [x, y, 3]: object, colour and state of each cell, 0 if not seen.

    The agent stands in the middle of the last row and looks towards the first; its own cell shows what it carries.
    """
    size, (columns, rows) = view.shape[0], s.grid.shape
    middle = size // 2
    forward_x, forward_y = X_STEP[s.direction], Y_STEP[s.direction]
    visible, everything = 1 << middle, (1 << size) - 1
    for depth in range(size):
        opaque = 0
        for i in range(size):
            x = s.x + depth * forward_x - (i - middle) * forward_y
            y = s.y + depth * forward_y + (i - middle) * forward_x
            code = s.grid[x, y] if 0 <= x < columns and 0 <= y < rows else WALL_CELL
            write_cell(view, i, size - 1 - depth, code)
            opaque |= int(is_opaque(code)) << i
        visible, behind = (everything, 0) if sees_through_walls else spread_sight(visible, opaque, size)
        for i in range(size):
            if not visible >> i & 1:
                write_cell(view, i, size - 1 - depth, 0)
        visible = behind
    write_cell(view, middle, size - 1, s.carried)


def write_cell(view: Any, i: int, j: int, code: int) -> None:
    """Write what a cell shows."""
    view[i, j, 0] = kind_of(code)
    view[i, j, 1] = color_of(code)
    view[i, j, 2] = state_of(code)
