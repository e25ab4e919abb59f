"""Envs of Gymnasium drawn, state by state, while a pool plays them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from scramjet.adapters.factories import register_factory
from scramjet.adapters.gymnasium.rendering import RenderedPool, in_blocks
from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import ConfigError, WorldError


class Counter(gymnasium.Env[Any, Any]):
    """Ends with the third step; draws its count."""

    metadata = {"render_modes": ["human", "ansi"]}
    observation_space = gymnasium.spaces.Box(0, 3, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.count = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count == 3, False, {}

    def render(self) -> Any:
        assert self.render_mode == "ansi"
        return f"count {self.count}"


def make_counter(render_mode: str | None = None) -> Counter:
    return Counter(render_mode)


def make_blind_counter() -> Counter:
    return Counter()


def test_the_last_state_of_an_episode_is_drawn_before_the_first_of_the_next() -> None:
    pool = RenderedPool(ForeignWorld(register_factory(make_counter)), as_text=True)
    pool.reset(0)
    assert pool.drawings[0][-1] == "count 0"
    drawn = []
    for _ in range(4):
        pool.drawings[0].clear()
        pool.step(np.zeros(1, np.int64))
        drawn.append(list(pool.drawings[0]))
    assert drawn == [["count 1"], ["count 2"], ["count 3", "count 0"], ["count 1"]]


def test_an_env_that_cannot_be_drawn_is_refused_with_what_to_do() -> None:
    with pytest.raises(WorldError, match="argument render_mode=None"):
        RenderedPool(ForeignWorld(register_factory(make_blind_counter)), as_text=True)
    with pytest.raises(ConfigError, match=r"vec:CartPole-v1 cannot be drawn as text.*leave out --render"):
        RenderedPool(ForeignWorld("vec:CartPole-v1"), as_text=True)


def test_gymnasiums_own_envs_give_text_where_they_have_it_and_pictures_else() -> None:
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    lake, pole = (
        RenderedPool(ForeignWorld("gym:FrozenLake-v1"), as_text=True),
        RenderedPool(ForeignWorld("gym:CartPole-v1"), as_text=True),
    )
    lake.reset(0)
    assert "FHFH" in lake.drawings[0][-1]
    pole.reset(0)
    assert "▀" in pole.drawings[0][-1]


def test_a_picture_in_blocks_has_the_mean_colours_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2")
    monkeypatch.setenv("LINES", "4")
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:2, :2] = 200
    picture[2:, 2:, 0] = [[100, 100], [100, 200]]
    upper, lower, black = "200;200;200", "125;0;0", "0;0;0"
    assert in_blocks(picture) == f"\x1b[38;2;{upper};48;2;{black}m▀\x1b[38;2;{black};48;2;{lower}m▀\x1b[0m"
