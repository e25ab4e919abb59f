"""Which names of a function are its own, what the others mean, and how names are spelled in JavaScript."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from types import FunctionType
from typing import Any, Protocol

from scramjet.envs.api import Env

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        "arguments await break case catch class const continue debugger default delete do else enum eval export "
        "extends false finally for function if implements import in instanceof interface let new null package private "
        "protected public return static super switch this throw true try typeof undefined var void while with yield "
        "NaN Infinity Math Number BigInt Array Object String Map Set Symbol Error NdArray Dict Canvas Slice",
    )
)
"""Words that a variable of JavaScript cannot or should not be called."""


class Whole(Protocol):
    """The program that a translated function becomes part of."""

    env: Env
    world: str

    def function(self, function: FunctionType) -> str:
        """The name in JavaScript of another function, which becomes part of the program too."""

    def constant(self, name: str, value: Any) -> str:
        """The name in JavaScript of a constant; raises NotALiteralError."""


MISSING = object()
"""What is known of a name before the page runs: nothing."""


def spelled(name: str) -> str:
    """A local name of Python in JavaScript."""
    return f"{name}_" if name in _RESERVED else name


def definition(function: FunctionType) -> ast.FunctionDef:
    """The parsed source of a function; raises OSError or SyntaxError where there is none to read."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = tree.body[0]
    if not isinstance(found, ast.FunctionDef):
        raise SyntaxError("not a def")
    return found


def parameters(node: ast.FunctionDef | ast.Lambda) -> list[str]:
    """The names of a function's parameters."""
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


class _Bindings(ast.NodeVisitor):
    """Collects the names that a function's own statements bind, without those of functions and loops inside
    expressions, which are theirs."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.names[node.id] = None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.names[node.name] = None

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for test in node.ifs:
            self.visit(test)


def bound_names(body: list[ast.stmt]) -> list[str]:
    """Names that statements bind, in order."""
    bindings = _Bindings()
    for statement in body:
        bindings.visit(statement)
    return list(bindings.names)


def target_names(target: ast.expr) -> set[str]:
    """Names in the target of a loop or comprehension."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def scalars(body: list[ast.stmt]) -> set[str]:
    """Names that are plain numbers for certain: they begin as a literal number or count through a range."""
    found: set[str] = set()
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and is_range(node.iter):
            found.add(node.target.id)
    return found


def is_range(node: ast.expr) -> bool:
    """Whether an expression is written as a call of range."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def outer_value(function: FunctionType, name: str) -> Any:
    """What a name that is not a function's own means now: from its closure, its module or the builtins; or MISSING."""
    if name in function.__code__.co_freevars:
        return (function.__closure__ or ())[function.__code__.co_freevars.index(name)].cell_contents
    return function.__globals__.get(name, getattr(builtins, name, MISSING))
