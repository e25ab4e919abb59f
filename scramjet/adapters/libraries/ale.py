"""Atari games on ALE's own threads: `ale:Pong`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scramjet.adapters.library import Library, NamedWorld, PoolRequest

if TYPE_CHECKING:
    from scramjet.adapters.foreign_pool import ForeignPool


def _make_pool(world: NamedWorld, request: PoolRequest) -> ForeignPool:
    from scramjet.adapters.atari import AtariPool, PollableAtariPool

    num_envs, workers = request.num_envs, request.workers
    if workers.apart:
        return PollableAtariPool(
            world.id, num_envs, training=request.learns, num_threads=workers.threads, **world.parameters
        )
    return AtariPool(world.id, num_envs, training=request.learns, in_halves=workers.in_halves, **world.parameters)


def _parameter_defaults() -> dict[str, Any]:
    from scramjet.adapters.atari import AtariConfig

    return asdict(AtariConfig())


ALE = Library(
    prefix="ale",
    package="ale-py",
    make_pool=_make_pool,
    set_by_us=("game", "num_envs", "training", "in_halves", "num_threads"),
    parameter_defaults=_parameter_defaults,
    can_be_async=True,
    shows_images=True,
    tells_info=False,  # what ALE gives with an episode's end is the next game's
    auto_actors=4,  # ALE steps the games on threads of its own; beside a GPU with 16 cores faster than 8 or 16
    preset="atari",
)
