"""A snake that goes straight for the nearest food and avoids only the death of the next step: the bar to beat."""

from __future__ import annotations

import numpy as np

from scramjet.envs.games.snake import BODY, FOODS, HEAD, OTHERS

UP, RIGHT, DOWN, LEFT = range(4)
MOVES = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}


def greedy_action(obs: np.ndarray) -> int:
    """The move that survives the next step and ends nearest to food; the first of equals. `obs` is [5, H, W]."""
    if not obs[HEAD].any():
        return UP  # dead
    size = obs.shape[1]
    row, column = np.argwhere(obs[HEAD])[0]
    foods = np.argwhere(obs[FOODS])
    taken = (obs[BODY] > 0) | (obs[OTHERS] > 0)
    taken[np.unravel_index(np.where(obs[BODY], obs[BODY], 255).argmin(), taken.shape)] = False  # the tail moves on
    best, action = np.inf, UP
    for move, (down, right) in MOVES.items():
        next_row, next_column = row + down, column + right
        if not (0 <= next_row < size and 0 <= next_column < size) or taken[next_row, next_column]:
            continue
        distance = np.abs(foods - (next_row, next_column)).sum(axis=1).min(initial=2 * size)
        if distance < best:
            best, action = distance, move
    return action
