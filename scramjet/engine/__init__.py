"""Many envs at once behind one `Pool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from scramjet.engine.frame_stack import FrameStackPool
from scramjet.engine.layout import Transition
from scramjet.engine.native import Backend, NativePool
from scramjet.engine.pool import Batch, Episodes, Pool
from scramjet.envs.registry import load_env
from scramjet.errors import ConfigError

if TYPE_CHECKING:
    from scramjet.engine.cuda_pool import CudaPool

__all__ = ["Backend", "Batch", "Episodes", "FrameStackPool", "NativePool", "Pool", "Transition", "make"]


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
) -> NativePool | FrameStackPool | CudaPool:
    """A pool of `num_envs` copies of a world: `scramjet.make("cartpole", num_envs=1024)`.

    A policy trained with `frame_stack` wants to see as many observations at once here too. With backend="cuda" the
    envs are on the GPU.
    """
    if backend == "cuda":
        if frame_stack > 1:
            raise ConfigError(f"frame_stack={frame_stack} is the CPU's; use backend='cpu'")
        from scramjet.engine.cuda_pool import CudaPool

        return CudaPool(load_env(name, **parameters), num_envs)
    pool = NativePool(load_env(name, **parameters), num_envs, num_threads=num_threads, backend=backend)
    return pool if frame_stack == 1 else FrameStackPool(pool, frame_stack)
