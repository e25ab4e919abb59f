"""Worlds that need memory: Memory, in which bits are repeated, and TMaze, in which a sign is remembered."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import randint

# --- Memory: see a row of bits, wait, repeat them
#
# After PufferLib's Memory (Suarez 2024). A bit is shown as -1 or +1 and a blank as 0, so that a bit that is off does
# not look like a blank; and the answers begin only when the last bit is gone, so that even one bit needs memory.

BIT_COLORS = ((226, 142, 72), (76, 100, 200))
LONGEST_PAUSE = 1_000_000


class Memory(Env):
    """See a row of bits, wait, repeat them."""

    length: int = 3
    delay: int = 0

    hidden = True  # the bits, once they have been shown
    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(2)
    stat_names = ("all_right",)

    @property
    def state(self) -> dict[str, Any]:
        return {"tick": np.int32, "bits": (np.int8, self.length), "answers": (np.int8, self.length)}

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"tick": (0, 2 * self.length + self.delay), "bits": (0, 1), "answers": (0, 1)}

    def reset(self, s: Any) -> None:
        for i in range(self.length):
            s.bits[i] = randint(s, 2)

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        asked = s.tick - self.length - self.delay
        is_right = False
        if 0 <= asked < self.length:
            s.answers[asked] = action
            is_right = action == s.bits[asked]
        s.tick += 1
        return (1.0 if is_right else 0.0), s.tick >= 2 * self.length + self.delay

    def observe(self, s: Any, obs: Any) -> None:
        obs[0] = 2 * s.bits[s.tick] - 1 if s.tick < self.length else 0

    def stats(self, s: Any, stats: Any) -> None:
        stats.all_right = 1.0
        for i in range(self.length):
            if s.answers[i] != s.bits[i]:
                stats.all_right = 0.0

    def validate(self) -> None:
        if self.length < 1:
            raise ValueError(f"length={self.length} must be at least 1: there is nothing to remember")
        if self.delay < 0:
            raise ValueError(f"delay={self.delay} must be at least 0")
        for name in ("length", "delay"):
            if getattr(self, name) > LONGEST_PAUSE:
                raise ValueError(f"{name}={getattr(self, name)} must be at most {LONGEST_PAUSE}")

    def render(self, s: Any) -> np.ndarray:
        num_ticks, answers_begin = 2 * self.length + self.delay, self.length + self.delay
        cell = min(100, max(8, 600 // num_ticks))
        canvas = Canvas(cell * num_ticks, 3 * cell)
        canvas.pixels[:, cell * s.tick : cell * (s.tick + 1)] = (236, 233, 226)
        for tick in range(num_ticks):
            x, asked = cell * (tick + 0.5), tick - answers_begin
            if tick < self.length:
                canvas.disc((x, cell), 0.32 * cell, BIT_COLORS[s.bits[tick]])
            elif asked < 0:
                canvas.disc((x, 1.5 * cell), 0.06 * cell, (160, 166, 176))
            elif tick < s.tick:
                canvas.disc((x, 2 * cell), 0.32 * cell, BIT_COLORS[s.answers[asked]])
                if s.answers[asked] != s.bits[asked]:
                    canvas.line((x - 0.3 * cell, 2 * cell), (x + 0.3 * cell, 2 * cell), 0.08 * cell, (36, 44, 60))
            else:
                canvas.disc((x, 2 * cell), 0.32 * cell, (205, 203, 198))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        num_answers = min(max(s.tick - self.length - self.delay, 0), self.length)
        answers = [str(answer) for answer in s.answers[:num_answers]] + ["?"] * (self.length - num_answers)
        return " ".join([*(str(bit) for bit in s.bits), *["."] * self.delay, *answers]) + f"\n{'  ' * s.tick}^"


# --- TMaze: a sign at the start of a corridor tells which way to turn at its far end
#
# Bakker (2002), "Reinforcement learning with long short-term memory", section 4: his actions, his three-bit
# observations and his rewards. There a player that walks back to the start sees the sign again; here it is seen once,
# before the first step, so that nothing but memory can bring it to the junction.


NORTH, EAST, SOUTH, WEST = 0, 1, 2, 3
RIGHT_TURN = 4.0
WRONG_TURN = -0.1
STANDING_STILL = -0.1
LONGEST_CORRIDOR = 1_000_000
STEPS_PER_CELL = 10
"""The time limit, in steps for each cell of the corridor."""


class TMaze(Env):
    """Remember which way a sign pointed until the corridor ends."""

    length: int = 10

    hidden = True  # the goal, once the sign is out of sight
    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(4)
    state = {"position": np.int32, "goal": np.int8, "has_acted": np.bool_, "is_right": np.bool_}
    stat_names = ("right",)

    @property
    def state_bounds(self) -> dict[str, tuple[int, int]]:
        return {"position": (0, self.length)}

    @property
    def max_episode_steps(self) -> int:  # type: ignore[override]
        return STEPS_PER_CELL * self.length

    def reset(self, s: Any) -> None:
        s.goal = NORTH if randint(s, 2) == 0 else SOUTH

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.has_acted = True
        if s.position == self.length and action in (NORTH, SOUTH):
            s.is_right = action == s.goal
            return (RIGHT_TURN if s.is_right else WRONG_TURN), True
        before = s.position
        if action == EAST:
            s.position = min(before + 1, self.length)
        elif action == WEST:
            s.position = max(before - 1, 0)
        return (STANDING_STILL if s.position == before else 0.0), False

    def observe(self, s: Any, obs: Any) -> None:
        if not s.has_acted:  # the sign: 011 or 110
            obs[0] = s.goal == SOUTH
            obs[1] = 1
            obs[2] = s.goal == NORTH
        else:  # 010 at the junction, 101 in the corridor
            is_junction = s.position == self.length
            obs[0] = not is_junction
            obs[1] = is_junction
            obs[2] = not is_junction

    def stats(self, s: Any, stats: Any) -> None:
        stats.right = s.is_right

    def validate(self) -> None:
        if self.length < 1:
            raise ValueError(f"length={self.length} must be at least 1")
        if self.length > LONGEST_CORRIDOR:
            raise ValueError(f"length={self.length} must be at most {LONGEST_CORRIDOR}")

    def render(self, s: Any) -> np.ndarray:
        cell = max(6, 600 // (self.length + 3))
        canvas = Canvas(cell * (self.length + 3), 5 * cell, (90, 98, 112))
        canvas.pixels[2 * cell : 3 * cell, cell : cell * (self.length + 2)] = (250, 248, 244)
        canvas.pixels[cell : 4 * cell, cell * (self.length + 1) : cell * (self.length + 2)] = (250, 248, 244)
        goal_y = 1.5 * cell if s.goal == NORTH else 3.5 * cell
        canvas.disc((cell * (self.length + 1.5), goal_y), 0.3 * cell, (226, 142, 72))
        if not s.has_acted:
            x, tip, back = 1.5 * cell, *((0.7 * cell, 1.0 * cell) if s.goal == NORTH else (4.3 * cell, 4.0 * cell))
            for start in ((x, 2.5 * cell), (x - 0.3 * cell, back), (x + 0.3 * cell, back)):
                canvas.line(start, (x, tip), 0.12 * cell, (226, 142, 72))
        canvas.disc((cell * (s.position + 1.5), 2.5 * cell), 0.34 * cell, (76, 100, 200))
        return canvas.pixels

    def ascii(self, s: Any) -> str:
        arm = " " * (self.length + 1)
        corridor = "".join("@" if i == s.position else "." for i in range(self.length + 1))
        north, south = ("$", ".") if s.goal == NORTH else (".", "$")
        sign = f"sign: {'north' if s.goal == NORTH else 'south'}" if not s.has_acted else "the sign is gone"
        return f"{arm[1:]}{north}\n{corridor}\n{arm[1:]}{south}\n{sign}"
