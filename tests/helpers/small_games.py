"""Games and players for tests of matches: small pools, and players whose every move can be told in advance."""

from functools import cache
from typing import Any

import numpy as np

from scramjet.engine import NativePool
from scramjet.envs import Box, Discrete, Env, randint
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.players.player import UserPlayer


class Guess(Env):
    """Two seats guess a coin in turn, four times; it is thrown when they have guessed. Who is right gains 1."""

    num_seats = 2
    observation_space = Box(0, 4, (1,), np.float32)
    action_space = Discrete(2)
    state = {"ply": np.int32}

    def reset(self, s: Any) -> None:
        s.ply = 0

    def seat(self, s: Any) -> int:
        return s.ply % 2

    def step(self, s: Any, action: Any, reward: Any) -> bool:
        if randint(s, 2) == action:
            reward[s.ply % 2] = 1.0
        s.ply += 1
        return s.ply == 4

    def observe(self, s: Any, obs: Any, player: Any) -> None:
        obs[0] = s.ply


def four(num_envs: int, **parameters: Any) -> NativePool:
    """A pool of Connect Four."""
    return NativePool(ConnectFour(**parameters), num_envs, num_threads=1)


def taking(which: str) -> UserPlayer:
    """Takes the "leftmost", "middle" or "rightmost" of the legal actions."""
    share = {"leftmost": 0.0, "middle": 0.5, "rightmost": 1.0}[which]
    return UserPlayer(lambda view: view.legal[int(share * (len(view.legal) - 1))], which)


def in_turn(num_games: int) -> np.ndarray:
    """Seating [G, 2] in which players 0 and 1 begin in turn."""
    first = np.arange(num_games) % 2
    return np.stack([first, 1 - first], axis=1)


LINES = [0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100]
"""The lines of tic-tac-toe as sets of cells."""


def cells(plane: np.ndarray) -> int:
    """A board of 0 and 1 [3, 3] as a set of cells."""
    return int((plane.ravel().astype(int) << np.arange(9)).sum())


def has_line(pieces: int) -> bool:
    return any(pieces & line == line for line in LINES)


def free_cells(own: int, other: int) -> list[int]:
    return [cell for cell in range(9) if not (own | other) >> cell & 1]


@cache
def best_result(own: int, other: int) -> int:
    """Tic-tac-toe with best play for the side to move: 1 won, 0 drawn, -1 lost."""
    if has_line(other):
        return -1
    return max((-best_result(other, own | 1 << cell) for cell in free_cells(own, other)), default=0)
