"""Which pool steps a world's single envs: in this process, in worker processes, or in both."""

from __future__ import annotations

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.gymnasium.env_results import MakeEnv
from scramjet.adapters.gymnasium.serial import SerialPool
from scramjet.adapters.gymnasium.workers.pool import WorkerPool
from scramjet.adapters.library import NamedWorld, PoolRequest
from scramjet.runtime.machine import available_cores

SHARE_SECONDS = 60e-6
"""Envs that step in less, one after the other, gain nothing by another process: telling it to takes as long."""
QUICK_SECONDS = 2e-3
"""Where all envs step in less, this process steps a share of them itself. That is faster; but nothing guards the share
against an env that hangs or ends its process."""


def fastest_pool(world: NamedWorld, make_env: MakeEnv, request: PoolRequest) -> ForeignPool:
    """The pool that was asked for; where nobody chose, the one that is fastest by how long a step takes."""
    num_envs, workers = request.num_envs, request.workers
    num_workers = workers.num_workers
    at_once = -(-num_envs // 2) if workers.in_halves else num_envs
    is_quick = workers.is_free and at_once * world.trial.seconds < QUICK_SECONDS
    if is_quick:
        shares = int(at_once * world.trial.seconds / SHARE_SECONDS) if request.learns and world.trial.can_be_sent else 1
        num_workers = min(available_cores(), at_once, shares)
    if num_workers == 0 or (is_quick and num_workers == 1):
        return SerialPool(world.name, make_env, num_envs)
    return WorkerPool(
        world.name,
        make_env,
        num_envs,
        num_workers=num_workers,
        timeout=workers.timeout,
        on_error=workers.on_error,
        gives_way=workers.apart,
        takes_part=is_quick,
    )
