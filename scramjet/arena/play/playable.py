"""Which worlds a person can play, and who may sit where."""

from __future__ import annotations

from collections.abc import Sequence

from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.engine.wrappers import FrameStackPool
from scramjet.envs.api import Env
from scramjet.errors import ConfigError
from scramjet.players.player import Player


def playable_env(pool: Pool) -> Env:
    """The world of a pool of one env; raises a ConfigError where a person cannot play it."""
    inner = pool.pool if isinstance(pool, FrameStackPool) else pool
    if not isinstance(inner, NativePool):
        raise ConfigError(
            f"{pool.name} cannot be played by a person: only worlds written for scramjet can, whose positions are "
            f"plain records; `scramjet eval --render` shows an agent play it"
        )
    if pool.num_envs != 1:
        raise ConfigError(f"a game needs a pool of one env, and this one has num_envs={pool.num_envs}")
    return inner.env


def check_players(pool: Pool, players: Sequence[Player | None]) -> None:
    """Refuse players, people being None, that do not fill the places of a pool's world."""
    if len(players) != pool.num_players:
        raise ConfigError(f"{len(players)} players for a game of {pool.name}, which has {pool.num_players} places")
    if pool.played_by is PlayedBy.AGENTS and sum(each is None for each in players) > 1:
        raise ConfigError(f"in {pool.name} all act at once: at most one of them can be a person")
