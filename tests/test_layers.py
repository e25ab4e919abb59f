"""Folders are layers: imports between them point down only, no modules import each other in a circle."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.helpers import ROOT

PACKAGE = ROOT / "scramjet"
FILES = sorted(PACKAGE.rglob("*.py"))
BELOW_ALL = {"errors", "settings", "version"}
LAYERS = [
    "envs", "runtime", "compile", "kernels", "engine", "adapters", "policies", "algorithms", "executors", "search",
    "players", "selfplay", "runs", "telemetry", "distributed", "training", "arena", "reports", "tuning", "web",
    "commands",
]  # fmt: skip
TOP = {"cli", "gym", "__main__", "__init__"}


def imported(source: str, folder: list[str]) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of every import in a file of a folder, at any depth; without a name for `import module`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, module, alias.name) for alias in node.names)


def folder_of(path: Path) -> list[str]:
    return ["scramjet", *path.relative_to(PACKAGE).parent.parts]


@cache
def imports_of(path: Path) -> tuple[tuple[int, str, str], ...]:
    return tuple(imported(path.read_text(), folder_of(path)))


def part_of(module: str) -> str:
    """`scramjet.engine.pool` is part of `engine`; `scramjet` itself of `__init__`."""
    return ([*module.split("."), "__init__"])[1]


def part_of_file(path: Path) -> str:
    return part_of(".".join([*folder_of(path), path.stem]))


def parts_imported(imports: Iterable[tuple[int, str, str]]) -> set[tuple[int, str]]:
    """(line, part) of every import of ours."""
    ours = [(line, f"{module}.{name}") for line, module, name in imports if module.split(".")[0] == "scramjet"]
    return {(line, part_of(module)) for line, module in ours}


def height(part: str) -> int:
    if part in BELOW_ALL:
        return -1
    return LAYERS.index(part) if part in LAYERS else len(LAYERS)


def test_imports_point_down_the_layers_only():
    assert len(FILES) > 30
    assert {part_of_file(path) for path in FILES} <= BELOW_ALL | set(LAYERS) | TOP
    for path in FILES:
        if (own := part_of_file(path)) not in TOP:
            for line, part in parts_imported(imports_of(path)):
                is_down = height(part) < height(own) or part == own or (own, part) == ("settings", "errors")
                assert is_down, f"{path.name} line {line}: {own} may not import {part}"


def test_the_finder_of_imports_sees_every_form():
    source = (
        "import scramjet.training.loop\nfrom scramjet.policies import Policy\nfrom scramjet import runtime\n"
        "from . import pool\nfrom ..web import page\nimport numpy\n"
        "def late():\n    from scramjet.cli import main\nif TYPE_CHECKING:\n    from ..search import tree\n"
    )
    found = parts_imported(imported(source, ["scramjet", "engine"]))
    assert found == {
        (1, "training"),
        (2, "policies"),
        (3, "runtime"),
        (4, "engine"),
        (5, "web"),
        (8, "cli"),
        (10, "search"),
    }


def test_rules_know_nothing_of_torch_and_numba():
    for path in sorted((PACKAGE / "envs").glob("*.py")):
        modules = {module.split(".")[0] for _, module, _ in imports_of(path)}
        assert not modules & {"torch", "numba", "threading", "multiprocessing"}, path.name
        assert "gymnasium" not in modules or path.name == "api.py"  # the spaces come through one file


MATHEMATICS = {
    *("__future__", "abc", "collections.abc", "dataclasses", "decimal", "itertools", "math", "typing"),
    *("numpy", "torch", "triton.language"),
}
"""Modules of others that are no way to a file or a process by themselves."""
OF_OURS = {
    *("scramjet.compile.jit", "scramjet.compile.vector_maths", "scramjet.errors", "scramjet.settings"),
    *("scramjet.kernels.gpu.language", "scramjet.kernels.operations"),
    "scramjet.policies.layers",  # mathematics that networks need as well
    "scramjet.runtime.ranks.moments",
}
OUTSIDE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "load", "save", "fromfile", "tofile", "memmap"}


def beyond_mathematics(source: str) -> set[str]:
    """Modules that a file of `algorithms` may not import, and functions to files and processes that it calls."""
    modules = {module for _, module, _ in imported(source, ["scramjet", "algorithms"])}
    found = {each for each in modules - OF_OURS - MATHEMATICS if not each.startswith("scramjet.algorithms.")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and not ast.unparse(node.func).startswith("tl."):  # a kernel's load is of memory
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found |= {called} & OUTSIDE_CALLS
    return found


def test_algorithms_are_mathematics_without_policies_processes_and_files():
    for path in sorted((PACKAGE / "algorithms").rglob("*.py")):
        if path.name == "algorithm.py":  # the list of records, which names what builds them
            continue
        assert beyond_mathematics(path.read_text()) == set(), path.name
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


def import_graph() -> dict[str, set[str]]:
    """Our modules by full name, and for each those of ours that it imports: at the top, in functions, for types alone.

    `from a import b` is an import of the module a.b if there is one, else of a.
    """
    paths = {".".join([*folder_of(path), *([] if path.stem == "__init__" else [path.stem])]): path for path in FILES}
    graph = {}
    for own, path in paths.items():
        names = [(module, f"{module}.{name}") for _, module, name in imports_of(path)]
        graph[own] = {full if full in paths else module for module, full in names} & set(paths) - {own}
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


def test_no_modules_import_each_other_in_a_circle():
    assert circles({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set(), "e": {"a", "d"}}) == [{"a", "b", "c"}]
    graph = import_graph()
    assert len(graph) > 100
    told = [{each: sorted(graph[each] & group) for each in sorted(group)} for group in circles(graph)]
    assert not told, f"modules import each other: {told}"


GENERAL_NAMES = {"agent"}
"""Entries that a rule of an encoder is about, in any world; docs/configuration.md tells it."""


def entry_names(space: object) -> set[str]:
    """The names in a Dict space, nested ones too."""
    entries: dict[str, object] = getattr(space, "spaces", {})
    return set(entries).union(*map(entry_names, entries.values())) if isinstance(entries, dict) else set()


def test_policies_name_no_worlds_observations():
    from scramjet.envs.registry import load_env, registrations

    names = [world.name for world in registrations() if isinstance(world.target, str)]  # those that come with scramjet
    of_worlds = set().union(*(entry_names(load_env(name).observation_space) for name in names))
    assert {"walls", "items_placed", "step_count"} <= of_worlds
    for path in sorted((PACKAGE / "policies").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in of_worlds - GENERAL_NAMES, f"{path.name} line {node.lineno}: {node.value}"
