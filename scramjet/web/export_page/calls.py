"""Calls in Python as calls in JavaScript: of helpers, of what the runtime has ready, and of methods."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType, ModuleType
from typing import Any

from scramjet.web.export_page.expressions import Expressions
from scramjet.web.export_page.literals import text
from scramjet.web.export_page.natives import native_dtype, native_name
from scramjet.web.export_page.scopes import MISSING, parameters, spelled

_WITH_NAMES = {"$.sorted", "$.np.zeros", "$.np.ones", "$.np.full", "$.np.array"}
"""Functions of the runtime that take arguments by name in a last object."""
_IGNORED = {"$.zip": {"strict"}}
"""Arguments by name that change nothing where the rules are right."""


class Calls(Expressions):
    """Translates calls."""

    def _call(self, node: ast.Call) -> str:
        if _is_super(node.func):
            return self._super_call(node)
        value = self.static(node.func)
        if value is not MISSING:
            return self._call_of(value, node)
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if node.keywords:
            self.refuse(node, f"arguments by name in `{ast.unparse(node)[:60]}`")
        return f"{self.expression(node.func)}({', '.join(map(self.argument, node.args))})"

    def _call_of(self, value: Any, node: ast.Call) -> str:
        """A call of something that is known now."""
        if isinstance(value, FunctionType) and native_name(value) is None:
            return self._helper(value, node, [])
        if inspect.ismethod(value) and isinstance(value.__func__, FunctionType):  # self.helper(...)
            return self._helper(value.__func__, node, ["null"])
        native, dtype = native_name(value), native_dtype(value)
        if native is None and dtype is not None:
            return f"$.cast({text(dtype)}, {', '.join(map(self.argument, node.args))})"
        if native is None:
            if isinstance(node.func, ast.Attribute) and not isinstance(self.static(node.func.value), ModuleType | type):
                return self._method(node, node.func)  # of a constant
            self.refuse(node, f"a call of {ast.unparse(node.func)}")
        is_numpy = native.startswith("$.np.")
        given = [self._numpy_argument(one) if is_numpy else self.argument(one) for one in node.args]
        if native in ("$.min", "$.max") and len(given) > 2:
            native = "$.lowest" if native == "$.min" else "$.highest"
        named = self._named(node, native)
        return f"{native}({', '.join([*given, *named])})"

    def _named(self, node: ast.Call, native: str) -> list[str]:
        """The arguments by name for a function of the runtime, in one object."""
        keywords = [one for one in node.keywords if one.arg not in _IGNORED.get(native, ())]
        if not keywords:
            return []
        if native not in _WITH_NAMES and {one.arg for one in keywords} != {"axis"}:
            self.refuse(node, f"arguments by name in `{ast.unparse(node)[:60]}`")
        return [self._names_object(keywords)]

    def _names_object(self, keywords: list[ast.keyword]) -> str:
        return f"{{ {', '.join(f'{one.arg}: {self._numpy_argument(one.value)}' for one in keywords)} }}"

    def _numpy_argument(self, node: ast.expr) -> str:
        """An argument that may be a number type."""
        value = self.static(node)
        dtype = None if value is MISSING else native_dtype(value)
        return self.argument(node) if dtype is None else text(dtype)

    def _helper(self, function: FunctionType, node: ast.Call, first: list[str]) -> str:
        """A call of a function that is translated too; arguments by name are put in their places."""
        given = [*first, *map(self.argument, node.args)]
        named = {one.arg: self.expression(one.value) for one in node.keywords}
        signature = inspect.signature(function)
        names = list(signature.parameters)
        for place, argument in enumerate(node.args):
            is_self = isinstance(argument, ast.Name) and argument.id == "self" and self.is_local("self")
            if is_self and names[place + len(first)] != "self":
                self.refuse(node, f"self given to {function.__name__} as `{names[place + len(first)]}`")
        for name in names[len(given) :]:
            if not named:
                break
            given.append(named.pop(name) if name in named else "undefined")
        if named:
            self.refuse(node, f"arguments by name in `{ast.unparse(node)[:60]}`")
        return f"{self.program.function(function)}({', '.join(given)})"

    def _super_call(self, node: ast.Call) -> str:
        """`super().name(...)`: the function of the next class in line."""
        assert isinstance(node.func, ast.Attribute)
        cls = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))[
            "__class__"
        ].cell_contents
        line = type(self.program.env).__mro__
        for parent in line[line.index(cls) + 1 :]:
            found = parent.__dict__.get(node.func.attr)
            if isinstance(found, FunctionType):
                return self._helper(found, node, ["null"])
        self.refuse(node, f"super().{node.func.attr}")

    def _method(self, node: ast.Call, called: ast.Attribute) -> str:
        """A call of a method of some value."""
        given = ", ".join(self._numpy_argument(one) for one in node.args)
        names = f", {self._names_object(node.keywords)}" if node.keywords else ""
        return f"$.call({self.expression(called.value)}, {text(called.attr)}, [{given}]{names})"

    def _lambda(self, node: ast.Lambda) -> str:
        if node.args.vararg or node.args.kwarg or node.args.defaults:
            self.refuse(node, "a lambda with * or default values")
        names = parameters(node)
        self.scopes.append(set(names))
        body = self.expression(node.body)
        self.scopes.pop()
        return f"(({', '.join(map(spelled, names))}) => {body})"


def _is_super(node: ast.expr) -> bool:
    """Whether a called expression is `super().name`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "super"
    )
