"""What names and values of Python mean in JavaScript: literals, ready-made functions, scopes and spelling; and the
error for what has no translation.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import itertools
import json
import math
import re
import textwrap
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from scramjet.envs import rng
from scramjet.envs.api import Env
from scramjet.envs.drawing import Canvas
from scramjet.errors import WorldError

# --- errors


class UntranslatableError(WorldError):
    """A construct of a world's rules that has no translation; the text names world, function, line and construct."""


def untranslatable(world: str, function: FunctionType, node: ast.AST | None, what: str) -> UntranslatableError:
    """The error for a construct in a function of a world."""
    line = function.__code__.co_firstlineno + (getattr(node, "lineno", 1) - 1)
    file = function.__code__.co_filename.replace("\\", "/").rpartition("/")[2]
    return UntranslatableError(
        f"export-page cannot take {world}: {function.__qualname__}, line {line} of {file}, has {what}, which the "
        f"translation to JavaScript does not know"
    )


# --- values

LARGEST_WHOLE = 2**53
"""Whole numbers are exact in JavaScript below this."""


class NotALiteralError(Exception):
    """A value that has no form in JavaScript; the text says which and why."""


def literal(value: Any) -> str:
    """A Python value as a JavaScript expression; raises NotALiteralError."""
    if isinstance(value, enum.Enum):
        return literal(value.value)
    if isinstance(value, np.generic):
        return literal(value.item())
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if abs(value) >= LARGEST_WHOLE:
            raise NotALiteralError(f"the whole number {value}, beyond 2**53")
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, dict):
        pairs = ", ".join(f"[{literal(key)}, {literal(item)}]" for key, item in value.items())
        return f"$.dict([{pairs}])"
    if isinstance(value, tuple | list | range):
        return f"[{', '.join(literal(item) for item in value)}]"
    raise NotALiteralError(f"a value of type {type(value).__name__}")


def text(value: str) -> str:
    """A text as a JavaScript string that cannot end the script it stands in."""
    escaped = json.dumps(value)
    for mark in ("<", ">", "&", "\u2028", "\u2029"):
        escaped = escaped.replace(mark, f"\\u{ord(mark):04x}")
    return escaped


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _array(value: np.ndarray) -> str:
    if value.dtype.name not in DTYPES:
        raise NotALiteralError(f"an array of {value.dtype}")
    return f"$.np.array({literal(value.tolist())}, {text(value.dtype.name)})"


# --- what is ready-made

_BUILTINS = (
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "map", "max", "min",
    "next", "range", "reversed", "round", "sorted", "str", "sum", "zip",
)  # fmt: skip
_MATH = (
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "log", "log2", "log10",
    "log1p", "expm1", "hypot", "pow", "fabs", "sqrt", "floor", "ceil", "trunc", "degrees", "radians", "isnan",
    "isfinite", "isinf", "copysign", "fmod",
)  # fmt: skip
_NUMPY = (
    "array", "zeros", "ones", "full", "arange", "linspace", "argwhere", "tile", "clip", "where", "flip", "minimum",
    "maximum", "hypot", "mod", "sin", "cos", "tan", "sqrt", "exp", "log", "tanh", "floor", "ceil", "abs", "sign",
    "round", "arctan2", "sum", "min", "max", "ptp", "mean", "any", "all", "argmax", "argmin",
)  # fmt: skip
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
"""Number types that the page's arrays have."""

NATIVE_FUNCTIONS: dict[Any, str] = {
    **{getattr(builtins, name): f"$.{name}" for name in _BUILTINS},
    **{getattr(math, name): f"$.math.{name}" for name in _MATH},
    **{getattr(np, name): f"$.np.{name}" for name in _NUMPY},
    **{getattr(rng, name): f"$.{name}" for name in ("draw_words", "uniform", "randint", "normal")},
    tuple: "$.list",
    np.empty: "$.np.zeros",
    np.asarray: "$.np.array",
    itertools.pairwise: "$.pairwise",
    Canvas: "new $.Canvas",
}
"""Functions and classes by what stands for them in JavaScript."""

NATIVE_DTYPES: dict[Any, str] = {
    **{np.dtype(name).type: name for name in DTYPES},
    float: "float64",
    int: "int64",
    bool: "bool",
}
"""Number types by their name in the page; called, they convert a number."""


def native_name(value: Any) -> str | None:
    """What stands for a Python function or class in JavaScript; None where nothing does."""
    try:
        return NATIVE_FUNCTIONS.get(value)
    except TypeError:  # not hashable
        return None


def native_dtype(value: Any) -> str | None:
    """The page's name of a number type; None for everything else."""
    try:
        return NATIVE_DTYPES.get(value)
    except TypeError:
        return None


# --- names

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
