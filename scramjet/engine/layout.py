"""How a world lies in memory: the record of one env, its observations and its actions, and who plays it."""

from __future__ import annotations

import enum
import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from scramjet.engine.trees import leaves, map_leaves, named_leaves, space_tree
from scramjet.envs.api import Box, Dict, Discrete, Env, MultiBinary, MultiDiscrete, is_plain_name, state_fields
from scramjet.errors import WorldError, did_you_mean, shortened

HEADER = np.dtype(
    [
        ("_seed", np.int64),  # the generator's key: a hash of the pool's seed and purpose
        ("_return", np.float64),  # sum of this episode's rewards
        ("_episode", np.int32),  # episodes begun before this one
        ("_draw", np.int32),  # random draws taken in this episode
        ("_steps", np.int32),  # steps taken in this episode
        ("_index", np.int32),  # this env's number, which keeps its random numbers apart from the others'
    ]
)
"""What the engine keeps at the front of every env's record, before the author's fields: 32 bytes, so that with as much
state again a record is one cache line."""


class PlayedBy(enum.Enum):
    """Who plays a world."""

    ONE = "one"
    AGENTS = "agents"  # several acting at once, a row each
    SEATS = "seats"  # several taking turns, one row an env


class ActionKind(enum.Enum):
    """What an action is."""

    CHOICE = "choice"  # Discrete: an int64
    CHOICES = "choices"  # MultiDiscrete: a row of int64
    BOX = "box"  # Box: an array of float32


def played_by(env: Env) -> PlayedBy:
    """Who plays this world. One whose `step` writes rewards has agents, even if only one, unless it takes turns."""
    if env.num_seats > 1 or (writes_rewards(env) and has_seat_rule(env)):
        return PlayedBy.SEATS
    return PlayedBy.AGENTS if writes_rewards(env) else PlayedBy.ONE


def has_seat_rule(env: Env) -> bool:
    """Whether the world has a function that says whose turn it is."""
    return isinstance(getattr(type(env), "seat", None), FunctionType)


def writes_rewards(env: Env) -> bool:
    """Whether `step` is written for players: `step(self, s, action, reward)`."""
    code = getattr(type(env).step, "__code__", None)
    return code is not None and code.co_argcount == 4


def num_players(env: Env) -> int:
    """Agents or seats of one env."""
    return max(int(env.num_agents), int(env.num_seats))


def rows_per_env(env: Env) -> int:
    """Rows of observations and actions of one env."""
    return int(env.num_agents) if played_by(env) is PlayedBy.AGENTS else 1


def action_kind(env: Env) -> ActionKind:
    """What an action of this world is."""
    if isinstance(env.action_space, Discrete):
        return ActionKind.CHOICE
    return ActionKind.CHOICES if isinstance(env.action_space, MultiDiscrete) else ActionKind.BOX


def action_sizes(env: Env) -> np.ndarray:
    """The number of choices of each component of a discrete action; empty for a Box."""
    space = env.action_space
    if isinstance(space, Discrete):
        return np.array([space.n], np.int64)
    return np.asarray(space.nvec, np.int64) if isinstance(space, MultiDiscrete) else np.zeros(0, np.int64)


def state_dtype(env: Env) -> np.dtype:
    """The record of one env: the engine's header, then the author's fields."""
    fields: list[Any] = [(name, HEADER[name]) for name in HEADER.names or ()]
    if played_by(env) is not PlayedBy.ONE:
        fields += [("_returns", np.float64, (num_players(env),)), ("_alive", np.uint8, (num_players(env),))]
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
    own = [
        ("_tick", np.int64), ("_env", np.int64), ("_player", np.int64), ("_return", np.float64), ("_length", np.int64),
    ]  # fmt: skip
    for name in env.stat_names:
        if not is_plain_name(name):
            raise WorldError(f"{type(env).__name__}.stat_names has {name!r}; use a plain name without a leading '_'")
    return np.dtype(own + [(name, np.float64) for name in env.stat_names])


def leaf_layout(space: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of one observation of a space without parts; a Discrete one is an array of one int64."""
    if isinstance(space, Discrete):
        return (1,), np.dtype(np.int64)
    if isinstance(space, MultiDiscrete):
        return tuple(space.nvec.shape), np.dtype(space.dtype)
    return tuple(space.shape) or (1,), np.dtype(space.dtype)


def allocate_obs(space: Any, *batch: int) -> Any:
    """Zeros for observations of `space`: an array [*batch, *shape], or nested dicts of them."""

    def allocate(part: Any) -> np.ndarray:
        shape, dtype = leaf_layout(part)
        return np.zeros((*batch, *shape), dtype)

    return map_leaves(allocate, space_tree(space))


def obs_bytes(space: Any) -> int:
    """Bytes of one observation."""
    layouts = (leaf_layout(part) for part in leaves(space_tree(space)))
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layouts)


def row_function(space: Any) -> Callable[..., Any]:
    """(kernel_obs, i) -> what `observe` writes to: an array, or for a Dict a tuple of arrays with names."""
    if not isinstance(space, Dict):

        def row(obs: Any, i: Any) -> Any:
            return obs[i]

        return row
    # Numba wants each element of a mixed tuple indexed by a literal, so the expression is spelled out.
    scope: dict[str, Any] = {}
    count = 0

    def spell(part: Any) -> str:
        nonlocal count
        if not isinstance(part, dict):
            count += 1
            return f"obs[{count - 1}][i]"
        kind = f"Part{len(scope)}"
        scope[kind] = namedtuple(kind, [name.removeprefix("_") for name in part])  # `_` begins names of ours alone
        return f"{kind}({', '.join(spell(item) for item in part.values())})"

    spelled = spell(space_tree(space))
    exec(f"def row(obs, i):\n    return {spelled}\n", scope)
    named: Callable[..., Any] = scope["row"]
    named.__doc__ = spelled  # for those who need other rows of some parts
    return named


def clear_function(env: Env) -> Callable[..., Any]:
    """(s) -> None: set all fields of a record to zero but the engine's header."""
    lines = ["def clear(s):", "    pass"]
    dtype = state_dtype(env)
    for name in dtype.names or ():
        if name in (HEADER.names or ()):
            continue
        shape = dtype[name].shape
        if not shape:
            lines.append(f"    s.{name} = {'False' if dtype[name].kind == 'b' else '0'}")
            continue
        indices = [f"i{axis}" for axis in range(len(shape))]
        lines.append(f"    field = s.{name}")
        for axis, size in enumerate(shape):
            lines.append(f"{'    ' * (axis + 1)}for i{axis} in range({size}):")
        lines.append(f"{'    ' * (len(shape) + 1)}field[{', '.join(indices)}] = 0")
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    made: Callable[..., Any] = scope["clear"]
    return made


def action_layout(env: Env) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of one action."""
    space = env.action_space
    if isinstance(space, Discrete):
        return (), np.dtype(np.int64)
    if isinstance(space, MultiDiscrete):
        return tuple(space.nvec.shape), np.dtype(np.int64)
    return tuple(space.shape), np.dtype(np.float32)


def mask_size(env: Env) -> int:
    """How many entries the world's action mask has, one for each choice; 0 where it has none."""
    return int(action_sizes(env).sum()) if hasattr(env, "mask") else 0


def check_spaces(env: Env) -> None:
    """Refuse a world whose spaces the engine cannot hold, naming what it can."""
    name = type(env).__name__
    _check_observations(name, env)
    _check_actions(name, env)
    check_action_names(name, env)
    for bounded in env.state_bounds:
        if bounded not in env.state:
            nearest = did_you_mean(bounded, env.state)
            raise WorldError(f"{name}.state_bounds names '{bounded}', no field of state.{nearest}")
    for attribute in ("num_agents", "num_seats"):
        count = getattr(env, attribute)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise WorldError(f"{name}.{attribute} is {count!r}; it must be an integer of at least 1")
    if env.num_agents > 1 and env.num_seats > 1:
        raise WorldError(f"{name} has num_agents={env.num_agents} and num_seats={env.num_seats}; one of them must be 1")
    if has_seat_rule(env) and env.num_agents > 1:
        raise WorldError(f"{name} has num_agents={env.num_agents} and a seat(); agents act at once: drop one of them")
    if has_seat_rule(env) and not writes_rewards(env):
        raise WorldError(f"{name} has a seat(): write `def step(self, s, action, reward)`, or drop seat()")
    if num_players(env) > 1 and not writes_rewards(env):
        raise WorldError(f"{name} has {num_players(env)} players: write `def step(self, s, action, reward)`")


def _check_observations(name: str, env: Env) -> None:
    _check_observed(name, getattr(env, "observation_space", None), "observation_space")
    if (env.critic_space is None) == hasattr(env, "observe_critic"):
        raise WorldError(
            f"{name} needs both critic_space and `def observe_critic(self, s, obs)`, or neither: what the value "
            f"network sees beside the policy's observation"
        )
    if env.critic_space is not None:
        _check_observed(name, env.critic_space, "critic_space")


def _check_observed(name: str, space: Any, attribute: str) -> None:
    """Refuse a space that cannot be observed; `attribute` is its name in the world."""
    _check_keys(name, space, attribute)
    for where, part in named_leaves(space_tree(space), attribute):
        if not isinstance(part, Box | Discrete | MultiDiscrete | MultiBinary):
            raise WorldError(
                f"{name}.{where} is {part!r}; scramjet observations are Box, Discrete, MultiDiscrete, MultiBinary, "
                f"or a Dict of these"
            )
        if 0 in (part.shape or ()):
            raise WorldError(f"{name}.{where} is {part}: there is nothing to observe")
        start = getattr(part, "start", 0)
        if np.any(start):
            raise WorldError(f"{name}.{where} starts at {start}; values start at 0")
    if isinstance(space, Dict) and not leaves(space_tree(space)):
        raise WorldError(f"{name}.{attribute} is an empty Dict; give it entries")


def _check_keys(name: str, space: Any, attribute: str) -> None:
    """Entries are read as attributes, so their names must be such."""
    for key, part in space.spaces.items() if isinstance(space, Dict) else ():
        if not is_plain_name(key):
            raise WorldError(f"{name}.{attribute} has a key {key!r}; use a plain name: it is written as obs.name")
        _check_keys(name, part, attribute)


def _check_actions(name: str, env: Env) -> None:
    space = getattr(env, "action_space", None)
    if not isinstance(space, Discrete | MultiDiscrete | Box):
        raise WorldError(f"{name}.action_space is {space!r}; scramjet actions are Discrete, MultiDiscrete or Box")
    start = getattr(space, "start", 0)
    if np.any(start):
        raise WorldError(f"{name}.action_space starts at {start}; actions start at 0")
    if isinstance(space, MultiDiscrete) and not space.nvec.size:
        raise WorldError(f"{name}.action_space is {space!r}: there is nothing to choose; give it at least one size")
    if isinstance(space, MultiDiscrete) and space.nvec.ndim != 1:
        raise WorldError(f"{name}.action_space is {space!r}; give MultiDiscrete a flat list of sizes")
    if isinstance(space, Box):
        if space.dtype != np.float32 or 0 in (len(space.shape), *space.shape):
            raise WorldError(f"{name}.action_space is {space!r}; give it dtype float32 and at least one number")
        if hasattr(env, "mask"):
            raise WorldError(
                f"{name} has a mask, but actions of a Box are not masked; drop mask() or choose discretely"
            )


# --- The names that a world gives to its actions


def check_action_names(name: str, env: Env) -> None:
    """Refuse names that do not tell the actions apart: people type them."""
    names = env.action_names
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise WorldError(f'{name}.action_names is {shortened(names)}; give a tuple of names, such as ("left", "right")')
    if not names:
        return
    if not isinstance(env.action_space, Discrete):
        raise WorldError(f"{name}.action_names are for a Discrete action space, not for {env.action_space}; drop them")
    if len(names) != env.action_space.n:
        raise WorldError(
            f"{name}.action_names has {len(names)} names for {env.action_space.n} actions; name each of them"
        )
    for number, each in enumerate(names):
        if not isinstance(each, str) or not each.strip() or not each.isprintable() or each != " ".join(each.split()):
            raise WorldError(
                f"{name}.action_names[{number}] is {shortened(each)}; use printable text, without spaces around it"
            )
        if each in names[:number]:
            raise WorldError(
                f"{name}.action_names has {shortened(each)} twice, for actions {names.index(each)} and {number}; "
                f"names must differ"
            )
