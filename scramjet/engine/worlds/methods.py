"""Methods that rules call on `self`: `self.distance(s)` becomes a call of a plain function, which is compiled along.

Compiled, `self` is a tuple of numbers. So a rule that calls a method of its world is made anew from its source, with
`self.distance(s)` written as `distance_of_self(self, s)`. Rules that call none stay the very functions they are.
"""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType

from scramjet.envs.api import Env

SUFFIX = "_of_self"
"""How a method is called as a function."""


def with_methods(cls: type, functions: dict[str, FunctionType]) -> dict[str, FunctionType]:
    """A world's rules by name, those that call methods of `cls` with these as functions; interpreted they are equal."""
    rewritten: dict[FunctionType, FunctionType] = {}
    return {name: _rewritten(function, cls, rewritten) for name, function in functions.items()}


def _rewritten(function: FunctionType, cls: type, done: dict[FunctionType, FunctionType]) -> FunctionType:
    """`function`, or one that calls the methods it needs as functions; `done` has those of before."""
    if function in done:
        return done[function]
    methods = {name: method for name in _attributes(function.__code__) if (method := _method(cls, name)) is not None}
    code = _code_without(function, cls, set(methods)) if methods else None
    if code is None:
        return function
    scope = dict(function.__globals__)
    new = FunctionType(code, scope, function.__name__, function.__defaults__, function.__closure__)
    new.__kwdefaults__, new.__qualname__ = function.__kwdefaults__, function.__qualname__
    done[function] = new  # before its methods: they may call each other
    for name, method in methods.items():
        scope[f"{name}{SUFFIX}"] = _rewritten(method, cls, done)
    return new


def _method(cls: type, name: str) -> FunctionType | None:
    """The method of the author's that `self.name` means; None for anything else."""
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, staticmethod):
        found = found.__func__
    return found if isinstance(found, FunctionType) and inspect.getattr_static(Env, name, None) is not found else None


def _attributes(code: CodeType) -> Iterator[str]:
    """Names of attributes and methods that code looks up."""
    for part in dis.get_instructions(code):
        if part.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield str(part.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes(constant)


class _Calls(ast.NodeTransformer):
    """Writes `self.name(...)` as `name_of_self(self, ...)`, for methods of `cls`; static ones without self."""

    def __init__(self, receiver: str, cls: type, methods: set[str]) -> None:
        self.receiver, self.cls, self.methods = receiver, cls, methods

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, and those in its arguments."""
        self.generic_visit(node)
        called = node.func
        if not (isinstance(called, ast.Attribute) and called.attr in self.methods):
            return node
        if not (isinstance(called.value, ast.Name) and called.value.id == self.receiver):
            return node
        is_static = isinstance(inspect.getattr_static(self.cls, called.attr), staticmethod)
        function = ast.copy_location(ast.Name(f"{called.attr}{SUFFIX}", ast.Load()), called)
        return ast.copy_location(
            ast.Call(function, [*([] if is_static else [called.value]), *node.args], node.keywords), node
        )


def _code_without(function: FunctionType, cls: type, methods: set[str]) -> CodeType | None:
    """The function's code with calls of these methods as calls of functions; None where its source is not there, or is
    another by now."""
    try:
        lines, first = inspect.getsourcelines(function)
        definition = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(definition, ast.FunctionDef) or not definition.args.args:
        return None
    definition.decorator_list = []  # a staticmethod's
    ast.increment_lineno(definition, first - 1)
    if not _is_same(_compiled(definition, function), function.__code__):
        return None
    return _compiled(_Calls(definition.args.args[0].arg, cls, methods).visit(definition), function)


def _compiled(definition: ast.FunctionDef, function: FunctionType) -> CodeType:
    """The code of a function from its syntax, with the variables around it that `function` has."""
    around = ast.arguments([], [ast.arg(name) for name in function.__code__.co_freevars], None, [], [], None, [])
    outer = ast.FunctionDef("outer", around, [definition], [])
    module = ast.fix_missing_locations(ast.Module([outer], []))
    features = function.__code__.co_flags & __future__.annotations.compiler_flag
    code = compile(module, function.__code__.co_filename, "exec", flags=features, dont_inherit=True)
    return _inner(_inner(code, "outer"), function.__name__)


def _inner(code: CodeType, name: str) -> CodeType:
    return next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name)


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects do the same, wherever they stand."""
    if (one.co_code, one.co_names, one.co_varnames) != (other.co_code, other.co_names, other.co_varnames):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    return len(one.co_consts) == len(other.co_consts) and all(
        _is_same(mine, theirs) if isinstance(mine, CodeType) and isinstance(theirs, CodeType) else mine == theirs
        for mine, theirs in pairs
    )
