"""Breaks one line of scramjet at a time and asks which test sees it.

    python benchmarks/breaks.py                   every break of breaks/, by the core of the tests
    python benchmarks/breaks.py gae checkpoint    those that have one of these words in their file or their reason
    python benchmarks/breaks.py --no-hints        without looking first where the list expects it
    python benchmarks/breaks.py --all             by both tiers of the tests

Each break is applied in a copy of the repository. The test that the list names is run first; if it passes, the tests
of each room that imports the broken file, the file's own room before the others, until one fails. What no test sees is
said at the end, and the exit code is 1. `--write FILE` keeps the table as JSON.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "benchmarks" / "breaks"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
PATIENCE_SECONDS = 900


@dataclass(frozen=True)
class Break:
    """One wrong line: where, what, and why a person could write it."""

    file: str
    old: str
    new: str
    why: str
    seen_by: str = ""

    def applied(self, source: str) -> str:
        """The broken source. `old` must stand in it once, or the list is out of date."""
        if source.count(self.old) != 1:
            raise SystemExit(f"breaks/: {self.old!r} stands {source.count(self.old)} times in {self.file}, not once")
        broken = source.replace(self.old, self.new)
        if self.file.endswith(".py"):
            compile(broken, self.file, "exec")
        return broken


@dataclass(frozen=True)
class Verdict:
    """Which test saw a break, None if none did."""

    why: str
    file: str
    seen_by: str | None
    seconds: float


def breaks(words: list[str]) -> list[Break]:
    lists = [tomllib.loads(file.read_text())["break"] for file in sorted(LISTS.glob("*.toml"))]
    found = [Break(**each) for each in itertools.chain.from_iterable(lists)]
    return [each for each in found if not words or any(word in each.file or word in each.why for word in words)]


def imported_modules(path: Path) -> set[str]:
    """Full names of what a file imports, at any depth; `from a import b` counts as a and as a.b."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


class Rooms:
    """The folders of tests, and which of them reach a module by imports, those of other modules included."""

    def __init__(self) -> None:
        files = [*ROOT.glob("scramjet/**/*.py"), *ROOT.glob("tests/**/*.py")]
        self._modules = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}
        self._imports = {name: imported_modules(file) & set(self._modules) for name, file in self._modules.items()}

    def _reached_from(self, module: str) -> set[str]:
        seen, to_visit = set(), [module]
        while to_visit:
            for each in self._imports[to_visit.pop()] - seen:
                seen.add(each)
                to_visit.append(each)
        return seen

    def of(self, file: str) -> list[str]:
        """Paths to give to pytest, one a room: the folder that mirrors the file's first."""
        module = ".".join(Path(file).with_suffix("").parts)
        tests = [name for name in self._modules if name.startswith("tests.") and ".test_" in name]
        rooms = {
            "/".join(name.split(".")[:2]) if name.count(".") > 1 else f"{name.replace('.', '/')}.py"
            for name in tests
            if module in self._reached_from(name) or not file.endswith(".py")
        }
        own = f"tests/{Path(file).parts[1]}"
        return sorted(rooms, key=lambda room: (room != own, room.endswith(".py"), room))


def copy_of_the_repository(folder: Path) -> Path:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in files.stdout.decode().split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def failing_test(copy: Path, tests: str, tiers: list[str]) -> str | None:
    """The first test that fails among some, or None."""
    words = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-n", "0", *tiers, tests]
    path = os.pathsep.join(filter(None, (str(copy), os.environ.get("PYTHONPATH"))))
    surroundings = os.environ | {"PYTHONPATH": path}
    try:
        done = subprocess.run(
            words, cwd=copy, env=surroundings, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{tests} (does not end)"
    if done.returncode in (0, 4, 5):  # 4: no such test any more; 5: none there
        return None
    if done.returncode not in (1, 2):
        raise SystemExit(f"pytest could not run {tests}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    found = FAILED.search(done.stdout)
    return found[1] if found else tests


def judge(each: Break, copy: Path, rooms: Rooms, tiers: list[str], *, by_hints: bool) -> Verdict:
    path = copy / each.file
    source, begun, seen_by = path.read_text(), time.monotonic(), None
    path.write_text(each.applied(source))
    try:
        for tests in ([each.seen_by] if by_hints and each.seen_by else []) + rooms.of(each.file):
            if seen_by := failing_test(copy, tests, tiers):
                break
    finally:
        path.write_text(source)
    return Verdict(each.why, each.file, seen_by, round(time.monotonic() - begun, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only breaks with one of these in their file or reason")
    parser.add_argument("--all", action="store_true", help="run both tiers of the tests")
    parser.add_argument("--no-hints", action="store_true", help="do not run the test that the list names first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", type=Path, help="keep the table as JSON")
    chosen = parser.parse_args()
    waiting: queue.SimpleQueue[Break] = queue.SimpleQueue()
    listed = breaks(chosen.words)
    if not listed:
        parser.error(f"no break has one of these words in its file or its reason: {' '.join(chosen.words)}")
    if chosen.jobs < 1:
        parser.error(f"--jobs {chosen.jobs}: at least 1")
    if chosen.write and not chosen.write.parent.is_dir():
        parser.error(f"--write {chosen.write}: there is no folder {chosen.write.parent}")
    for each in listed:
        each.applied((ROOT / each.file).read_text())
        waiting.put(each)
    rooms, verdicts = Rooms(), list[Verdict]()

    def work(copy: Path) -> None:
        while not waiting.empty():
            each = waiting.get()
            verdict = judge(each, copy, rooms, ["--all"] if chosen.all else [], by_hints=not chosen.no_hints)
            verdicts.append(verdict)
            print(
                f"{verdict.seconds:6.1f} s  {verdict.why}  [{each.file}]: {verdict.seen_by or 'NOT SEEN'}", flush=True
            )

    with tempfile.TemporaryDirectory(prefix="breaks-") as folder:
        copies = [copy_of_the_repository(Path(folder) / str(number)) for number in range(chosen.jobs)]
        threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = [verdict for verdict in verdicts if verdict.seen_by]
    print(f"\n{len(seen)} of {len(listed)} breaks seen ({100 * len(seen) / max(1, len(listed)):.0f} %)")
    for verdict in verdicts:
        if not verdict.seen_by:
            print(f"not seen: {verdict.why} [{verdict.file}]")
    if chosen.write:
        chosen.write.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    return 0 if len(seen) == len(listed) else 1


if __name__ == "__main__":
    sys.exit(main())
