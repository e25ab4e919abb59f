"""Pictures of cards and chips."""

from __future__ import annotations

import math
from itertools import pairwise

from scramjet.envs.drawing import Canvas, Color, Point

CARD_WIDTH, CARD_HEIGHT = 80, 116
TABLE: Color = (86, 138, 104)
FACE: Color = (250, 248, 244)
BACK: Color = (74, 98, 158)
EDGE: Color = (36, 44, 60)
GREYED: Color = (150, 156, 150)
CHIPS: tuple[Color, Color] = ((240, 190, 82), (220, 164, 56))

RING: list[Point] = [
    (0.5 + 0.34 * math.cos(k * math.pi / 8), 0.45 + 0.4 * math.sin(k * math.pi / 8)) for k in range(17)
]
LETTERS: tuple[list[list[Point]], ...] = (
    [[(0.65, 0.05), (0.65, 0.72), (0.55, 0.87), (0.38, 0.9), (0.25, 0.78)]],  # J
    [RING, [(0.6, 0.65), (0.85, 0.95)]],  # Q
    [[(0.22, 0.05), (0.22, 0.9)], [(0.8, 0.05), (0.24, 0.5)], [(0.36, 0.42), (0.82, 0.9)]],  # K
    [[(0.12, 0.9), (0.5, 0.05), (0.88, 0.9)], [(0.27, 0.6), (0.73, 0.6)]],  # A
)
"""The strokes of J, Q, K and A in a square of 1 x 1."""


def draw_card(canvas: Canvas, left: float, top: float, rank: int | None, is_folded: bool = False) -> None:
    """Draw a card by its rank, 0 being the jack; None: face down. A folded hand is grey."""
    right, bottom = left + CARD_WIDTH, top + CARD_HEIGHT
    canvas.rectangle(left, top, right, bottom, EDGE)
    canvas.rectangle(left + 2, top + 2, right - 2, bottom - 2, GREYED if is_folded else FACE)
    if rank is None:
        canvas.rectangle(left + 8, top + 8, right - 8, bottom - 8, BACK)
        return
    size = 0.55 * CARD_WIDTH
    x, y = left + (CARD_WIDTH - size) / 2, top + (CARD_HEIGHT - size) / 2
    for stroke in LETTERS[rank]:
        for start, end in pairwise(stroke):
            canvas.line((x + size * start[0], y + size * start[1]), (x + size * end[0], y + size * end[1]), 6, EDGE)


def draw_chips(canvas: Canvas, left: float, y: float, count: int) -> None:
    """Draw a row of chips that overlap as far as they must."""
    step = min(20.0, (CARD_WIDTH - 20) / max(1, count - 1))
    for k in range(count):
        canvas.disc((left + 10 + k * step, y), 10, CHIPS[1])
        canvas.disc((left + 10 + k * step, y), 7, CHIPS[0])
