"""How much there is to read: the size of the code, and what a short training goes through.

    python benchmarks/house.py            the table, beside what stood there on 2026-11-19
    python benchmarks/house.py --list     and the modules that stand out, by name

A training of 20 K steps of CartPole runs in a process of its own, once to compile and once to be watched: which
functions of ours it calls, in how many files, and how many calls below `train_session` the compiled function is called
that takes gradient steps.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "scramjet"
BEFORE = {
    "modules": "771",
    "lines, JavaScript and CSS included": "92,808",
    "lines of tests": "53,468",
    "functions called by 20 K steps of CartPole": "1,160",
    "files they are in": "192",
    "modules of ours loaded by it": "420",
    "calls from train_session to a gradient step": "10",
    "modules whose one importer is their sibling": "116",
    "file names that occur several times": "90 (220 files)",
}
WATCHED = """
import json, sys, threading
from pathlib import Path
import scramjet
from scramjet.training import loop
ours, called, deepest = str(Path(scramjet.__file__).parent), set(), [0]
def watch(frame, event, argument):
    if event != "call" or not frame.f_code.co_filename.startswith(ours):
        return
    code = frame.f_code
    called.add((code.co_filename, code.co_firstlineno, code.co_name))
    if code.co_name == "learn":
        depth = 0
        while frame is not None and frame.f_code.co_name != "train_session":
            depth += frame.f_code.co_filename.startswith(ours)
            frame = frame.f_back
        deepest[0] = max(deepest[0], depth)
threading.setprofile(watch)
sys.setprofile(watch)
scramjet.train("cartpole", total_timesteps=20_000, runs_dir=sys.argv[1], display="quiet")
sys.setprofile(None)
threading.setprofile(None)
modules = [name for name in sys.modules if name.partition(".")[0] == "scramjet"]
print(json.dumps([len(called), len({place for place, *_ in called}), len(modules), deepest[0]]))
"""


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def importers(files: list[Path]) -> dict[Path, set[Path]]:
    """The files that import each file, at any depth."""
    place = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    found: dict[Path, set[Path]] = defaultdict(set)
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                if name in place and place[name] != path:
                    found[place[name]].add(path)
    return found


def watched() -> list[int]:
    """Functions called, files they are in, modules loaded, and calls to a gradient step, of a short training."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            words = [sys.executable, "-c", WATCHED, f"{folder}/{number}"]
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the modules that stand out")
    options = parser.parse_args()
    files = sorted(PACKAGE.rglob("*.py"))
    browser = [path for path in PACKAGE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    known_by = importers(files)
    siblings = [
        path
        for path in files
        if path.stem != "__init__" and len(known_by[path]) == 1 and next(iter(known_by[path])).parent == path.parent
    ]
    names = Counter(path.name for path in files if path.stem != "__init__")
    repeated = {name: number for name, number in names.items() if number > 1}
    functions, places, loaded, calls = watched()
    now = [
        f"{len(files):,}",
        f"{lines_of(files + browser):,}",
        f"{lines_of(sorted((ROOT / 'tests').rglob('*.py'))):,}",
        f"{functions:,}",
        f"{places:,}",
        f"{loaded:,}",
        f"{calls}",
        f"{len(siblings)}",
        f"{len(repeated)} ({sum(repeated.values())} files)",
    ]
    print(f"{'':48}{'2026-11-19':>16}{'now':>16}")
    for (name, before), value in zip(BEFORE.items(), now, strict=True):
        print(f"{name:48}{before:>16}{value:>16}")
    rooms = Counter(path.relative_to(PACKAGE).parts[0] for path in files)
    print("modules by room: " + ", ".join(f"{room} {number}" for room, number in rooms.most_common() if number > 1))
    if options.list:
        print("known to one sibling:", *(str(path.relative_to(PACKAGE)) for path in siblings), sep="\n  ")
        print("repeated:", *(f"{name} ({number})" for name, number in sorted(repeated.items())), sep="\n  ")


if __name__ == "__main__":
    main()
