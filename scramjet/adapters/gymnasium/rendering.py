"""Gymnasium envs that are drawn while they are played: as pictures or as text."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from scramjet.adapters.gymnasium.rows import MakeEnv
from scramjet.adapters.gymnasium.worker_pool import WorkerPool
from scramjet.adapters.library import TEXT_MODES
from scramjet.adapters.registry import ForeignWorld, library_of
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.transition import Transition
from scramjet.errors import ConfigError, WorldError

PICTURE_MODES = ("rgb_array", "ansi")
"""Render modes that become pictures, the better one first."""

Drawing = str | np.ndarray
"""What an env draws: text, or an RGB picture."""


class RenderedPool(WorkerPool):
    """Envs in processes of their own. `drawings[i]` has one of each state of env i since it was emptied: a step that
    ends an episode adds two."""

    def __init__(
        self,
        world: ForeignWorld,
        num_envs: int = 1,
        *,
        as_text: bool = False,
        once: bool = False,
        num_workers: int | None = None,
    ) -> None:
        """`as_text`: text is wanted, and pictures of envs that draw no text; else it is the other way round.

        `once`: each env draws its first episode after a reset alone.
        """
        if not world.makes_single_envs:
            what, flag = ("drawn as text", "--render") if as_text else ("drawn", "--video")
            raise ConfigError(f"{world.name} cannot be {what}: only single envs of Gymnasium can; leave out {flag}")
        self.drawings: list[list[Drawing]] = [[] for _ in range(num_envs)]
        wanted = TEXT_MODES if as_text else PICTURE_MODES
        by_mode = {
            mode: replace(world, parameters={**world.parameters, "render_mode": mode}).env_factory()
            for mode in (wanted if world.takes_render_mode else ())
        }
        factory = partial(_drawn_env, world.name, world.env_factory(), by_mode, wanted, once)
        super().__init__(world.name, factory, num_envs, num_workers=num_workers, timeout=world.workers.timeout)
        self.env = world

    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        out = super().reset(seed, out)
        self._take_drawings()
        return out

    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        out = super().step(actions, out)
        self._take_drawings()
        return out

    def _take_drawings(self) -> None:
        for row, drawings in enumerate(self.drawings):
            drawings += self.call(row, "take_drawings")

    @property
    def frames_per_second(self) -> float | None:
        """How fast the env's authors show it; None where they do not say."""
        rate: float | None = self.call(0, "frames_per_second")
        return rate


def _drawn_env(
    name: str, make_env: MakeEnv, by_mode: dict[str, MakeEnv], wanted: tuple[str, ...], once: bool
) -> _Drawn:
    """With a render mode that suits, whether it was asked for or not."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws here without a screen, and says nothing of it
    env = make_env()
    if env.render_mode in wanted:
        return _Drawn(name, env, once)
    modes = [str(mode) for mode in env.metadata.get("render_modes") or ()]
    env.close()
    mode = next((each for each in wanted if each in modes), None)
    flag = "--render" if wanted == TEXT_MODES else "--video"
    if mode is None:
        raise WorldError(
            f"{name} draws neither text nor pictures: its render modes are {modes}, and 'ansi' or 'rgb_array' is "
            f"needed; leave out {flag}"
        )
    if mode not in by_mode:
        raise WorldError(
            f"{name} makes envs without a render mode; give the function an argument render_mode=None and hand "
            f"it to gymnasium.make, or leave out {flag}"
        )
    return _Drawn(name, by_mode[mode](), once)


class _Drawn(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, name: str, env: gymnasium.Env[Any, Any], once: bool) -> None:
        super().__init__(env)
        self._name, self._once = name, once
        self._drawings: list[Drawing] = []
        self._is_through = False  # has drawn the one episode that is wanted

    def take_drawings(self) -> list[Drawing]:
        """Those made since the last time."""
        taken, self._drawings = self._drawings, []
        return taken

    def frames_per_second(self) -> float | None:
        """How fast the env's authors show it; None where they do not say."""
        rate = self.env.metadata.get("render_fps")
        return float(rate) if isinstance(rate, int | float) and rate > 0 else None

    def reset(self, **settings: Any) -> Any:
        result = self.env.reset(**settings)
        if settings.get("seed") is not None:  # the pool's reset, and no next episode
            self._is_through = False
        self._draw()
        return result

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._draw()
        self._is_through = self._is_through or (self._once and bool(result[2] or result[3]))
        return result

    def _draw(self) -> None:
        if self._is_through:
            return
        try:
            picture: Any = self.env.render()
        except Exception as error:  # a package or a display that drawing needs is not there
            library = library_of(self._name)
            hint = "" if library is None else library.render_hint
            raise WorldError(f"{self._name} cannot be drawn: {type(error).__name__}: {error}{hint}") from error
        self._drawings.append(picture if isinstance(picture, np.ndarray) else str(picture))
