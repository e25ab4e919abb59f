"""Which worlds and policies a search can be used with: one check, for training and for players."""

from __future__ import annotations

from typing import Any

import numpy as np

from scramjet.engine.actions import random_actions
from scramjet.engine.layout import num_players
from scramjet.engine.pool import Pool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.engine.wrappers import FrameStackPool
from scramjet.envs.api import Discrete, Env
from scramjet.errors import ConfigError
from scramjet.policies.policy import Policy
from scramjet.search.specs import SearchKind

MOST_SEATS = 2
"""A value counts for whoever is to move, and against the other: with more seats there is no other."""


def check_searchable(world: Any, policy: Policy | None, kind: SearchKind) -> None:
    """Raise a ConfigError, with the reason and the fix, unless `kind` can search this world with this policy.

    `world` is an `Env`, a world of another library, or a pool of either. Without a policy only the world is looked at.
    """
    if isinstance(world, FrameStackPool):
        raise ConfigError(
            f"{kind} cannot search with stacked frames: a record holds one moment of {world.name}, not the frames "
            f"before it; train with --frame-stack 1"
        )
    env = world.env if isinstance(world, WorldPool) else world
    if not isinstance(env, Env):
        raise ConfigError(
            f"{kind} cannot search {_name(world)}: a world of another library cannot be branched, as its state is not "
            f"one record; worlds written for scramjet can: `scramjet list` shows ours"
        )
    _check_players(env, kind)
    if kind == "alphazero" and not isinstance(env.action_space, Discrete):
        raise ConfigError(
            f"alphazero chooses one of several actions, and {_name(env)} has {env.action_space}; use spo, whose "
            f"particles take any actions"
        )
    if policy is not None:
        _check_policy(policy, kind)


def note_on_chance(env: Env, kind: SearchKind) -> str:
    """One line for the user where a tree would search a world with chance, else "".

    Each branch of a tree keeps the outcome that it drew first, so the tree finds the luckiest of them.
    """
    if kind == "spo" or not draws_while_stepping(env):
        return ""
    return (
        f"{_name(env)} draws random numbers while it steps, and a tree keeps the first outcome of each branch: "
        f"alphazero is too hopeful there, and worse with more simulations; spo draws anew for each particle"
    )


def draws_while_stepping(env: Env, num_steps: int = 40) -> bool:
    """Whether the world's `step` draws random numbers, as far as some random play shows; interpreted, so it compiles
    nothing."""
    pool = NativePool(env, 4, backend="interpreted")
    out, random = pool.reset(0), np.random.default_rng(0)
    for _ in range(num_steps):
        before, actions = pool.states(), random_actions(pool, out, random)
        after, _ = pool.simulate(before, actions)
        if (after["_draw"] != before["_draw"]).any():
            return True
        out = pool.step(actions)
    return False


def _check_players(env: Env, kind: SearchKind) -> None:
    """Refuse hidden information, agents that act at once, and more seats than values are for."""
    if env.hidden:
        raise ConfigError(
            f"{kind} cannot search {_name(env)}: its record holds what players must not see (hidden = True), and a "
            f"search looks at all of it; use the policy alone, with --policy.memory gru where it must remember"
        )
    if env.num_agents > 1:
        raise ConfigError(
            f"{kind} cannot search {_name(env)}: its {env.num_agents} agents act at once, and a search looks at the "
            f"moves of one at a time; use a world for one, or one whose players take turns (num_seats)"
        )
    if num_players(env) > MOST_SEATS:
        raise ConfigError(
            f"{kind} cannot search {_name(env)}: it has {num_players(env)} seats, and a value is counted for one seat "
            f"and against the other; use at most {MOST_SEATS}"
        )


def _check_policy(policy: Policy, kind: SearchKind) -> None:
    """Refuse policies that see more than the record shows."""
    if policy.state_size:
        raise ConfigError(
            f"{kind} cannot search with a policy that has memory: it would have to remember along every branch; train "
            f"without --policy.memory"
        )
    if policy.env_spaces.num_frames > 1:
        raise ConfigError(
            f"{kind} cannot search with a policy that sees {policy.env_spaces.num_frames} stacked frames: a record "
            f"holds one moment; train with --frame-stack 1"
        )


def _name(world: Any) -> str:
    """What a message calls a world: its class, or the name by which another library knows it."""
    return world.name if isinstance(world, Pool) or not isinstance(world, Env) else type(world).__name__
