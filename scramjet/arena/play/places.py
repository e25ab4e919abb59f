"""Where a world's actions lie on its picture, as its `action_at` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scramjet.arena.play.moves import Move
from scramjet.engine.actions import action_at, says_where_actions_lie
from scramjet.envs.api import Env

POINTS = 41
"""Points that are asked for along each side of a picture: odd, so that the middle is one of them."""
HALVINGS = 8
"""How often the distance between two points is halved to find the edge of a place."""


@dataclass(frozen=True, slots=True)
class Place:
    """A box on a picture all of which means one move; its sides are shares of the picture's width and height."""

    number: int  # of the move
    left: float
    top: float
    right: float
    bottom: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def find_places(env: Env, s: Any, moves: Sequence[Move]) -> list[Place]:
    """The places of these moves on the picture of `s`, to a thousandth of its sides; of moves whose place is a box."""
    if not says_where_actions_lie(env):
        return []
    ticks = (np.arange(POINTS) + 0.5) / POINTS
    numbers = np.array([[_number(env, s, x, y) for x in ticks] for y in ticks])  # [y, x]
    places = []
    for move in moves:
        hits = np.argwhere(numbers == move.number)
        spans = np.ptp(hits, axis=0) + 1 if len(hits) else np.zeros(2)
        if 0 < spans.prod() == len(hits):  # it fills the box around it
            places.append(_box(env, s, move.number, ticks[hits]))
    return places


def _number(env: Env, s: Any, x: float, y: float) -> int:
    found = action_at(env, s, float(x), float(y))
    return -1 if found is None else found


def _box(env: Env, s: Any, number: int, points: np.ndarray) -> Place:
    """The box around the points [points, (y, x)] of a move, its sides moved outwards to where the move ends."""

    def edge(axis: int, sign: int) -> float:
        inside = points[np.argmax(sign * points[:, axis])].copy()
        outside = inside.copy()
        outside[axis] = min(max(inside[axis] + sign / POINTS, 0.0), np.nextafter(1.0, 0.0))
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            if _number(env, s, middle[1], middle[0]) == number:
                inside = middle
            else:
                outside = middle
        return round(float(inside[axis]), 4)

    return Place(number, edge(1, -1), edge(0, -1), edge(1, 1), edge(0, 1))
