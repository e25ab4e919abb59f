"""Folders are layers: imports between them point down only, no modules import each other in a circle."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.helpers import ROOT

PACKAGE = ROOT / "scramjet"
BELOW_ALL = {"errors", "settings", "version"}
LAYERS = [
    "envs", "runtime", "compile", "engine", "adapters", "policies", "algorithms", "accelerate", "search", "players",
    "training", "arena", "reports", "tuning", "web", "commands",
]  # fmt: skip
TOP = {"cli", "gym", "__main__", "__init__"}
MOST_MODULES = 15
"""In one folder, those of its subfolders and its __init__.py aside."""


def part_of(module: str) -> str:
    """`scramjet.engine.pool` is part of `engine`; `scramjet` itself of `__init__`."""
    return ([*module.split("."), "__init__"])[1]


def height(part: str) -> int:
    if part in BELOW_ALL:
        return -1
    return LAYERS.index(part) if part in LAYERS else len(LAYERS)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of ours in a file, at any depth: in functions and under TYPE_CHECKING too."""
    package = ["scramjet", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [module]
            if module == "scramjet":
                names = [f"scramjet.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "scramjet":
                yield node.lineno, name


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_part_of_the_package_has_a_place_among_the_layers() -> None:
    assert len(FILES) > 30
    parts = {part_of(".".join(["scramjet", *path.relative_to(PACKAGE).with_suffix("").parts])) for path in FILES}
    assert parts <= BELOW_ALL | set(LAYERS) | TOP


def test_imports_point_down_the_layers_only() -> None:
    for path in FILES:
        own = part_of(".".join(["scramjet", *path.relative_to(PACKAGE).with_suffix("").parts]))
        for line, module in imports_of(path) if own not in TOP else ():
            part = part_of(module)
            is_down = height(part) < height(own) or part == own or (own, part) == ("settings", "errors")
            assert is_down, f"{path} line {line}: {own} may not import {module}"


def test_rules_know_nothing_of_torch_and_numba() -> None:
    for path in (PACKAGE / "envs").glob("*.py"):
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").split(".")[0])
        assert not imported & {"torch", "numba", "threading", "multiprocessing"}, path
        assert "gymnasium" not in imported or path.name == "api.py", path  # the spaces come through one file


MATHEMATICS = {
    "__future__", "abc", "collections.abc", "dataclasses", "decimal", "itertools", "math", "numpy", "torch",
    "triton.language", "typing",
}  # fmt: skip
"""Modules of others that are no way to a file or a process by themselves."""
OF_OURS = {
    "scramjet.compile.block_sizes",
    "scramjet.compile.jit",
    "scramjet.compile.kernel_choice",
    "scramjet.compile.triton",
    "scramjet.compile.vector_maths",
    "scramjet.errors",
    "scramjet.policies.compressed_values",  # mathematics that networks need as well
    "scramjet.runtime.ranks.moments",
    "scramjet.settings",
}
OUTSIDE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "load", "save", "fromfile", "tofile", "memmap"}


def beyond_mathematics(source: str) -> set[str]:
    """Modules that a file of `algorithms` may not import, and functions to files and processes that it calls."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            modules = []
        for module in modules:
            is_allowed = module in OF_OURS or module.startswith("scramjet.algorithms.") or module in MATHEMATICS
            found |= set() if is_allowed else {module}
        if isinstance(node, ast.Call) and not ast.unparse(node.func).startswith("tl."):  # a kernel's load is of memory
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found |= {called} & OUTSIDE_CALLS
    return found


def test_algorithms_are_mathematics_without_policies_processes_and_files() -> None:
    for path in (PACKAGE / "algorithms").rglob("*.py"):
        assert beyond_mathematics(path.read_text()) == set(), path


def test_the_check_of_mathematics_sees_what_is_none() -> None:
    for line, found in {
        "from scramjet.policies import Policy": "scramjet.policies",
        "from scramjet.policies.policy import Policy": "scramjet.policies.policy",
        "import subprocess": "subprocess",
        "def f():\n    import multiprocessing.pool": "multiprocessing.pool",
        "import torch.multiprocessing": "torch.multiprocessing",
        "from pathlib import Path": "pathlib",
        "numbers = open('numbers').read()": "open",
        "import numpy as np\nnumbers = np.load('numbers.npy')": "load",
    }.items():
        assert beyond_mathematics(line) == {found}
    assert beyond_mathematics("import torch\nfrom torch import Tensor\nx = torch.exp(torch.ones(2))") == set()


def test_the_finder_of_imports_sees_every_form() -> None:
    file = PACKAGE / "engine" / "imaginary.py"
    source = (
        "import scramjet.training.loop\nfrom scramjet.policies import Policy\nfrom scramjet import runtime\n"
        "from . import pool\nfrom ..web import page\nimport numpy\n"
        "def late():\n    from scramjet.cli import main\n"
    )

    class Imaginary(type(file)):
        def read_text(self, *_: object) -> str:
            return source

    found = {(line, part_of(module)) for line, module in imports_of(Imaginary(file))}
    assert found == {(1, "training"), (2, "policies"), (3, "runtime"), (4, "engine"), (5, "web"), (8, "cli")}


def import_graph(package: Path) -> dict[str, set[str]]:
    """The modules of a package by full name, and for each the modules of the package that it imports.

    All imports count: at the top, in functions and under TYPE_CHECKING. `from a import b` is an import of the module
    a.b if there is one, else of a.
    """
    paths = {}
    for path in package.rglob("*.py"):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        folder = [package.name, *path.relative_to(package).parent.parts]
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = folder[: len(folder) - node.level + 1] if node.level else []
                source = ".".join([*base, *([node.module] if node.module else [])])
                names = {f"{source}.{alias.name}" for alias in node.names}
                found |= {name if name in paths else source for name in names}
        graph[module] = found & set(paths) - {module}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules that import each other, directly or by way of others of the group."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, to_visit = set(), list(graph[start])
        while to_visit:
            module = to_visit.pop()
            if module not in seen:
                seen.add(module)
                to_visit += graph[module]
        reached[start] = seen
    groups = {frozenset(other for other in reached[each] if each in reached[other]) for each in graph}
    return [set(group) for group in groups if group]


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = import_graph(PACKAGE)
    assert len(graph) > 100
    told = [{each: sorted(graph[each] & group) for each in sorted(group)} for group in circles(graph)]
    assert not told, f"modules import each other: {told}"


def test_the_finder_of_circles_sees_lazy_imports_and_those_for_types(tmp_path: Path) -> None:
    package = tmp_path / "made_up"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__": "from made_up.first import name",
        "first": "def late():\n    from made_up.inner import second",
        "inner/__init__": "",
        "inner/second": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import third",
        "inner/third": "from ..first import late\nimport made_up.outside",
        "outside": "from made_up.inner import __doc__",
    }.items():
        (package / f"{name}.py").write_text(text)
    circle = {"made_up.first", "made_up.inner.second", "made_up.inner.third"}
    assert circles(import_graph(package)) == [circle]
    (package / "inner" / "third.py").write_text("import made_up.outside")
    assert circles(import_graph(package)) == []


def test_no_folder_holds_more_modules_than_a_reader_can_take_in() -> None:
    counts = Counter(path.parent for path in FILES if path.name != "__init__.py")
    crowded = {str(folder.relative_to(PACKAGE)): count for folder, count in counts.items() if count > MOST_MODULES}
    assert not crowded, f"more than {MOST_MODULES} modules in one folder: {crowded}"


GENERAL_NAMES = {"agent"}
"""Entries that a rule of an encoder is about, in any world; docs/configuration.md tells it."""


def entry_names(space: object) -> set[str]:
    """The names in a Dict space, nested ones too."""
    entries: dict[str, object] = getattr(space, "spaces", {})
    return set(entries).union(*map(entry_names, entries.values())) if isinstance(entries, dict) else set()


def test_policies_name_no_worlds_observations() -> None:
    from scramjet.envs.registry import load_env, registrations

    names = [world.name for world in registrations() if isinstance(world.target, str)]  # those that come with scramjet
    of_worlds = set().union(*(entry_names(load_env(name).observation_space) for name in names))
    assert {"walls", "items_placed", "step_count"} <= of_worlds
    for path in sorted((PACKAGE / "policies").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in of_worlds - GENERAL_NAMES, f"{path.name} line {node.lineno}: {node.value}"
