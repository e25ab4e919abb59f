"""Pools of any world by its name: the one of `scramjet.make`, and all that can step another library's envs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from scramjet.adapters.registry import ForeignWorld
from scramjet.errors import ConfigError
from scramjet.runtime.machine import available_cores

if TYPE_CHECKING:
    from scramjet.adapters.foreign_pool import ForeignPool
    from scramjet.adapters.objects import World
    from scramjet.engine.pool import Pool
    from scramjet.engine.worlds.cuda_pool import CudaPool
    from scramjet.engine.worlds.native_pool import Backend, NativePool
    from scramjet.engine.wrappers import FrameStackPool


@overload
def make(name: World, num_envs: int, *, backend: Literal["cuda"], **parameters: Any) -> CudaPool: ...


@overload
def make(
    name: World,
    num_envs: int,
    *,
    num_threads: int | None = None,
    backend: Backend = "cpu",
    frame_stack: int = 1,
    **parameters: Any,
) -> NativePool | FrameStackPool: ...


def make(
    name: World,
    num_envs: int,
    *,
    num_threads: int | None = None,
    backend: Backend | Literal["cuda"] = "cpu",
    frame_stack: int = 1,
    **parameters: Any,
) -> Any:
    """A pool of `num_envs` copies of a world: `scramjet.make("cartpole", num_envs=1024)`, `scramjet.make(Lander, 4)`.

    Worlds of other libraries have their prefix, `gym:CartPole-v1`; close such a pool when you are done. A policy
    trained with `frame_stack` wants to see as many observations at once here too. With backend="cuda" the envs are on
    the GPU.
    """
    from scramjet.adapters.objects import named, spelled
    from scramjet.adapters.registry import ForeignWorld, check_num_envs, is_foreign, load_world, require_native
    from scramjet.envs.registry import load_env
    from scramjet.settings import coerce

    world, num_envs = named(name), coerce("num_envs", num_envs, int)
    name, parameters = spelled(world.name), {**(world.parameters or {}), **parameters}
    num_threads = coerce("num_threads", num_threads, int | None)
    backend = coerce("backend", backend, Literal["cpu", "interpreted", "cuda"])
    frame_stack = coerce("frame_stack", frame_stack, int)
    if is_foreign(name):
        check_num_envs(name, num_envs)
        if backend != "cpu":
            require_native(name, f"backend={backend!r}")
        world_of_another = load_world(name, parameters)
        assert isinstance(world_of_another, ForeignWorld)
        return _stacked(world_of_another.pool(num_envs), frame_stack)
    if backend == "cuda":
        if frame_stack > 1:
            raise ConfigError(f"frame_stack={frame_stack} is the CPU's; use backend='cpu'")
        from scramjet.engine.worlds.cuda_pool import CudaPool

        return CudaPool(load_env(name, **parameters), num_envs)
    from scramjet.engine.worlds.native_pool import NativePool

    pool = NativePool(load_env(name, **parameters), num_envs, num_threads=num_threads, backend=backend)
    return _stacked(pool, frame_stack)


def _stacked(pool: Pool, num_frames: int) -> Pool:
    from scramjet.engine.wrappers import FrameStackPool

    return pool if num_frames == 1 else FrameStackPool(pool, num_frames)


# --- to compare the speed of pools


def pool_choices(world: ForeignWorld, num_envs: int) -> Iterator[tuple[str, ForeignPool]]:
    """Each pool with its name in words; it is closed when the next one is asked for.

    Single envs step in this process, in one worker process, or in one for each core; what `auto` would take comes last.
    Libraries that step many envs at once have one way.
    """
    choices: list[tuple[str, int | None]] = [("its own", None)]
    if world.makes_single_envs:
        counts = sorted({1, min(num_envs, available_cores())})
        choices = [("serial", 0), *[(_workers(count), count) for count in counts], ("auto", None)]
    for label, num_workers in choices:
        settings = replace(world.workers, num_workers=num_workers, in_halves=num_workers is None)
        with closing(world.pool(num_envs, workers=settings)) as pool:
            is_auto = label == "auto"
            yield f"auto: {pool.processes or 'serial'}" if is_auto else label, pool


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count > 1)}"
