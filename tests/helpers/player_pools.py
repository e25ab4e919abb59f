"""Pools of worlds for several players, legal actions for them, and equality of transitions."""

from scramjet.engine import NativePool
from scramjet.envs import Env
from tests.helpers.player_worlds import Duel, Mortals, Trio

WORLDS = [Mortals, Duel, Trio]


def pool_of(env: Env, num_envs: int, backend: str = "cpu") -> NativePool:
    return NativePool(env, num_envs, num_threads=1, backend=backend)
