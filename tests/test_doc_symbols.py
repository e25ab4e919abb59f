"""Every file, class, function, setting and preset that the docs name in backticks exists under that name.

Looked at is the prose of all pages but the CHANGELOG, which tells of names as they were; test_doc_snippets.py runs the
code blocks.
"""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_docs import PAGES, ROOT, prose

PACKAGE = ROOT / "scramjet"
SOURCES = sorted(path for name in ("scramjet", "examples", "benchmarks") for path in (ROOT / name).rglob("*.py"))

SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:\.\./)*[\w/-]+\.(?:py|md|toml|jsonl?|safetensors)")
OURS = re.compile(r"scramjet(\.\w+)+")
CLASS = re.compile(r"([A-Z]\w*[a-z]\w*)(?:\.(\w+))?(?:\(.*\))?")
CALL = re.compile(r"(?:\w+\.)*(\w+)\(.*")
NAME = re.compile(r"_*[a-z]\w*_\w+")

OUTSIDE_FILES = {"my_world.py", "FILE.py", "treasure.py", "helpers.py", "my_world.toml", "NAME.toml"}
"""Files of the reader's own."""
OUTSIDE_NAMES = {
    *("Dict", "Discrete", "MultiBinary", "MultiDiscrete", "Box", "Tuple"),  # Gymnasium
    *("RecordEpisodeStatistics", "action_mask", "rgb_array", "register_envs"),
    *("None", "True", "ValueError", "KeyboardInterrupt", "SystemExit", "NameError"),  # Python
    *("breakpoint", "float", "self", "_exit"),
    *("to", "register_buffer", "use_deterministic_algorithms"),  # torch
    *("ent_coef", "should_save"),  # names that other libraries, or examples of names, have
    *("helper", "divisor", "NAME_mask"),  # of the reader's own
}


@cache
def defined() -> frozenset[str]:
    """Names of all functions and classes of the package, its examples and benchmarks."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return frozenset(node.name for path in SOURCES for node in ast.walk(tree(path)) if isinstance(node, kinds))


@cache
def used() -> frozenset[str]:
    """Every name in those sources, and every literal string: settings, metrics and entries of observations."""
    names = set(defined())
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
                names |= {node.value, *re.split(r"\W", node.value)}
    return frozenset(names)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def file_names() -> frozenset[str]:
    """Names of all files of the repository that the docs may mean by their last part alone."""
    return frozenset(path.name for folder in ("scramjet", "tests", "examples", "benchmarks", "configs", "docs")
                     for path in (ROOT / folder).rglob("*.*"))  # fmt: skip


def is_file(span: str, page: Path) -> bool:
    if "/" in span and span.endswith((".py", ".md")):
        return any((folder / span).is_file() for folder in (ROOT, PACKAGE, page.parent))
    name = span.rpartition("/")[2]
    return name in file_names() or name in used() or (ROOT / span).is_file()  # or a run's: `config.toml`


def imports(name: str) -> bool:
    """Whether `scramjet.a.b` is a module, or something that a module holds."""
    module, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), last) or bool(importlib.import_module(name))
    except ImportError:
        return False


def exists(span: str, page: Path) -> bool:
    """Whether what a page has in backticks exists, if it is the name of something at all."""
    if FILE.fullmatch(span):
        return span.rpartition("/")[2] in OUTSIDE_FILES or is_file(span, page)
    if found := OURS.match(span):
        return imports(found[0])
    if found := CLASS.fullmatch(span):
        return found[1] in defined() | OUTSIDE_NAMES and (found[2] is None or found[2] in used())
    if found := CALL.fullmatch(span):
        return found[1] in defined() | OUTSIDE_NAMES
    if NAME.fullmatch(span):
        return span in used() | OUTSIDE_NAMES or f"{span}.toml" in file_names()  # a preset by its name
    return True


def missing(page: Path) -> list[str]:
    return [span for span in SPAN.findall(prose(page)) if not exists(span, page)]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_what_a_page_has_in_backticks_exists(page: Path) -> None:
    assert missing(page) == []


def test_the_check_of_names_sees_what_does_not_exist(tmp_path: Path) -> None:
    there = ["scramjet/cli.py", "envs/api.py", "cartpole.py", "scramjet.train", "scramjet.algorithms.advantages.gae"]
    there += ["Policy", "Learner.update", "pool.episodes()", "num_envs", "approx_kl", "metrics.jsonl", "a b c", "-1"]
    gone = ["scramjet/clj.py", "envs/engine.py", "cartpool.py", "scramjet.trian", "scramjet.algorithms.gae.gae"]
    gone += ["Polizy", "Learner.no_such", "pool.episoden()", "num_environs", "approx_k4", "metric.jsonl"]
    page = tmp_path / "page.md"
    page.write_text("\n".join(f"`{span}`" for span in there + gone) + "\n```sh\n`no_such_name`\n```\n")
    assert missing(page) == gone


def test_every_outside_name_is_needed() -> None:
    spans = {span for page in PAGES for span in SPAN.findall(prose(page))}
    words = {word for span in spans for word in re.split(r"[^\w.]|\.(?!toml|py)", span)}
    unneeded = {name for name in OUTSIDE_NAMES | OUTSIDE_FILES if name not in words or name in defined()}
    assert unneeded == set()
