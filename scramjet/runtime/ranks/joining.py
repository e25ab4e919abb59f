"""Joins the processes that a launcher started, for the time of one training."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from scramjet.errors import ConfigError, RankError, ScramjetError
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.ranks.environment import RANK_TIMEOUT, Launch, launch_of
from scramjet.runtime.ranks.group import WAITS, ProcessGroup
from scramjet.runtime.ranks.meeting import GIVEN_UP, FirstRankMissingError, StoreMissingError, connected, meet
from scramjet.runtime.ranks.watching import RankProcess, Watch, this_process

JOIN_TIMEOUT = 120.0
"""Seconds that ranks wait for each other at the start, at least: some load modules more slowly than others."""
_LOOPBACK = "lo"
_num_joined = 0
"""How many times this process has joined others."""


class GivenUpError(RankError):
    """An earlier attempt has told the user what to change."""


class JoinedRanks(ProcessGroup):
    """The ranks of a launcher, while they are joined."""

    def __init__(
        self, launch: Launch, store: dist.Store, watch: Watch, *, has_nccl: bool, timeout: float, run_key: str
    ) -> None:
        """`run_key`: the key in `store` that names the run, for the case that the launcher starts all ranks again."""
        super().__init__(
            local_rank=launch.local_rank,
            local_size=launch.local_size,
            has_nccl=has_nccl,
            watch=watch,
            timeout=timeout,
        )
        self.watch, self._launch, self._store, self._run_key = watch, launch, store, run_key

    def began(self, run: Path) -> None:
        starts_again = self._launch.attempt < self._launch.max_attempts
        how = "all ranks start again" if starts_again else f"go on with: scramjet train --resume {_short(run)}"
        self.watch.advice = f"what was saved is kept; {how}"
        if self.is_first:
            self._store.set(self._run_key, os.fspath(run.absolute()))

    def give_up(self) -> None:
        """Tell the launcher that it is of no use to start again."""
        with contextlib.suppress(RuntimeError):
            self._store.set(GIVEN_UP, "1")

    def close(self) -> None:
        """Leave the process group. One that still waits for a lost rank is left alone: closing it would wait too."""
        if self.is_abandoned:
            atexit.register(_leave_at_once)
        else:
            dist.destroy_process_group()


@contextmanager
def joined(*, timeout: float = RANK_TIMEOUT, before_exit: Callable[[], None] | None = None) -> Iterator[Ranks]:
    """Within this, the ranks that the launcher started train together; ALONE where there is only one process.

    `timeout` is how many seconds a rank may give no sign of life. All leave together; where one fails or is lost, all
    others raise a RankError that names it. `before_exit` is called before a process that waits in vain is ended.
    """
    launch = launch_of()
    if launch is None:
        yield ALONE
        return
    try:
        with _leaving_with_launcher(launch):
            ranks = _join(launch, timeout, before_exit)
    except (ConfigError, RankError) as error:  # which every rank finds out by itself
        is_alone = isinstance(error, FirstRankMissingError | StoreMissingError)
        error.is_told = isinstance(error, GivenUpError) or (launch.rank != 0 and not is_alone)
        raise
    try:
        yield ranks
        ranks.watch.finish()
    except BaseException as error:
        _ignore_launcher()
        if isinstance(error, ScramjetError) and not isinstance(error, RankError):
            ranks.give_up()
        is_known = ranks.watch.fail(error)
        if isinstance(error, ScramjetError) and "is_told" not in vars(error):
            error.is_told = launch.rank != 0 and is_known
        raise
    finally:
        ranks.close()


@contextmanager
def _leaving_with_launcher(launch: Launch) -> Iterator[None]:
    """Within this, the process ends when its launcher does, in whose store it waits for others; later a watch does."""
    launcher, has_joined = os.getppid(), threading.Event()

    def look() -> None:
        while not has_joined.wait(1.0):
            if os.getppid() != launcher:
                os._exit(RankError.exit_code)

    if launch.is_store_of_launcher:
        threading.Thread(target=look, name="scramjet-launcher", daemon=True).start()
    try:
        yield
    finally:
        has_joined.set()


def _join(launch: Launch, timeout: float, before_exit: Callable[[], None] | None) -> JoinedRanks:
    global _num_joined
    if dist.is_initialized():
        raise ConfigError(
            "torch.distributed has a process group already; let scramjet join the ranks, and call "
            "torch.distributed.destroy_process_group() before"
        )
    limit = max(JOIN_TIMEOUT, timeout)
    base, keys = connected(launch, limit), f"scramjet/{launch.attempt}/{_num_joined}"
    if launch.attempt and base.check([GIVEN_UP]):
        raise GivenUpError("an earlier attempt failed in a way that starting again does not mend")
    run_key = f"scramjet/run/{_num_joined}"
    earlier = base.get(run_key).decode() if launch.attempt and base.check([run_key]) else ""
    _num_joined += 1
    store = dist.PrefixStore(keys, base)
    everyone = meet(launch, store, this_process(launch.rank, launch.size, _take_gpu(launch)), limit)
    has_nccl = _has_a_gpu_each(everyone)
    if len({each.machine for each in everyone}) == 1 and _LOOPBACK in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # whatever the machine's name may lead to
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if has_nccl else "gloo",
        store=dist.PrefixStore("group", store),
        rank=launch.rank,
        world_size=launch.size,
        timeout=timedelta(seconds=2 * WAITS * timeout),
    )
    watch = Watch(
        store,
        dist.PrefixStore(keys, connected(launch, limit)),
        everyone,
        launch.rank,
        timeout=timeout,
        is_store_of_launcher=launch.is_store_of_launcher,
        before_exit=before_exit,
    )
    ranks = JoinedRanks(launch, base, watch, has_nccl=has_nccl, timeout=timeout, run_key=run_key)
    ranks.earlier_run = Path(earlier) if earlier else None
    ranks.note = _note(everyone, has_nccl)
    watch.start()
    return ranks


def _take_gpu(launch: Launch) -> str:
    """Make one of the machine's GPUs the only one of this process; its name, or "" where none is for NCCL."""
    count = torch.cuda.device_count()
    if count == 0:
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else [str(index) for index in range(count)]
    name = names[launch.local_rank % len(names)]
    if torch.cuda.is_initialized():
        torch.cuda.set_device(launch.local_rank % count)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = name  # every thread and every library sees this one alone
    return name if dist.is_nccl_available() else ""


def _has_a_gpu_each(everyone: list[RankProcess]) -> bool:
    """Whether every rank has a GPU that no other rank has."""
    return all(each.gpu for each in everyone) and len({(each.machine, each.gpu) for each in everyone}) == len(everyone)


def _note(everyone: list[RankProcess], has_nccl: bool) -> str:
    """A remark for runs on GPUs about how slowly they exchange gradients."""
    if has_nccl:
        return ""
    reason = "ranks share a GPU" if all(each.gpu for each in everyone) else "not every rank has a GPU and NCCL"
    return f"{reason}: gradients go by way of the CPU (gloo)"


def _ignore_launcher() -> None:
    """Keep a launcher from ending this process before it has said why: it ends all ranks as soon as one has ended."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _leave_at_once() -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(RankError.exit_code)


def _short(path: Path) -> str:
    return min(os.path.relpath(path), os.fspath(path), key=len)
