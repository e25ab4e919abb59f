"""Ranks that are processes joined by gloo, forked from one that has imported torch."""

import socket
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

from tests.helpers import forked_commands  # noqa: F401  # it says what that process imports


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _join_and_run(rank: int, size: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    from scramjet.runtime.ranks.group import ProcessGroup

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    try:
        work(ProcessGroup(), *arguments)
    finally:
        dist.destroy_process_group()


def in_processes(size: int, work: Callable[..., None], *arguments: Any) -> None:
    """Run `work(ranks, *arguments)` in `size` processes, a function of a module; raises what one of them raises."""
    given = (size, free_port(), work, arguments)
    torch.multiprocessing.start_processes(_join_and_run, given, nprocs=size, start_method="forkserver")
