"""What a launcher tells each of its processes: RANK, WORLD_SIZE and the other variables that torchrun sets.

A hand-written loop over `WORLD_SIZE=2 RANK=0 scramjet train ...` does as well: what it leaves out has a default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from scramjet.errors import ConfigError, shortened

ADDRESS, PORT = "127.0.0.1", 29500
"""Where rank 0 is found when the launcher does not say: this machine, and the port that torchrun takes."""
MAX_RANKS = 1 << 16
RANK_TIMEOUT = 30.0
"""Seconds without a sign of life after which a rank counts as lost."""
_HINT = "torchrun sets it; by hand: WORLD_SIZE=2 RANK=0 scramjet train ..., and the same with RANK=1"


@dataclass(frozen=True)
class Launch:
    """The place of this process among those that were launched together."""

    rank: int
    size: int
    local_rank: int
    """The number among the processes of this machine."""
    local_size: int
    """How many processes are on this machine; all of them where the launcher does not say."""
    address: str = ADDRESS
    port: int = PORT
    """Where the store is that ranks find each other by."""
    is_store_of_launcher: bool = False
    """Whether the launcher keeps that store, and not rank 0."""
    attempt: int = 0
    """How many times the launcher has started all processes again."""
    max_attempts: int = 0
    """How many times it will at most."""


def is_launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher started this process as one of several."""
    return launch_of(environment) is not None


def is_first_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is rank 0 or the only one, which shows the run's progress."""
    launch = launch_of(environment)
    return launch is None or launch.rank == 0


def launch_of(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """The place that the environment's variables give this process; None where it is the only one."""
    size = _number(environment, "WORLD_SIZE", 1, MAX_RANKS)
    if size is None and environment.get("RANK"):
        raise ConfigError(f"RANK={shortened(environment['RANK'])} is set and WORLD_SIZE is not; {_HINT}")
    if size is None or size == 1:
        return None
    rank = _number(environment, "RANK", 0, size - 1, f"WORLD_SIZE is {size}, so ranks are 0 to {size - 1}")
    if rank is None:
        raise ConfigError(f"WORLD_SIZE={size} is set and RANK is not: which of the {size} processes is this? {_HINT}")
    local_size = _number(environment, "LOCAL_WORLD_SIZE", 1, size, f"WORLD_SIZE is {size}") or size
    local_rank = _number(environment, "LOCAL_RANK", 0, local_size - 1, f"{local_size} ranks are on this machine")
    return Launch(
        rank,
        size,
        rank % local_size if local_rank is None else local_rank,
        local_size,
        environment.get("MASTER_ADDR") or ADDRESS,
        _number(environment, "MASTER_PORT", 1, 65535) or PORT,
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        _number(environment, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 30) or 0,
        _number(environment, "TORCHELASTIC_MAX_RESTARTS", 0, 1 << 30) or 0,
    )


def _number(environment: Mapping[str, str], name: str, least: int, most: int, because: str = "") -> int | None:
    """The number in a variable; None where it is not set."""
    text = environment.get(name, "")
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= number <= most:
        reason = f" ({because})" if because else ""
        raise ConfigError(f"{name}={shortened(text)} must be a whole number from {least} to {most}{reason}; {_HINT}")
    return number
