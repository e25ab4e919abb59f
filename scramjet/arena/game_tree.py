"""Every position of a small game, level by level, found by the world's own rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.engine.layout import PlayedBy
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.native_pool import Backend, NativePool
from scramjet.envs.api import Discrete, Env
from scramjet.errors import ConfigError

MOST_POSITIONS = 1_000_000
OVER = -1
"""In place of a position's number: the game has ended, or the action is not legal."""


@dataclass(frozen=True, slots=True)
class GameTree:
    """The positions in which somebody is to move. Each level has those of one ply, after those of the ply before."""

    levels: tuple[slice, ...]  # the positions of each ply; the first are the roots
    seat: np.ndarray  # [P] int64, who is to move
    obs: Any  # [P, ...], what that seat sees
    mask: np.ndarray  # [P, A] bool, legal actions
    child: np.ndarray  # [P, A] int64, the position after each action, or OVER
    reward: np.ndarray  # [P, A, S] float64, what each seat gets for it
    root_probability: np.ndarray  # [roots] float64

    @property
    def num_seats(self) -> int:
        """How many play."""
        return self.reward.shape[2]


def game_tree(env: Env, *, backend: Backend = "cpu") -> GameTree:
    """List every position of a game for seats whose only chance, if any, is how it is dealt.

    A world that deals at random lists its deals: `deals()` gives pairs of a probability and the fields of the record
    that it sets. Equal positions of one ply are one position.
    """
    deals = _deals(env)
    pool = NativePool(env, len(deals), num_threads=1, backend=backend)
    _require_exact(pool)
    states, seen = _dealt(pool, [fields for _, fields in deals])
    levels: list[_Level] = []
    num_positions = 0
    while len(states):
        num_positions += len(states)
        if num_positions > MOST_POSITIONS:
            raise ConfigError(f"{pool.name} has more than {MOST_POSITIONS} positions: too many to look at each")
        level, states, seen = _expand(pool, states, seen, first_child=num_positions)
        levels.append(level)
    ends = np.cumsum([len(level.seat) for level in levels]).tolist()
    return GameTree(
        levels=tuple(slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)),
        seat=np.concatenate([level.seat for level in levels]),
        obs=map_leaves(lambda *leaves: np.concatenate(leaves), *(level.obs for level in levels)),
        mask=np.concatenate([level.mask for level in levels]),
        child=np.concatenate([level.child for level in levels]),
        reward=np.concatenate([level.reward for level in levels]),
        root_probability=np.array([probability for probability, _ in deals]),
    )


@dataclass(frozen=True, slots=True)
class _Level:
    """The positions of one ply; see `GameTree`."""

    seat: np.ndarray
    obs: Any
    mask: np.ndarray
    child: np.ndarray
    reward: np.ndarray


def _deals(env: Env) -> Sequence[tuple[float, dict[str, Any]]]:
    list_deals = getattr(env, "deals", None)
    return [(1.0, {})] if list_deals is None else list_deals()


def _require_exact(pool: NativePool) -> None:
    """Refuse worlds that cannot be listed: other kinds of players or actions, chance that is not listed."""
    if pool.played_by is not PlayedBy.SEATS or not isinstance(pool.action_space, Discrete):
        raise ConfigError(f"{pool.name} cannot be listed: that needs seats that take turns and Discrete actions")
    pool.reset(0)
    if (pool.states()["_draw"] > 0).any() and getattr(pool.env, "deals", None) is None:
        raise ConfigError(
            f"{pool.name} begins at random; set its parameters so that it does not (opening_plies=0), or list its "
            f"beginnings: `def deals(self)`"
        )


def _dealt(pool: NativePool, deals: Sequence[dict[str, Any]]) -> tuple[np.ndarray, Transition]:
    """The records of the beginnings, and what the seat to move sees in each."""
    pool.reset(0)
    snapshot = pool.snapshot()
    states = pool.states()
    states["_index"] = 0  # equal positions are to have equal records
    states["_draw"] = 0
    for state, fields in zip(states, deals, strict=True):
        for name, value in fields.items():
            state[name] = value
    snapshot["states"] = states.view(np.uint8).reshape(len(states), -1)
    return states, pool.restore(snapshot)


def _expand(
    pool: NativePool, states: np.ndarray, seen: Transition, first_child: int
) -> tuple[_Level, np.ndarray, Transition]:
    """One level, the records of the next, and what the seats to move see there."""
    mask = seen.mask if pool.mask_size else np.ones((len(states), pool.action_space.n), bool)
    rows, actions = np.nonzero(mask)
    after, out = pool.simulate(states[rows], actions.astype(np.int64))
    if not np.array_equal(after["_draw"], states["_draw"][rows]):
        raise ConfigError(f"{pool.name} draws random numbers while it is played: its positions cannot be listed")
    goes_on = np.flatnonzero(~(out.terminated | out.truncated))
    _, first, number = np.unique(_field_bytes(after[goes_on]), axis=0, return_index=True, return_inverse=True)
    child = np.full(mask.shape, OVER)
    child[rows[goes_on], actions[goes_on]] = first_child + number.ravel()
    reward = np.zeros((*mask.shape, pool.num_players))
    reward[rows, actions] = out.reward
    level = _Level(seen.turn.astype(np.int64), map_leaves(np.copy, seen.obs), mask.copy(), child, reward)
    kept = goes_on[first]
    return level, after[kept], out.part(kept)


def _field_bytes(states: np.ndarray) -> np.ndarray:
    """The bytes of the fields of records, [n, bytes]; what lies between fields may be anything."""
    names = states.dtype.names or ()
    columns = [np.ascontiguousarray(states[name]) for name in names]
    return np.hstack([column.reshape(len(states), column[:1].size or 1).view(np.uint8) for column in columns])
