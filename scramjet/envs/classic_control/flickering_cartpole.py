"""FlickeringCartPole: CartPole seen through a flickering lamp; now and then the observation is all zeros.

The flicker of Hausknecht and Stone (2015), each observation blanked with one half by default.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.rng import uniform

place_cart, push_cart, show_cart = CartPole.reset, CartPole.step, CartPole.observe


class FlickeringCartPole(CartPole):
    """Balance a pole that is seen only some of the time."""

    blank_probability: float = 0.5

    hidden = True  # where things are, while the lamp is off
    state = {**CartPole.state, "is_blank": np.bool_}

    def reset(self, s: Any) -> None:
        place_cart(self, s)
        s.is_blank = uniform(s) < self.blank_probability

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.is_blank = uniform(s) < self.blank_probability
        return push_cart(self, s, action)

    def observe(self, s: Any, obs: Any) -> None:
        if s.is_blank:
            obs[:] = 0
        else:
            show_cart(self, s, obs)

    def validate(self) -> None:
        super().validate()
        if not 0 <= self.blank_probability < 1:
            raise ValueError(f"blank_probability={self.blank_probability} must be at least 0 and below 1")

    def render(self, s: Any) -> np.ndarray:
        picture = super().render(s)
        return picture // 6 + 150 if s.is_blank else picture

    def ascii(self, s: Any) -> str:
        return super().ascii(s) + ("   (blank)" if s.is_blank else "")
