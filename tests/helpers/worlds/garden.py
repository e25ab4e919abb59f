"""A world that uses all that rules may use: arrays, masks, stats, helpers here and elsewhere, constants."""

import math

import numpy as np
from garden_paths import BONUS, distance, turn

from scramjet.envs import Box, Discrete, Env, choice, normal, randint, shuffle, uniform

MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
WEIGHTS = np.array([0.5, 0.25, 0.125, 0.0625])


def is_free(walls, row, column, size):
    """A helper beside the class, called by another helper and by the rules."""
    return 0 <= row < size and 0 <= column < size and not walls[row, column]


def count_free(walls, row, column, size):
    free = 0
    for move in MOVES:
        if is_free(walls, row + move[0], column + move[1], size):
            free += 1
    return free


class Garden(Env):
    """Walk a small walled garden and pick fruit."""

    size: int = 5
    fruit_value: float = 0.75
    is_windy: bool = True
    max_episode_steps = 23

    num_fruits = 3
    prices = (1.0, 2.0, 4.0)
    table = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.int16)

    action_space = Discrete(5)
    stat_names = ("picked", "walked")

    @property
    def observation_space(self):
        return Box(-100, 100, (self.size * self.size + 6,), np.float32)

    @property
    def state(self):
        return {
            "row": np.int8,
            "column": np.uint8,
            "walls": (np.int8, (self.size, self.size)),
            "fruits": (np.int16, (self.size, self.size)),
            "order": (np.int8, 6),
            "wind": np.float64,
            "warmth": (np.float64, 2),
            "picked": np.int32,
            "walked": np.int64,
            "tired": np.bool_,
        }

    @property
    def center(self):
        return self.size // 2

    def reset(self, s):
        for i in range(len(s.order)):
            s.order[i] = i * 20
        shuffle(s, s.order)
        for row in range(self.size):
            for column in range(self.size):
                s.walls[row, column] = uniform(s) < 0.2
        s.row = self.center
        s.column = self.center
        s.walls[s.row, s.column] = False
        for _ in range(self.num_fruits):
            s.fruits[randint(s, self.size), randint(s, self.size)] += 100
        s.wind = normal(s, 0.0, 0.5) if self.is_windy else 0.0
        s.warmth[0] = choice(s, self.prices)

    def step(self, s, action):
        reward = -0.01
        if action < 4:
            move = MOVES[turn(action, s.wind)]
            if is_free(s.walls, s.row + move[0], s.column + move[1], self.size):
                s.row += move[0]
                s.column += move[1]
                s.walked += 1
        elif s.fruits[s.row, s.column] > 0:
            reward += self.fruit_value * (s.fruits[s.row, s.column] * 100 // 7) / 50.0 + BONUS
            s.fruits[s.row, s.column] = 0
            s.picked += 1
        total = 0
        for value in s.order:
            total += value * 100  # more than an int8 holds
        s.warmth[1] += math.sin(s.wind) * WEIGHTS[action % 4] + self.table[action % 2, 1] * 0.125 + total % 7
        s.warmth[1] = min(s.warmth[1], 50.0)
        s.tired = s.walked > 8
        if uniform(s) < 0.1:
            s.wind = -s.wind
        return reward, s.picked == self.num_fruits or (s.tired and uniform(s) < 0.2)

    def observe(self, s, obs):
        for row in range(self.size):
            for column in range(self.size):
                obs[row * self.size + column] = -1.0 if s.walls[row, column] else s.fruits[row, column] / 7
        last = self.size * self.size
        obs[last] = s.row
        obs[last + 1] = s.column
        obs[last + 2] = s.wind
        obs[last + 3] = s.warmth[0] + s.warmth[1]
        obs[last + 4] = distance(s.row, s.column, self.center)
        obs[last + 5] = s.order[5] if s.tired else -s.order[0]

    def mask(self, s, mask):
        if s.tired:
            mask[0] = False
        if not s.fruits[s.row, s.column]:
            mask[4] = False
        if count_free(s.walls, s.row, s.column, self.size) == 0:
            mask[1] = False

    def stats(self, s, stats):
        stats.picked = s.picked
        stats.walked = s.walked / (1 + s.picked)
