"""The ranks meet in a store: each tells who it is, and all find out whether they fit each other.

The store is torch's TCPStore, kept by the launcher or by rank 0.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from scramjet.errors import ConfigError, RankError
from scramjet.runtime.ranks.environment import Launch
from scramjet.runtime.ranks.watching import VERDICT, RankProcess

_ROLL_CALL_PAUSE = 0.02
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
        time.sleep(_ROLL_CALL_PAUSE)
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


# --- The store that ranks find each other by


_kept: dict[tuple[str, int], dist.TCPStore] = {}
"""Stores that this process keeps as rank 0: they stay until it ends, for a second run under the same launcher."""
GIVEN_UP = "scramjet/given up"
"""Key in the launcher's store that says that starting again is of no use: the user has to change something."""
_STORE_PAUSE = 0.1
_MAX_WAITING = 1024


class StoreMissingError(RankError):
    """The store is not there, so that no rank can tell another."""


def connected(launch: Launch, timeout: float) -> dist.TCPStore:
    """A new connection to the store; rank 0 makes the store first, if the launcher keeps none."""
    place = launch.address, launch.port
    if launch.rank == 0 and not launch.is_store_of_launcher and place not in _kept:
        _kept[place] = _make_store(launch, timeout)
    _wait_for_answer(launch, timeout)
    try:
        return dist.TCPStore(
            *place, is_master=False, timeout=timedelta(seconds=timeout), wait_for_workers=False, multi_tenant=True
        )
    except RuntimeError as error:
        raise RankError(
            f"something answers at {launch.address}:{launch.port} that is no store of torch's; choose another "
            f"MASTER_PORT for all ranks"
        ) from error


def local_store() -> dist.TCPStore:
    """A new store that only processes of this machine can reach, at a free port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(_MAX_WAITING)
    return _store_behind(listener)


def _make_store(launch: Launch, timeout: float) -> dist.TCPStore:
    try:
        if is_loopback(launch.address):  # nobody outside of this machine needs to reach it
            listener = socket.create_server((launch.address, launch.port), backlog=_MAX_WAITING)
            return _store_behind(listener)
        limit = timedelta(seconds=timeout)
        return dist.TCPStore("0.0.0.0", launch.port, is_master=True, timeout=limit, wait_for_workers=False)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"rank 0 cannot listen at {launch.address}:{launch.port} ({_reason(error)}): another program or run uses "
            f"that port; set MASTER_PORT to a free one for all ranks (torchrun: --standalone, or --master-port)"
        ) from error


def _store_behind(listener: socket.socket) -> dist.TCPStore:
    address, port = listener.getsockname()
    return dist.TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def _wait_for_answer(launch: Launch, timeout: float) -> None:
    """Wait until something listens where the store is to be. Short looks, so that Ctrl-C is heard in between."""
    end, place = time.monotonic() + timeout, (launch.address, launch.port)
    while True:
        try:
            socket.create_connection(place, timeout=5.0).close()
            return
        except OSError as error:
            if time.monotonic() < end:
                time.sleep(_STORE_PAUSE)
                continue
            who = "the launcher" if launch.is_store_of_launcher else "rank 0"
            raise StoreMissingError(
                f"{who} was not found at {launch.address}:{launch.port} within {timeout:g} s ({_reason(error)}): start "
                f"rank 0 too, and give all ranks its MASTER_ADDR and MASTER_PORT"
            ) from error


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's for itself alone."""
    if address == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).partition("\n")[0]
