"""The help of a command: its description, then its flags with their types, texts and defaults, wrapped to the terminal.

All of it comes from the command's dataclass: what stands under a field is the help of its flag.
"""

from __future__ import annotations

import ast
import inspect
import shutil
import sys
import textwrap
import types
from collections.abc import Iterator
from dataclasses import MISSING, is_dataclass
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from scramjet.commands.arguments.flags import Flag, flags_of
from scramjet.settings import Spelling

_WIDEST = 100
_COLUMN = 26
"""Where the texts of flags begin; a longer flag has its text on the next line."""
_TYPE_WORDS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH", type(None): "none"}


def show_help(cls: type, prog: str, description: str, given: Any = None) -> NoReturn:
    """Print the help of a command and end it; `given` is an instance of `cls` with the values to show."""
    text = help_text(cls, prog, description, given, min(_WIDEST, shutil.get_terminal_size().columns))
    if not sys.stdout.isatty():
        print(text)
        raise SystemExit(0)
    from rich.console import Console
    from rich.text import Text

    shown = Text(text)
    shown.highlight_regex(r"(?m)^(usage|\S[^\n]*)(?=:$)", "bold")
    shown.highlight_regex(r"(?m)^  (--\S+|-h)(, --\S+)?", "cyan")
    shown.highlight_regex(r"\(default: [^)]*\)", "dim")
    Console().print(shown, soft_wrap=True)
    raise SystemExit(0)


def help_text(cls: type, prog: str, description: str, given: Any, width: int) -> str:
    """The help of a command in lines of at most `width` columns."""
    sections: dict[type, list[Flag]] = {}
    for each in flags_of(cls):
        sections.setdefault(each.owner, []).append(each)
    places = [each for flags in sections.values() for each in flags if each.metavar is not None]
    words = [each.metavar if each.default is MISSING else f"[{each.metavar}]" for each in places]
    lines = [" ".join(["usage:", prog, *map(str, words), "[flags]"]), "", *_folded(description, width), ""]
    for each in places:
        lines += _entry(str(each.metavar), _explained(each, given), width)
    help_of_help = _entry("-h, --help", "Show this help.", width)
    for owner, flags in sections.items():
        title = "flags" if owner is cls else (inspect.getdoc(owner) or "").partition(". ")[0].rstrip(".")
        lines += ["", *textwrap.wrap(f"{title}:", width), *help_of_help]
        help_of_help = []
        for each in flags:
            if each.metavar is None:
                lines += _entry(_label(each, given), _explained(each, given), width)
    return "\n".join(lines)


def _entry(label: str, text: str, width: int) -> list[str]:
    """A flag and its text beside it, or below it where the flag is long."""
    wrapped = textwrap.wrap(text, max(20, width - _COLUMN), break_on_hyphens=False)
    lines = [" " * _COLUMN + line for line in wrapped]
    if len(label) + 4 > _COLUMN or not lines:
        if len(label) + 2 > width:  # many choices
            return [
                *textwrap.wrap(label.replace(",", ", "), width, initial_indent="  ", subsequent_indent=" " * 6),
                *lines,
            ]
        return [f"  {label}", *lines]
    return [f"  {label}".ljust(_COLUMN) + wrapped[0], *lines[1:]]


def _label(flag: Flag, given: Any) -> str:
    """How a flag is typed: `--seed INT`, or `--fused, --no-fused` where both forms may be needed."""
    if not flag.is_switch:
        return f"{flag.spelling} {_metavar(flag.hint)}"
    needs_both = given is not None or flag.default is True
    return f"{flag.spelling}, {flag.negation}" if needs_both else flag.spelling


def _metavar(hint: Any) -> str:
    """What may be written behind a flag of this type: `INT`, `FLOAT|none`, `{gae,vtrace}`, `[TEXT ...]`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((note.metavar for note in arguments[1:] if isinstance(note, Spelling)), _metavar(arguments[0]))
    if origin in (Union, types.UnionType):
        return "|".join(_metavar(each) for each in sorted(arguments, key=lambda each: each is type(None)))
    if origin is Literal:
        return "{" + ",".join(arguments) + "}" if len(arguments) > 1 else str(arguments[0])
    if origin is tuple:
        return f"[{_metavar(arguments[0])} ...]"
    return _TYPE_WORDS[hint]


def _explained(flag: Flag, given: Any) -> str:
    """The text of a flag's field, and its value where nothing is typed."""
    text = field_texts(flag.owner).get(flag.path[-1], "")
    value = flag.default
    if given is not None:
        value = given
        for name in flag.path:
            value = getattr(value, name)
    is_told = value is None and "by default" in text
    if value in (MISSING, (), "") or is_told or (value is False and given is None):
        return text
    return f"{text} (default: {_written(value)})"


def _written(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "none" if value is None else str(value)


def field_texts(cls: type) -> dict[str, str]:
    """What stands under each field of a dataclass, on one line: where the source ends a line means nothing."""
    texts: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if is_dataclass(each):
            texts |= dict(_texts_in(_definitions(each.__module__)[each.__name__]))
    return texts


@cache
def _definitions(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module, as its source has them."""
    parsed = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: each for each in parsed.body if isinstance(each, ast.ClassDef)}


def _texts_in(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for declared, text in pairwise(definition.body):
        if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
            match text:
                case ast.Expr(ast.Constant(str(words))):
                    yield declared.target.id, " ".join(words.split())


def _folded(description: str, width: int) -> list[str]:
    """Text with its paragraphs wrapped; indented lines, which are examples, stay as they are."""
    lines: list[str] = []
    for is_text, group in groupby(description.strip().splitlines(), lambda line: line != "" and line[0] != " "):
        paragraph = [*group]
        lines += textwrap.wrap(" ".join(paragraph), width) if is_text else paragraph
    return lines
