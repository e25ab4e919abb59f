"""The memory of a pool: the record of one env, and the batch arrays its results are written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.envs.api import Box, Discrete, Env, state_fields
from scramjet.errors import WorldError

HEADER = np.dtype(
    [
        ("_seed", np.int64),  # the generator's key: pool seed + env index
        ("_return", np.float64),  # sum of this episode's rewards
        ("_episode", np.int32),  # episodes begun before this one
        ("_draw", np.int32),  # random draws taken in this episode
        ("_steps", np.int32),  # steps taken in this episode
        ("_unused", np.int32),  # 32 bytes: with as much state again, a record is one cache line
    ]
)
"""What the engine keeps at the front of every env's record, before the author's fields."""


def state_dtype(env: Env) -> np.dtype:
    """The record of one env: the engine's header, then the author's fields."""
    fields: list[Any] = [(name, HEADER[name]) for name in HEADER.names or ()]
    for name, declared in state_fields(env).items():
        dtype, shape = declared if isinstance(declared, tuple) else (declared, ())
        if shape != () and dtype in (bool, np.bool_, "bool"):
            dtype = np.uint8  # Numba has no arrays of bool inside records; 0 and 1 serve
        try:
            fields.append((name, np.dtype(dtype), shape))
            kind = np.dtype(dtype).kind
        except TypeError as error:
            raise WorldError(
                f"{type(env).__name__}.state['{name}'] = {declared!r} is no NumPy dtype or (dtype, shape): {error}"
            ) from error
        if kind not in "biuf":
            raise WorldError(
                f"{type(env).__name__}.state['{name}'] has dtype {np.dtype(dtype)}; "
                f"use bool, an integer or a float type"
            )
    try:
        return np.dtype(fields, align=True)
    except ValueError as error:
        raise WorldError(f"{type(env).__name__}.state cannot be one record: {error}") from error


def episode_dtype(env: Env) -> np.dtype:
    """One finished episode in the pool's log: the engine's numbers, then the author's stats by name."""
    own = [("_tick", np.int64), ("_env", np.int64), ("_return", np.float64), ("_length", np.int64)]
    for name in env.stat_names:
        if not name.isidentifier() or name.startswith("_"):
            raise WorldError(f"{type(env).__name__}.stat_names has {name!r}; use a plain name without a leading '_'")
    return np.dtype(own + [(name, np.float64) for name in env.stat_names])


@dataclass(slots=True)
class Transition:
    """Where one step of N envs is written. Allocated once; rows of a rollout are views of this kind.

    `obs` and `mask` are what the policy sees next: after an episode's end they belong to the next episode.
    """

    obs: np.ndarray  # [N, *obs_shape]
    mask: np.ndarray  # [N, num_actions] bool, legal actions; [N, 0] where the world has no mask
    reward: np.ndarray  # [N] float32
    terminated: np.ndarray  # [N] bool
    truncated: np.ndarray  # [N] bool, never together with terminated
    final_obs: np.ndarray  # [N, *obs_shape]; the last of each episode that ended; other rows are stale


def allocate_transition(env: Env, num_envs: int) -> Transition:
    """Fresh arrays for one step of `num_envs` envs."""
    space = env.observation_space
    return Transition(
        obs=np.zeros((num_envs, *space.shape), space.dtype),
        mask=np.ones((num_envs, mask_size(env)), np.bool_),
        reward=np.zeros(num_envs, np.float32),
        terminated=np.zeros(num_envs, np.bool_),
        truncated=np.zeros(num_envs, np.bool_),
        final_obs=np.zeros((num_envs, *space.shape), space.dtype),
    )


def mask_size(env: Env) -> int:
    """How many entries the world's action mask has; 0 where it has none."""
    return int(env.action_space.n) if hasattr(env, "mask") else 0


def check_spaces(env: Env) -> None:
    """Refuse a world whose spaces the engine cannot hold, naming what it can."""
    name = type(env).__name__
    for attribute, supported in (("observation_space", Box), ("action_space", Discrete)):
        space = getattr(env, attribute, None)
        if not isinstance(space, supported):
            raise WorldError(
                f"{name}.{attribute} is {space!r}; scramjet {attribute.split('_')[0]}s are {supported.__name__} for now"
            )
    if getattr(env.action_space, "start", 0) != 0:
        raise WorldError(f"{name}.action_space starts at {env.action_space.start}; actions start at 0")
