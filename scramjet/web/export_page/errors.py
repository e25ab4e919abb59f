"""What export-page says of a world whose Python it cannot turn into JavaScript."""

from __future__ import annotations

import ast
from types import FunctionType

from scramjet.errors import WorldError


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
