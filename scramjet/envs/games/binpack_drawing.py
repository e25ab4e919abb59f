"""Pictures of a loaded container: boxes in space, and a plan with a table."""

from __future__ import annotations

import colorsys
import string
from typing import Any

import numpy as np

from scramjet.envs.drawing import Canvas, Color, Point

TO_SCREEN = np.array([[0.86, 0.20], [0.50, -0.27], [0.0, -0.92]])
"""Where x, y and z point to: right and near, right and far, up. So a box shows its high x, low y and high z faces."""
LETTERS = string.ascii_uppercase + string.ascii_lowercase
WIDTH, HEIGHT, MARGIN, BAR = 600, 340, 24, 36
WALLS = ((2, 0, (226, 222, 214)), (1, 1, (238, 235, 229)), (0, 0, (232, 229, 222)))
FACES = ((2, 1, 0.92), (1, 0, 0.78), (0, 1, 0.64))
"""Axis, side and brightness of the faces of a box that are seen."""

Corner = tuple[int, int, int]


def placed_boxes(s: Any) -> dict[int, np.ndarray]:
    """The low and the high corner, [2, 3], of each placed item."""
    return {
        item: np.array([s.location[item], s.location[item] + s.lengths[item]])
        for item in range(s.num_items)
        if s.placed[item]
    }


def letter(item: int) -> str:
    """An item's sign in the plan."""
    return LETTERS[item % len(LETTERS)]


def picture(s: Any, container: Corner) -> np.ndarray:
    """The container seen from above its near end, and a bar with the share of its volume that is used."""
    canvas = Canvas(WIDTH, HEIGHT)
    room = np.array([(0, 0, 0), container])
    corners = np.array([corner for side in (0, 1) for corner in face(room, 0, side)]) @ TO_SCREEN
    extent = np.ptp(corners, axis=0)
    scale = min((WIDTH - 2 * MARGIN) / extent[0], (HEIGHT - 2 * MARGIN - BAR) / extent[1])
    origin = (np.array([WIDTH, HEIGHT - BAR]) - scale * extent) / 2 - scale * corners.min(axis=0)

    def on_screen(corners: list[Corner]) -> list[Point]:
        return [(x, y) for x, y in (origin + scale * (np.array(corners) @ TO_SCREEN)).tolist()]

    for axis, side, color in WALLS:
        canvas.polygon(on_screen(face(room, axis, side)), (150, 152, 158))
        canvas.polygon(on_screen(face(room, axis, side)), color, inset=1)
    boxes = placed_boxes(s)
    for item in back_to_front(boxes):
        for axis, side, brightness in FACES:
            canvas.polygon(on_screen(face(boxes[item], axis, side)), item_color(item, 0.36))
            canvas.polygon(on_screen(face(boxes[item], axis, side)), item_color(item, brightness), inset=0.8)
    length, width, height = container
    for far in ((0, 0, height), (length, width, height), (length, 0, 0)):
        start, end = on_screen([(length, 0, height), far])
        canvas.line(start, end, 1.5, (90, 98, 112))
    used = (WIDTH - 2 * MARGIN) * s.volume_placed / (length * width * height)
    canvas.rectangle(MARGIN, HEIGHT - 34, WIDTH - MARGIN, HEIGHT - 24, (226, 222, 214))
    canvas.rectangle(MARGIN, HEIGHT - 34, MARGIN + used, HEIGHT - 24, (120, 140, 220))
    return canvas.pixels


def face(box: np.ndarray, axis: int, side: int) -> list[Corner]:
    """The corners of a box that lie on one side of an axis, in a ring."""
    corners = []
    for first, second in ((0, 0), (0, 1), (1, 1), (1, 0)):
        sides = [first, second]
        sides.insert(axis, side)
        corners.append((int(box[sides[0], 0]), int(box[sides[1], 1]), int(box[sides[2], 2])))
    return corners


def back_to_front(boxes: dict[int, np.ndarray]) -> list[int]:
    """An order to paint boxes in: the next is one that hides none of the rest."""
    left = sorted(boxes, key=lambda i: float(boxes[i][0] @ (1, -1, 1)))
    order = []
    while left:
        free = (i for i in left if all(i == j or cannot_hide(boxes[i], boxes[j]) for j in left))
        order.append(next(free, left[0]))  # three boxes may hide one another in a ring
        left.remove(order[-1])
    return order


def cannot_hide(box: np.ndarray, other: np.ndarray) -> bool:
    """Whether a plane parts the boxes with `box` on its far side."""
    return bool(box[1, 0] <= other[0, 0] or box[0, 1] >= other[1, 1] or box[1, 2] <= other[0, 2])


def item_color(item: int, brightness: float) -> Color:
    """A calm colour of the item's own; golden steps of hue keep neighbours apart."""
    red, green, blue = colorsys.hsv_to_rgb((0.58 + item * 0.618034) % 1, 0.38, brightness)
    return int(255 * red), int(255 * green), int(255 * blue)


def text(s: Any, container: Corner) -> str:
    """The container from above, how high it is filled, and a table of the items."""
    share = s.volume_placed / (container[0] * container[1] * container[2])
    lines = [*plan(s, container), "", "item     length  width height     at x      y      z"]
    for item in range(s.num_items):
        sizes = "".join(f"{length:7d}" for length in s.lengths[item])
        place = "".join(f"{edge:7d}" if s.placed[item] else "      -" for edge in s.location[item])
        lines.append(f"{item:3d} {letter(item)}  {sizes}  {place}")
    lines += ["", f"{s.num_placed} of {s.num_items} items placed   {share:.1%} of the volume used"]
    return "\n".join(lines)


def plan(s: Any, container: Corner, columns: int = 44, rows: int = 12) -> list[str]:
    """Side by side, the item on top at each place and the tenth of the height that it reaches."""
    x = (np.arange(columns) + 0.5) * container[0] / columns
    y = (np.arange(rows) + 0.5) * container[1] / rows
    letters = np.full((rows, columns), ".")
    heights = np.zeros((rows, columns))
    for item, (low, high) in placed_boxes(s).items():
        area = np.ix_((low[1] <= y) & (y < high[1]), (low[0] <= x) & (x < high[0]))
        letters[area] = np.where(heights[area] < high[2], letter(item), letters[area])
        heights[area] = np.maximum(heights[area], high[2])
    tenths = np.ceil(10 * heights / container[2]).astype(int) - 1
    lines = [f"{'from above':{columns}}   height in tenths"]
    for row in reversed(range(rows)):
        lines.append(f"{''.join(letters[row])}   {''.join('.' if n < 0 else str(n) for n in tenths[row])}")
    return lines
