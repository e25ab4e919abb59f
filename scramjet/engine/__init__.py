"""Many envs at once behind one `Pool`.

Names load when they are first used: a process that only steps somebody's Gymnasium env needs no compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, overload

from scramjet.errors import ConfigError

if TYPE_CHECKING:
    from scramjet.engine.cuda_pool import CudaPool
    from scramjet.engine.frame_stack import FrameStackPool as FrameStackPool
    from scramjet.engine.layout import Transition as Transition
    from scramjet.engine.native import Backend as Backend
    from scramjet.engine.native import NativePool as NativePool
    from scramjet.engine.pool import Batch as Batch
    from scramjet.engine.pool import Episodes as Episodes
    from scramjet.engine.pool import Pool as Pool

_HOMES = {
    "Backend": "scramjet.engine.native",
    "Batch": "scramjet.engine.pool",
    "Episodes": "scramjet.engine.pool",
    "FrameStackPool": "scramjet.engine.frame_stack",
    "NativePool": "scramjet.engine.native",
    "Pool": "scramjet.engine.pool",
    "Transition": "scramjet.engine.layout",
}
__all__ = ["Backend", "Batch", "Episodes", "FrameStackPool", "NativePool", "Pool", "Transition", "make"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scramjet.engine' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__


@overload
def make(name: str, num_envs: int, *, backend: Literal["cuda"], **parameters: Any) -> CudaPool: ...


@overload
def make(
    name: str,
    num_envs: int,
    *,
    num_threads: int | None = None,
    backend: Backend = "cpu",
    frame_stack: int = 1,
    **parameters: Any,
) -> NativePool | FrameStackPool: ...


def make(
    name: str,
    num_envs: int,
    *,
    num_threads: int | None = None,
    backend: Backend | Literal["cuda"] = "cpu",
    frame_stack: int = 1,
    **parameters: Any,
) -> Any:
    """A pool of `num_envs` copies of a world: `scramjet.make("cartpole", num_envs=1024)`.

    Worlds of other libraries have their prefix, `gym:CartPole-v1`; close such a pool when you are done. A policy
    trained with `frame_stack` wants to see as many observations at once here too. With backend="cuda" the envs are on
    the GPU.
    """
    from scramjet.engine.foreign_worlds import ForeignWorld, check_num_envs, is_foreign, require_native
    from scramjet.envs.registry import load_env
    from scramjet.settings import coerce

    name, num_envs = coerce("name", name, str), coerce("num_envs", num_envs, int)
    num_threads = coerce("num_threads", num_threads, int | None)
    backend = coerce("backend", backend, Literal["cpu", "interpreted", "cuda"])
    frame_stack = coerce("frame_stack", frame_stack, int)
    if is_foreign(name):
        check_num_envs(name, num_envs)
        if backend != "cpu":
            require_native(name, f"backend={backend!r}")
        return _stacked(ForeignWorld(name, parameters).pool(num_envs), frame_stack)
    if backend == "cuda":
        if frame_stack > 1:
            raise ConfigError(f"frame_stack={frame_stack} is the CPU's; use backend='cpu'")
        from scramjet.engine.cuda_pool import CudaPool

        return CudaPool(load_env(name, **parameters), num_envs)
    from scramjet.engine.native import NativePool

    pool = NativePool(load_env(name, **parameters), num_envs, num_threads=num_threads, backend=backend)
    return _stacked(pool, frame_stack)


def _stacked(pool: Pool, num_frames: int) -> Pool:
    from scramjet.engine.frame_stack import FrameStackPool

    return pool if num_frames == 1 else FrameStackPool(pool, num_frames)
