"""Attack every format of file that scramjet reads: one field forged at a time, in a folder that a user then works with.

    python benchmarks/forge.py                      ten minutes, from a seed that it prints
    python benchmarks/forge.py --minutes 60
    python benchmarks/forge.py --seed 7 --only 123  one forgery again, in this process, with its traceback

Each forgery is used in a process of its own. It must end well or in one message: no traceback, nothing that is
imported, nothing outside the folder that is changed, no end that is not reached within `--limit` seconds of work, no
process that is deaf to SIGTERM. Exit code 1 if anything was found. Formats are in tests/helpers/file_formats.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.helpers.file_formats import Forgery, draw, end_of, make_seed, prepare, surroundings

PATIENCE = 15.0
"""Seconds that a process has to end after SIGTERM, and after a second one."""
WAIT = 4.0
"""How many times its limit a process may take where others keep the machine busy."""


def main() -> int:
    """Attack until the time is over; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--only", type=int, help="the number of one forgery")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="forge-"))
    os.environ["SCRAMJET_STATE_DIR"] = str(base / "state")
    print(f"seed {arguments.seed}, in {base}", flush=True)
    seed_folder = base / "seed"
    seed_folder.mkdir()
    if (pid := os.fork()) == 0:  # this process computes nothing: those that it forks could not, by GNU's OpenMP
        with contextlib.redirect_stdout(None):
            make_seed(seed_folder)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        return 2
    shutil.rmtree(base / "state", ignore_errors=True)  # whoever attacks is not the one who made the files
    arena, found, counts, until = base / "arena", 0, Counter[str](), time.monotonic() + 60 * arguments.minutes
    told = time.monotonic()
    numbers = iter(range(1 << 40)) if arguments.only is None else iter([arguments.only])
    for number in numbers:
        if time.monotonic() > until and arguments.only is None:
            break
        shutil.rmtree(arena, ignore_errors=True)
        forgery = draw(seed_folder, arena / "stranger", np.random.default_rng([arguments.seed, number]))
        problem = attack(arena, seed_folder, forgery, arguments.limit, is_here=arguments.only is not None)
        counts[forgery.format.name] += 1
        if time.monotonic() > told + 60:
            told = time.monotonic()
            print(f"{number + 1} forgeries, {found} ended badly", file=sys.stderr, flush=True)
        if problem:
            found += 1
            print(f"--- {number}: {forgery}\n{problem}", flush=True)
    print(f"{sum(counts.values())} forgeries, {found} ended badly: {dict(counts)}")
    shutil.rmtree(base)
    return 1 if found else 0


def attack(arena: Path, seed_folder: Path, forgery: Forgery, limit: float, *, is_here: bool = False) -> str:
    """What a forgery does that none may do; "" for nothing."""
    folder = prepare(arena, seed_folder)
    forgery.write(folder)
    before = surroundings(arena)
    log = arena.with_suffix(".log")
    if is_here:
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        print(end_of(forgery.use, folder))
        return ""
    pid = os.fork()
    if pid == 0:
        _use(forgery, folder, log)
    problem = _ended(pid, limit)
    after = surroundings(arena)
    if problem is None:
        problem = "no end within its limit"
    if after != before:
        changed = [name for name in {*before, *after} if before.get(name) != after.get(name)]
        problem += f"\nchanged outside the folder: {sorted(changed)[:5]}"
    return problem if problem != "failed" else log.read_text(errors="replace")[-3000:]


def _use(forgery: Forgery, folder: Path, log: Path) -> None:
    """Use the forged folder in this forked process, and end it: 0 well, 3 with what is wrong in the log."""
    code = 3
    try:
        os.setsid()
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        problem = end_of(forgery.use, folder)
        print(problem, flush=True)
        code = 3 if problem else 0
    finally:
        os._exit(code)


def _ended(pid: int, limit: float) -> str | None:
    """How a process ended: "" well, "failed" with a log; "killed by ..." and the like; a hang is told of."""
    began = time.monotonic()
    while time.monotonic() - began < limit * WAIT:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else "failed" if code == 3 else f"it ended with code {code}"
        if _seconds_of_work(pid) > limit:
            break
        time.sleep(0.01)
    deaf = " and deaf to SIGTERM"
    for _ in range(2):
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return f"it hangs: {limit:g} s of work are not enough"
            time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"it hangs{deaf}"


def _seconds_of_work(pid: int) -> float:
    """CPU seconds that a process has used."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
