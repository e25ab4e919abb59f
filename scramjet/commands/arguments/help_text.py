"""The help of a command: its description wrapped to the width of the terminal, its flags as tyro prints them."""

from __future__ import annotations

import ast
import inspect
import io
import shutil
import sys
import textwrap
from contextlib import redirect_stdout
from copy import copy
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

import tyro

_PLACE = "(description)"


def show_help(cls: type, prog: str, description: str, default: Any = None) -> NoReturn:
    """Print the help of a command and end it; `default` is an instance with the values to show."""
    shown, instance = _with_flowing_texts(cls, default)
    given = {} if default is None else {"default": instance}
    output = _LikeStdout()
    try:
        with redirect_stdout(output):
            tyro.cli(
                shown,
                prog=prog,
                description=_PLACE,
                args=["--help"],
                config=(tyro.conf.FlagCreatePairsOff,) if default is None else (tyro.conf.ConsolidateSubcommandArgs,),
                **given,
            )
    finally:  # tyro ends the command
        print(output.getvalue().replace(_PLACE, _folded(description)), end="")
    raise SystemExit(0)


def field_texts(cls: type) -> dict[str, str]:
    """What stands under each field of a dataclass, on one line: where the source ends a line means nothing."""
    texts: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if not is_dataclass(each):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for declared, text in pairwise(definition.body):
            if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
                match text:
                    case ast.Expr(ast.Constant(str(words))):
                        texts[declared.target.id] = " ".join(words.split())
    return texts


def _with_flowing_texts(cls: type, given: Any = None) -> tuple[type, Any]:
    """For tyro, a dataclass like `cls` that brings the texts of its fields, and an instance like `given` or None.

    From docstrings tyro takes the line breaks of the source, and then wraps to the width of the terminal once more.
    """
    hints, texts = get_type_hints(cls, include_extras=True), field_texts(cls)
    made: list[tuple[str, Any, Any]] = []
    values: dict[str, Any] = {}
    for each in fields(cls):
        hint, *notes = get_args(hints[each.name]) if get_origin(hints[each.name]) is Annotated else [hints[each.name]]
        value = each.default_factory() if each.default_factory is not MISSING else each.default
        value = value if given is None else getattr(given, each.name)
        if isinstance(hint, type) and is_dataclass(hint):
            hint, value = _with_flowing_texts(hint, value)
        if each.name in texts:
            notes.insert(0, tyro.conf.arg(help=texts[each.name]))
        hint = Annotated[hint, *notes] if notes else hint
        made.append((each.name, hint, field() if value is MISSING else field(default_factory=partial(copy, value))))
        values[each.name] = value
    shown = make_dataclass(cls.__name__, made, kw_only=True)
    shown.__doc__ = cls.__doc__
    return shown, None if MISSING in values.values() else shown(**values)


class _LikeStdout(io.StringIO):
    """Keeps what is printed; tyro formats for it as for the real output."""

    encoding = property(lambda self: sys.__stdout__.encoding if sys.__stdout__ else "ascii")

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _folded(description: str) -> str:
    """Text with its paragraphs wrapped; indented lines, which are examples, stay as they are."""
    width = min(100, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for is_text, group in groupby(description.strip().splitlines(), lambda line: line != "" and line[0] != " "):
        paragraph = [*group]
        lines += textwrap.wrap(" ".join(paragraph), width) if is_text else paragraph
    return "\n".join(lines)
