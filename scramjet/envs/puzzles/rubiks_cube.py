"""Rubik's cube: bring a scrambled cube of 3x3x3 back to one colour a face.

The rules are those of RubiksCube of Jumanji (Bonnet et al. 2024, "Jumanji: a diverse suite of scalable reinforcement
learning environments in JAX"), with its three-part actions numbered `3 * face + direction`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env, Symmetry
from scramjet.envs.drawing import Canvas, Color
from scramjet.envs.rng import randint

# --- Where the stickers of a 3x3x3 cube sit in space, and so where turns, rotations and mirrors move them
#
# A sticker is numbered `9 * face + 3 * row + column`, rows and columns as seen when looking straight at the face. In
# space x points to the right face, y to the upper and z to the front one, and a sticker lies two units from the middle
# of the cube along its face's normal.


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


# --- The rules


MOST_SCRAMBLES = 1000
NET = ((0, 3), (3, 3), (3, 6), (3, 9), (3, 0), (6, 3))  # row and column of each face's upper left in the unfolded cube
CELL = 36  # pixels of a sticker in the picture
MARGIN = 12
GAP = 6  # between faces
PAPER: Color = (250, 248, 244)
BODY: Color = (38, 42, 50)
COLORS: tuple[Color, ...] = (
    (246, 246, 246),  # white, up
    (62, 156, 92),  # green, front
    (206, 62, 58),  # red, right
    (58, 98, 190),  # blue, back
    (238, 136, 52),  # orange, left
    (242, 208, 72),  # yellow, down
)


def turn(cube: Any, action: int) -> None:
    """Turn one layer: the stickers on each of its rings move on by one, two or three places."""
    face, quarters = action // 3, QUARTER_TURNS[action % 3]
    for ring in range(5):
        first = cube[TURN_CYCLES[face, ring, 0]]
        second = cube[TURN_CYCLES[face, ring, 1]]
        third = cube[TURN_CYCLES[face, ring, 2]]
        fourth = cube[TURN_CYCLES[face, ring, 3]]
        cube[TURN_CYCLES[face, ring, quarters]] = first
        cube[TURN_CYCLES[face, ring, (1 + quarters) % 4]] = second
        cube[TURN_CYCLES[face, ring, (2 + quarters) % 4]] = third
        cube[TURN_CYCLES[face, ring, (3 + quarters) % 4]] = fourth


def is_solved(cube: Any) -> bool:
    """Whether every face is of one colour, that of its centre."""
    num_right = 0
    while num_right < NUM_STICKERS and cube[num_right] == cube[num_right // 9 * 9 + 4]:
        num_right += 1
    return num_right == NUM_STICKERS


def scramble(s: Any, num_turns: int) -> None:
    """Turn a solved cube at random, each of the 18 turns as likely, whatever came before."""
    for sticker in range(NUM_STICKERS):
        s.cube[sticker] = sticker // 9
    for _ in range(num_turns):
        turn(s.cube, randint(s, NUM_ACTIONS))


class RubiksCube(Env):
    """Bring a scrambled Rubik's cube back to one colour a face."""

    scrambles: int = 7
    varied_scrambles: bool = False

    max_episode_steps = 20
    observation_space = Box(0, 1, (NUM_STICKERS, NUM_FACES), np.int8)  # one-hot: the colour of each sticker
    action_space = Discrete(NUM_ACTIONS)
    action_names = tuple(f"{face}{direction}" for face in FACES for direction in ("", "'", "2"))
    symmetries: tuple[Symmetry, ...] = SYMMETRIES
    stat_names = ("solved",)
    state = {"cube": (np.int8, NUM_STICKERS)}  # the colour of each sticker, which is the face it belongs on
    state_bounds = {"cube": (0, NUM_FACES - 1)}

    def reset(self, s: Any) -> None:
        num_turns = 1 + randint(s, self.scrambles) if self.varied_scrambles else self.scrambles
        scramble(s, num_turns)
        while is_solved(s.cube):  # the turns may undo each other
            scramble(s, num_turns)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        turn(s.cube, action)
        solved = is_solved(s.cube)
        return (1.0 if solved else 0.0), solved

    def observe(self, s: Any, obs: Any) -> None:
        for sticker in range(NUM_STICKERS):
            for color in range(NUM_FACES):
                obs[sticker, color] = 0
            obs[sticker, s.cube[sticker]] = 1

    def stats(self, s: Any, stats: Any) -> None:
        stats.solved = 1.0 if is_solved(s.cube) else 0.0

    def validate(self) -> None:
        if not 1 <= self.scrambles <= MOST_SCRAMBLES:
            raise ValueError(f"scrambles={self.scrambles} must be from 1 to {MOST_SCRAMBLES}")

    def render(self, s: Any) -> np.ndarray:
        canvas = Canvas(12 * CELL + 3 * GAP + 2 * MARGIN, 9 * CELL + 2 * GAP + 2 * MARGIN, PAPER)
        for face, (top, left) in enumerate(NET):
            x, y = MARGIN + CELL * left + GAP * (left // 3), MARGIN + CELL * top + GAP * (top // 3)
            canvas.rectangle(x, y, x + 3 * CELL, y + 3 * CELL, BODY)
            for place in range(9):
                right, below = x + CELL * (place % 3), y + CELL * (place // 3)
                color = COLORS[s.cube[9 * face + place]]
                canvas.rectangle(right + 2, below + 2, right + CELL - 2, below + CELL - 2, color)
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        cells = [[" "] * 12 for _ in range(9)]
        for sticker, color in enumerate(s.cube):
            top, left = NET[sticker // 9]
            cells[top + sticker % 9 // 3][left + sticker % 3] = FACES[color]
        return "\n".join(" ".join(row).rstrip() for row in cells)
