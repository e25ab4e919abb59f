"""Where the stickers of a 3x3x3 cube sit in space, and so where turns, rotations and mirrors move them.

A sticker is numbered `9 * face + 3 * row + column`, rows and columns as seen when looking straight at the face. In
space x points to the right face, y to the upper and z to the front one, and a sticker lies two units from the middle
of the cube along its face's normal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scramjet.envs.api import Symmetry

FACES = "UFRBLD"  # up, front, right, back, left, down
NUM_FACES = 6
NUM_STICKERS = 54
NUM_ACTIONS = 18
QUARTER_TURNS = (1, 3, 2)  # clockwise, of a face's three actions: X, X' and X2

NORMALS = np.array([(0, 1, 0), (0, 0, 1), (1, 0, 0), (0, 0, -1), (-1, 0, 0), (0, -1, 0)])  # [face, xyz]
COLUMN_STEPS = np.array([(1, 0, 0), (1, 0, 0), (0, 0, -1), (-1, 0, 0), (0, 0, 1), (1, 0, 0)])  # towards higher columns
ROW_STEPS = np.array([(0, 0, 1), (0, -1, 0), (0, -1, 0), (0, -1, 0), (0, -1, 0), (0, 0, -1)])  # towards higher rows
MIRROR = np.diag([-1, 1, 1])  # exchanges left and right

Motion = Callable[[np.ndarray], np.ndarray]
"""Where a point of space goes, [3] to [3], whole numbers."""


def _points() -> np.ndarray:
    """The place of every sticker in space, [sticker, xyz]."""
    face, row, column = (place[:, None] for place in np.unravel_index(np.arange(NUM_STICKERS), (NUM_FACES, 3, 3)))
    face = face[:, 0]
    return 2 * NORMALS[face] + (column - 1) * COLUMN_STEPS[face] + (row - 1) * ROW_STEPS[face]


POINTS = _points()
NUMBERS = {tuple(point): number for number, point in enumerate(POINTS.tolist())}


def sticker_targets(motion: Motion) -> np.ndarray:
    """The number of the place that each sticker goes to, [sticker]."""
    return np.array([NUMBERS[tuple(motion(point).tolist())] for point in POINTS])


def rotation(face: int) -> np.ndarray:
    """The matrix that turns the whole cube a quarter clockwise, looking at `face`, [3, 3]."""
    axis = NORMALS[face]
    return np.array([axis * (axis @ unit) + np.cross(unit, axis) for unit in np.eye(3, dtype=int)]).T


def clockwise_turn(face: int) -> np.ndarray:
    """Where each sticker goes when the layer of `face` is turned a quarter clockwise, [sticker]."""
    matrix, axis = rotation(face), NORMALS[face]
    return sticker_targets(lambda point: matrix @ point if point @ axis >= 1 else point)


def _turn_cycles() -> np.ndarray:
    """The five rings of four places each around which a clockwise turn moves stickers, int8 [face, ring, 4]."""
    rings = []
    for face in range(NUM_FACES):
        target = clockwise_turn(face)
        moved = {place for place in range(NUM_STICKERS) if target[place] != place}
        while moved:
            ring = [min(moved)]
            while target[ring[-1]] != ring[0]:
                ring.append(int(target[ring[-1]]))
            rings.append(ring)
            moved -= set(ring)
    return np.array(rings, np.int8).reshape(NUM_FACES, 5, 4)


TURN_CYCLES = _turn_cycles()


def cube_symmetry(name: str, matrix: np.ndarray) -> Symmetry:
    """The cube moved as a whole by a rotation or mirror, its colours renamed so that it is solved where it was before.

    Observations are one-hot, [..., sticker, colour]. A colour is the number of the face it belongs on.
    """
    sources = np.argsort(sticker_targets(lambda point: matrix @ point))
    face_sources = sources[4::9] // 9  # centres
    new_faces = np.argsort(face_sources)
    is_mirror = np.linalg.det(matrix) < 0
    directions = (1, 0, 2) if is_mirror else (0, 1, 2)  # in a mirror, clockwise is the other way round
    actions = [int(3 * new_faces[action // 3] + directions[action % 3]) for action in range(NUM_ACTIONS)]
    return Symmetry(name, lambda obs: obs[..., sources, :][..., face_sources], actions)


SYMMETRIES = (
    cube_symmetry("turn around the upright axis", rotation(0)),
    cube_symmetry("turn around the axis to the right", rotation(2)),
    cube_symmetry("mirror", MIRROR),
)
"""Those of which the 48 of the cube are made."""
