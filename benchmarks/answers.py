"""How long commands take to answer where nothing is trained or played: help, a mistake, the list, the page.

    python benchmarks/answers.py
    python benchmarks/answers.py --beside v0.1.0     another commit in turns with this tree, and the ratio

Each figure is the median of so many starts as a process (--repeats), after one that is not counted: all files are in
memory, and Python's bytecode beside its sources. `serve` is done when it has answered the list of runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("train --help", "eval --help", "compare --help", "train --no-such-flag", "list", "list maze", "serve")


def seconds_to_answer(command: str, tree: Path, folder: str) -> float:
    """One start of a command of the sources in `tree`, in an empty folder."""
    words = [sys.executable, "-m", "scramjet", *command.split()]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": "1"}
    started = time.perf_counter()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder, env=environment
    ) as process:
        assert process.stdout is not None
        if command == "serve":
            address = next(line.split()[1] for line in process.stdout if line.split()[:1] == ["open"])
            with urlopen(f"{address}api/runs", timeout=60) as answer:
                answer.read()
            seconds = time.perf_counter() - started
            process.kill()
            return seconds
        process.stdout.read()
    return time.perf_counter() - started


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A work tree of another commit."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def processor() -> str:
    """The processor's name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "an unknown processor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--beside", metavar="COMMIT", help="measure this commit too, in turns")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        trees = [ROOT]
        if arguments.beside:
            trees.append(stack.enter_context(checked_out(arguments.beside)))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        beside = f" {arguments.beside} | ratio |" if arguments.beside else ""
        print(f"{processor()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}\n")
        print(f"| command | here |{beside}\n|---|---|{'---|---|' if beside else ''}")
        for command in COMMANDS:
            turns = [[seconds_to_answer(command, tree, folder) for tree in trees] for _ in range(arguments.repeats + 1)]
            here, *other = (median(times) for times in zip(*turns[1:], strict=True))
            shown = "".join(f" {seconds:.2f} s | {seconds / here:.1f} |" for seconds in other)
            print(f"| `{command}` | {here:.2f} s |{shown}", flush=True)


if __name__ == "__main__":
    main()
