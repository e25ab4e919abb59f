"""A Gymnasium env drawn as text while it is played: its own text, or its picture in blocks of colour."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from scramjet.adapters.gymnasium.env_results import MakeEnv
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.adapters.registry import ForeignWorld, library_of
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError, WorldError

DRAWABLE = ("ansi", "rgb_array")
"""Render modes that become text, the better one first."""

LINES_BESIDE = 3
"""Of a terminal, left free for what stands under a picture."""


class TextRenderedPool(WorkerPool):
    """One env, in a process of its own. `pictures` has one of each state since it was emptied: a step that ends an
    episode adds two."""

    def __init__(self, world: ForeignWorld) -> None:
        if not world.makes_single_envs:
            raise ConfigError(
                f"{world.name} cannot be drawn as text: only single envs of Gymnasium can; leave out --render"
            )
        self.pictures: list[str] = []
        modes = DRAWABLE if world.takes_render_mode else ()
        by_mode = {
            mode: replace(world, parameters={**world.parameters, "render_mode": mode}).env_factory() for mode in modes
        }
        factory = partial(_drawn_env, world.name, world.env_factory(), by_mode)
        super().__init__(world.name, factory, 1, num_workers=1, timeout=world.workers.timeout)
        self.env = world

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        out = super().reset(seed, out)
        self.pictures += self.call(0, "take_pictures")
        return out

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        out = super().step(actions, out)
        self.pictures += self.call(0, "take_pictures")
        return out


def _drawn_env(name: str, make_env: MakeEnv, by_mode: dict[str, MakeEnv]) -> _Drawn:
    """With a render mode that suits a terminal, whether it was asked for or not."""
    env = make_env()
    if env.render_mode in DRAWABLE:
        return _Drawn(name, env)
    modes = [str(mode) for mode in env.metadata.get("render_modes") or ()]
    env.close()
    mode = next((each for each in DRAWABLE if each in modes), None)
    if mode is None:
        raise WorldError(
            f"{name} draws neither text nor pictures: its render modes are {modes}, and 'ansi' or 'rgb_array' is "
            f"needed; leave out --render"
        )
    if mode not in by_mode:
        raise WorldError(
            f"{name} makes envs without a render mode; give the function an argument render_mode=None and hand "
            f"it to gymnasium.make, or leave out --render"
        )
    return _Drawn(name, by_mode[mode]())


class _Drawn(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, name: str, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._name, self._pictures = name, list[str]()

    def take_pictures(self) -> list[str]:
        """Those drawn since the last time."""
        taken, self._pictures = self._pictures, []
        return taken

    def reset(self, **settings: Any) -> Any:
        result = self.env.reset(**settings)
        self._draw()
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._draw()
        return result

    def _draw(self) -> None:
        try:
            picture = self.env.render()
        except Exception as error:  # a package or a display that drawing needs is not there
            library = library_of(self._name)
            hint = "" if library is None else library.render_hint
            raise WorldError(f"{self._name} cannot be drawn: {type(error).__name__}: {error}{hint}") from error
        self._pictures.append(in_blocks(picture) if isinstance(picture, np.ndarray) else str(picture))


def in_blocks(picture: np.ndarray) -> str:
    """An RGB picture [H, W, 3] as characters as large as the terminal allows, two pixels in each."""
    columns, lines = shutil.get_terminal_size()
    height, width = picture.shape[:2]
    scale = max(1.0, width / columns, height / (2 * max(1, lines - LINES_BESIDE)))
    rows = np.linspace(0, height, 2 * max(1, int(height / scale / 2)), endpoint=False).astype(int)
    places = np.linspace(0, width, max(1, int(width / scale)), endpoint=False).astype(int)
    sums = np.add.reduceat(np.add.reduceat(picture[..., :3].astype(np.int64), rows, 0), places, 1)
    areas = np.diff(rows, append=height)[:, None, None] * np.diff(places, append=width)[:, None]
    pixels = (sums // areas).tolist()
    return "\n".join(
        "".join(
            "\x1b[38;2;{};{};{};48;2;{};{};{}m▀".format(*above, *below)
            for above, below in zip(upper, lower, strict=True)
        )
        + "\x1b[0m"
        for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)
    )
