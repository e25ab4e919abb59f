"""PettingZoo's games that are drawn while they are played."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.pettingzoo.games import game_maker
from scramjet.adapters.pettingzoo.parallel import ParallelPool
from scramjet.adapters.pettingzoo.pool import MakeEnv
from scramjet.adapters.pettingzoo.turns import AECPool
from scramjet.engine.transition import Transition
from scramjet.errors import WorldError


def rendered_pool(name: str, module_name: str, num_envs: int, parameters: dict[str, Any]) -> ForeignPool:
    """A pool of a game with `drawings` (see `_Drawn`)."""
    make_env, is_parallel = game_maker(module_name, {**parameters, "render_mode": "rgb_array"})
    return (_DrawnParallelPool if is_parallel else _DrawnAECPool)(name, make_env, num_envs)


class _Drawn:
    """For pools of both kinds: `drawings[i]` has one of each position of env i since it was emptied; a step that ends
    a game adds two."""

    name: str
    envs: list[Any]

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int) -> None:
        self.drawings: list[list[np.ndarray]] = [[] for _ in range(num_envs)]
        super().__init__(name, make_env, num_envs)  # type: ignore[call-arg]

    def _begin(self, i: int, out: Transition, seed: int | None = None) -> None:
        if seed is None:  # a game has just ended
            self._draw(i)
        super()._begin(i, out, seed)  # type: ignore[misc]
        self._draw(i)

    def _step_env(self, i: int, actions: np.ndarray, out: Transition) -> None:
        before = len(self.drawings[i])
        super()._step_env(i, actions, out)  # type: ignore[misc]
        if len(self.drawings[i]) == before:
            self._draw(i)

    def _draw(self, i: int) -> None:
        try:
            drawn = self.envs[i].render()
        except Exception as error:  # a package or a display that drawing needs is not there
            raise WorldError(f"{self.name} cannot be drawn: {type(error).__name__}: {error}") from error
        if not isinstance(drawn, np.ndarray):
            raise WorldError(f"{self.name} draws no pictures: render() gave {type(drawn).__name__}; go without a video")
        self.drawings[i].append(drawn)


class _DrawnParallelPool(_Drawn, ParallelPool):
    pass


class _DrawnAECPool(_Drawn, AECPool):
    pass
