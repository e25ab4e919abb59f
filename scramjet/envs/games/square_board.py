"""What games on a board share: its turns and mirrors, and the names of its cells."""

from __future__ import annotations

from functools import partial

import numpy as np

from scramjet.envs.api import Symmetry

TURNS: dict[str, tuple[int, bool]] = {
    "quarter turn": (1, False),
    "half turn": (2, False),
    "three-quarter turn": (3, False),
    "mirror": (0, True),
    "mirror and quarter turn": (1, True),
    "mirror and half turn": (2, True),
    "mirror and three-quarter turn": (3, True),
}
"""Quarter turns to the left, and whether left and right are exchanged before them; all but the identity."""


def turned(planes: np.ndarray, quarter_turns: int, is_mirrored: bool) -> np.ndarray:
    """Planes [..., size, size] with left and right exchanged, if asked for, and then turned to the left."""
    flipped = np.flip(planes, axis=-1) if is_mirrored else planes
    return np.rot90(flipped, quarter_turns, axes=(-2, -1))


def square_symmetries(size: int, num_other_actions: int = 0) -> tuple[Symmetry, ...]:
    """The seven symmetries of a board whose actions are its cells, row by row, and then some that no turn changes."""
    cells = np.arange(size * size).reshape(size, size)
    others = range(size * size, size * size + num_other_actions)
    symmetries = []
    for name, (quarter_turns, is_mirrored) in TURNS.items():
        places = np.argsort(turned(cells, quarter_turns, is_mirrored).ravel())  # where each cell has gone
        observe = partial(turned, quarter_turns=quarter_turns, is_mirrored=is_mirrored)
        symmetries.append(Symmetry(name, observe, (*places.tolist(), *others)))
    return tuple(symmetries)


def direction_symmetries(*, is_square: bool) -> tuple[Symmetry, ...]:
    """The symmetries of a board whose actions are up, right, down and left; of an oblong one those that keep its sides:
    the half turn and both mirrors."""
    symmetries = []
    for name, (quarter_turns, is_mirrored) in TURNS.items():
        if is_square or quarter_turns % 2 == 0:
            observe = partial(turned, quarter_turns=quarter_turns, is_mirrored=is_mirrored)
            actions = [((-action if is_mirrored else action) - quarter_turns) % 4 for action in range(4)]
            symmetries.append(Symmetry(name, observe, actions))
    return tuple(symmetries)


def cell_names(size: int) -> tuple[str, ...]:
    """Names of cells, row by row from the top: the column's letter and the row's number, "a1" at the upper left."""
    return tuple(f"{'abcdefghijklmnopqrstuvwxyz'[column]}{1 + row}" for row in range(size) for column in range(size))


def board_text(cells: list[list[str]]) -> str:
    """Rows of cells with their names around them."""
    letters = " ".join("abcdefghijklmnopqrstuvwxyz"[column] for column in range(len(cells)))
    return "\n".join([*(f"{1 + row:>2} {' '.join(line)}" for row, line in enumerate(cells)), f"   {letters}"])
