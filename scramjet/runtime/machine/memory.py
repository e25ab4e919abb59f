"""How much memory there is, and errors about what would not fit before it is allocated.

Systems promise memory that they do not have: a program that asks for too much is often not refused but killed later.
"""

from __future__ import annotations

import os
from functools import cache

from scramjet.errors import ConfigError

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def require_memory(num_bytes: int, what: str, fix: str) -> None:
    """Raise a ConfigError where `num_bytes` is more than this process can ever have; it names `what` and the `fix`."""
    there_is = min(_machine_memory(), _process_limit())
    if num_bytes > there_is:
        raise ConfigError(
            f"{what} would take {num_bytes / 2**30:,.1f} GiB of memory, and there are {there_is / 2**30:,.1f}; {fix}"
        )


@cache
def _machine_memory() -> float:
    """Bytes of memory that this machine or its container has; infinite where neither says."""
    limits = []
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _CONTAINER_LIMITS:
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min((limit for limit in limits if limit > 0), default=float("inf"))


def _process_limit() -> float:
    """Bytes that `ulimit -v` still allows."""
    try:
        import resource
    except ImportError:  # Windows
        return float("inf")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    try:
        with open("/proc/self/statm") as file:
            return limit - int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return limit
