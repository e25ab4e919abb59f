"""The pools that can step another library's envs, one after the other, to compare their speed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.registry import ForeignWorld
from scramjet.runtime.machine.cores import available_cores


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
