"""Records between pools of Gymnasium envs and whoever steps them: results in rows, and what is known of the envs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from scramjet.adapters.spaces import action_shape_and_dtype
from scramjet.engine.layout import leaf_layout
from scramjet.engine.trees import leaves, space_tree
from scramjet.errors import WorldError

MakeEnv = Callable[[], Any]
"""Makes one `gymnasium.Env`."""


@dataclass(frozen=True, slots=True)
class RowArrays:
    """Arrays that envs write their results to and read their actions from: N rows each."""

    obs: tuple[np.ndarray, ...]  # the leaves of the adapted space, [N, *shape] each
    final_obs: tuple[np.ndarray, ...]
    mask: np.ndarray  # [N, mask_size] bool
    reward: np.ndarray  # [N] float32
    terminated: np.ndarray  # [N] bool
    truncated: np.ndarray  # [N] bool
    action: np.ndarray  # [N, *action_shape]

    def strided(self, rows: slice) -> RowArrays:
        """Views of some rows."""
        return RowArrays(
            obs=tuple(leaf[rows] for leaf in self.obs),
            final_obs=tuple(leaf[rows] for leaf in self.final_obs),
            mask=self.mask[rows],
            reward=self.reward[rows],
            terminated=self.terminated[rows],
            truncated=self.truncated[rows],
            action=self.action[rows],
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """Numbers that an env gave in its `info` at the end of an episode."""

    row: int
    stats: dict[str, float]
    score: float | None  # where the env keeps count itself
    length: int | None


@dataclass(frozen=True, slots=True)
class Renewed:
    """An env that failed and was made anew."""

    row: int
    problem: str


class EnvFailedError(Exception):
    """An env raised. The text begins with a line that says what and where; its traceback follows."""


@dataclass(frozen=True, slots=True)
class EnvFacts:
    """What a pool must know of its envs before it can hold their results."""

    observation_space: Any
    action_space: Any
    mask_size: int
    has_time_limit: bool  # every episode is truncated after a number of steps, as far as the env tells
    draws_every_step: bool  # in a window
    render_modes: tuple[str, ...]  # those in which it can draw itself here


def row_layout(
    observation_space: Any, action_space: Any, mask_size: int, num_envs: int
) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each array that envs write and read, in the order of `row_arrays`; of adapted spaces."""
    seen = [leaf_layout(part) for part in leaves(space_tree(observation_space))]
    flag, (action_shape, action_dtype) = np.dtype(np.bool_), action_shape_and_dtype(action_space)
    rest = [((mask_size,), flag), ((), np.dtype(np.float32)), ((), flag), ((), flag), (action_shape, action_dtype)]
    return [((num_envs, *shape), dtype) for shape, dtype in (*seen, *seen, *rest)]


def row_arrays(arrays: list[np.ndarray]) -> RowArrays:
    """The arrays of a `row_layout`, in its order, by name."""
    num_leaves = (len(arrays) - 5) // 2
    obs, final_obs, rest = arrays[:num_leaves], arrays[num_leaves : 2 * num_leaves], arrays[2 * num_leaves :]
    mask, reward, terminated, truncated, action = rest
    return RowArrays(tuple(obs), tuple(final_obs), mask, reward, terminated, truncated, action)


def has_time_limit(env: Any) -> bool:
    """Whether an env, one of its wrappers or its registration says that episodes are truncated."""
    layer = env
    while layer is not None:
        held = getattr(layer, "__dict__", {})  # not by name: wrappers pass that on, or refuse it
        if held.get("_max_episode_steps") is not None:  # as Gymnasium's TimeLimit calls it
            return True
        layer = held.get("env")
    return getattr(getattr(env, "spec", None), "max_episode_steps", None) is not None


def working_render_modes(env: Any) -> tuple[str, ...]:
    """The render modes that an env declares, without pictures where what they need is known to be missing here."""
    modes = tuple(map(str, (getattr(env, "metadata", None) or {}).get("render_modes") or ()))
    module = type(getattr(env, "unwrapped", env)).__module__
    has_pictures = True
    if module.startswith("gymnasium.envs.mujoco"):  # drawn by OpenGL
        has_screen = (
            os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("darwin", "win32")
        )
        has_pictures = bool(has_screen or os.environ.get("MUJOCO_GL"))
    elif module.startswith("gymnasium.envs."):
        has_pictures = find_spec("pygame") is not None
    return modes if has_pictures else tuple(mode for mode in modes if mode != "rgb_array")


def check_same_spaces(name: str, row: int, given: tuple[Any, Any], first_row: int, first: tuple[Any, Any]) -> None:
    """Refuse an env whose spaces are not those of the first."""
    for kind, mine, expected in zip(("observation_space", "action_space"), given, first, strict=True):
        if mine != expected:
            raise WorldError(
                f"{name}: env {row} has {kind} {mine}, and env {first_row} has {expected}; the envs of one pool must "
                f"have the same spaces"
            )
