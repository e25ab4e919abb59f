"""Memory: see a row of bits, wait, repeat them.

After PufferLib's Memory (Suarez 2024). A bit is shown as -1 or +1 and a blank as 0, so that a bit that is off does not
look like a blank; and the answers begin only when the last bit is gone, so that even one bit needs memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.drawing import Canvas
from scramjet.envs.rng import randint

BIT_COLORS = ((226, 142, 72), (76, 100, 200))
LONGEST = 1_000_000


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
            if getattr(self, name) > LONGEST:
                raise ValueError(f"{name}={getattr(self, name)} must be at most {LONGEST}")

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
