"""How many CPU cores this process may use, and how many of them are idle."""

from __future__ import annotations

import os
import time
from pathlib import Path

from scramjet.runtime.ranks.environment import launch_of

LOOKS = 10
LOOK_SECONDS = 0.02
"""How often the load is sampled, and the seconds that all samples take together."""
RUNNABLE = 3
"""The field of /proc/loadavg that says how many threads want a core now, this one among them."""


def available_cores() -> int:
    """CPU cores this process may use: its part of them, where a launcher started several processes on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // _processes_here())


def _processes_here() -> int:
    launch = launch_of()
    return 1 if launch is None else launch.local_size


def free_cores() -> int:
    """Cores this process may use that nothing else keeps busy now: at least 1, and all where that cannot be seen.

    Takes 20 ms. What this process itself has started, such as a compiler that is soon done, counts as free.
    """
    cores = available_cores()
    if cores == 1 or _processes_here() > 1:  # what is busy then is the other processes of the same run
        return cores
    busy = 0.0
    for _ in range(LOOKS):
        now = _others_at_work()
        if now is None:
            return cores
        busy += now / LOOKS
        time.sleep(LOOK_SECONDS / LOOKS)
    return max(1, min(cores, round((os.cpu_count() or cores) - busy)))


def _others_at_work() -> int | None:
    """Threads of other processes that run or wait for a core; None where the system does not tell."""
    try:
        runnable = int(Path("/proc/loadavg").read_text().split()[RUNNABLE].partition("/")[0])
        return max(0, runnable - 1 - _children_at_work())
    except (OSError, ValueError, IndexError):
        return None


def _children_at_work() -> int:
    """How many processes that this one has started run or wait for a core."""
    children = (task / "children" for task in Path("/proc/self/task").iterdir())
    numbers = [number for file in children if file.exists() for number in file.read_text().split()]
    return sum(_is_running(Path("/proc", number, "stat")) for number in numbers)


def _is_running(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "R"  # behind a name that may hold anything
    except (OSError, IndexError):  # it has ended
        return False
