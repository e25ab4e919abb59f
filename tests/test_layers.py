"""Folders are layers: imports between them point down only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "scramjet"
BELOW_ALL = {"errors", "settings"}
LAYERS = [
    "envs", "runtime", "compile", "engine", "adapters", "policies", "algorithms", "accelerate", "training", "arena",
    "web", "commands",
]  # fmt: skip
TOP = {"cli", "gym", "__main__", "__init__"}


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
            if module == "scramjet":  # the version number is anybody's
                names = [f"scramjet.{alias.name}" for alias in node.names if alias.name != "__version__"]
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_the_layers_only(path: Path) -> None:
    own = part_of(".".join(["scramjet", *path.relative_to(PACKAGE).with_suffix("").parts]))
    if own in TOP:
        return
    for line, module in imports_of(path):
        part = part_of(module)
        is_down = height(part) < height(own) or part == own or (own, part) == ("settings", "errors")
        assert is_down, f"{path.name} line {line}: {own} may not import {module}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "envs").glob("*.py")), ids=lambda path: path.name)
def test_rules_know_nothing_of_torch_and_numba(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").split(".")[0])
    assert not imported & {"torch", "numba", "threading", "multiprocessing"}
    assert "gymnasium" not in imported or path.name == "api.py"  # the spaces come through one file


def test_the_finder_of_imports_sees_every_form(tmp_path: Path) -> None:
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
