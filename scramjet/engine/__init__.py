"""Many envs at once behind one `Pool`.

Names load when they are first used: a process that only steps somebody's Gymnasium env needs no compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scramjet.engine.pool import Batch as Batch
    from scramjet.engine.pool import Episodes as Episodes
    from scramjet.engine.pool import Pool as Pool
    from scramjet.engine.transition import Transition as Transition
    from scramjet.engine.worlds.native_pool import Backend as Backend
    from scramjet.engine.worlds.native_pool import NativePool as NativePool
    from scramjet.engine.wrappers import FrameStackPool as FrameStackPool

_HOMES = {
    "Backend": "scramjet.engine.worlds.native_pool",
    "Batch": "scramjet.engine.pool",
    "Episodes": "scramjet.engine.pool",
    "FrameStackPool": "scramjet.engine.wrappers",
    "NativePool": "scramjet.engine.worlds.native_pool",
    "Pool": "scramjet.engine.pool",
    "Transition": "scramjet.engine.transition",
}
__all__ = ["Backend", "Batch", "Episodes", "FrameStackPool", "NativePool", "Pool", "Transition"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scramjet.engine' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
