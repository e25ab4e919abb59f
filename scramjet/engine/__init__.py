"""Many envs at once behind one `Pool`."""

from __future__ import annotations

from typing import Any

from scramjet.engine.layout import Transition
from scramjet.engine.native import Backend, NativePool
from scramjet.engine.pool import Batch, Episodes, Pool
from scramjet.envs.registry import load_env

__all__ = ["Backend", "Batch", "Episodes", "NativePool", "Pool", "Transition", "make"]


def make(
    name: str, num_envs: int, *, num_threads: int | None = None, backend: Backend = "cpu", **parameters: Any
) -> NativePool:
    """A pool of `num_envs` copies of a world: `scramjet.make("cartpole", num_envs=1024)`."""
    return NativePool(load_env(name, **parameters), num_envs, num_threads=num_threads, backend=backend)
