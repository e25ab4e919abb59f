"""The ranks meet in the store: each tells who it is, and all find out whether they fit each other."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch.distributed as dist

from scramjet.errors import ConfigError, RankError
from scramjet.runtime.ranks.environment import Launch
from scramjet.runtime.ranks.processes import RankProcess
from scramjet.runtime.ranks.watching import VERDICT

_PAUSE = 0.02
_MOST_NAMED = 8


class FirstRankMissingError(RankError):
    """Rank 0 did not come, so that others have to tell of it."""


def meet(launch: Launch, store: dist.Store, me: RankProcess, timeout: float) -> list[RankProcess]:
    """All ranks in their order, once all have come; an error that names those who have not within `timeout` seconds."""
    if launch.rank == 0:
        store.set(VERDICT, "")
    if store.add(f"claims/{launch.rank}", 1) > 1:
        store.set("twice", str(launch.rank))
        raise _twice(launch.rank)
    store.set(_key(launch.rank), me.to_bytes().decode())
    missing, end = list(range(launch.size)), time.monotonic() + timeout
    while missing := [rank for rank in missing if not store.check([_key(rank)])]:
        if store.check(["twice"]):
            raise _twice(int(store.get("twice")))
        if time.monotonic() > end:
            raise _missing(launch, missing, timeout)
        time.sleep(_PAUSE)
    everyone = [RankProcess.from_bytes(store.get(_key(rank))) for rank in range(launch.size)]
    compare(everyone)
    return everyone


def compare(everyone: Sequence[RankProcess]) -> None:
    """Refuse ranks that were told another number of ranks, or have another version of scramjet or torch."""
    first = everyone[0]
    for other in everyone[1:]:
        if other.size != first.size:
            raise ConfigError(
                f"{other} was started with WORLD_SIZE={other.size} and {first} with {first.size}; give all the same"
            )
        for package in ("scramjet", "torch"):
            here, there = getattr(first, package), getattr(other, package)
            if here != there:
                raise ConfigError(
                    f"{other} has {package} {there} and {first} has {here}: they would not train the same; install the "
                    f"same version on all machines"
                )


def _key(rank: int) -> str:
    return f"process/{rank}"


def _twice(rank: int) -> ConfigError:
    return ConfigError(f"two processes were started as rank {rank}; give each its own RANK")


def _missing(launch: Launch, missing: Sequence[int], timeout: float) -> RankError:
    named = ", ".join(map(str, missing[:_MOST_NAMED])) + (", ..." if len(missing) > _MOST_NAMED else "")
    kind = FirstRankMissingError if 0 in missing else RankError
    which = f"rank{'s' * (len(missing) > 1)} {named}"
    return kind(
        f"{which} of {launch.size} did not come within {timeout:g} s: start all {launch.size} with the same "
        f"WORLD_SIZE, MASTER_ADDR ({launch.address}) and MASTER_PORT ({launch.port}), and see what they print"
    )
