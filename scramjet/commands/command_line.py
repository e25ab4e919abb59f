"""Reads a command line into a dataclass; a mistake becomes one message that names it and the fix."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import shutil
import sys
import textwrap
import threading
import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from scramjet.errors import ConfigError, shortened
from scramjet.runtime.runs import find_run
from scramjet.runtime.terminal import is_screen, show_over
from scramjet.settings import NO_FIT, Flat, NoFlag, Positional, Spelling, describe, fit, flag, nearest_choice
from scramjet.training.config.names_of_other_libraries import suggestion

T = TypeVar("T")


@dataclass(frozen=True)
class CommandLine:
    """The values given on a command line, by the path of their field."""

    values: dict[tuple[str, ...], Any]
    wants_help: bool = False

    def names(self) -> list[str]:
        """The last part of each given field's path."""
        return [path[-1] for path in self.values]

    def laid_over(self, base: T, path: tuple[str, ...] = ()) -> T:
        """`base`, the dataclass at `path` in the command's, with the values given for it and the dataclasses in it."""
        changes = {}
        for field in fields(base):  # type: ignore[arg-type]
            here, value = (*path, field.name), getattr(base, field.name)
            if here in self.values:
                changes[field.name] = self.values[here]
            elif is_dataclass(value) and any(given[: len(here)] == here for given in self.values):
                changes[field.name] = self.laid_over(value, here)
        return replace(base, **changes) if changes else base  # type: ignore[type-var]


def parse(cls: type[T], words: list[str], *, prog: str, description: str) -> T:
    """The words of a command as an instance of its dataclass; with --help the help is shown and the command ends."""
    line = read_words(cls, words, prog=prog, description=description)
    if line.wants_help:
        show_help(cls, prog, description)
    given = {path[0]: value for path, value in line.values.items()}
    required = [each for each in flags_of(cls) if each.default is MISSING and each.path[0] not in given]
    for missing in required:
        raise ConfigError(f"{prog} needs {missing.metavar or missing.spelling}{_example(description)}; {_see(prog)}")
    return cls(**given)


def read_words(cls: type, words: list[str], *, prog: str, description: str = "") -> CommandLine:
    """The values that the words of a command give to the fields of `cls`, nested ones included."""
    reader = _Reader(list(flags_of(cls)), prog)
    return CommandLine(dict(reader.read(words)), reader.wants_help)


def _example(description: str) -> str:
    """The first command line that a description shows."""
    shown = re.search(r"^ +(scramjet .+?)(?:   .*)?$", description, re.MULTILINE)
    return f", such as: {shown[1]}" if shown else ""


def _see(prog: str) -> str:
    return f"see `{prog} --help`"


class _Reader:
    """Reads the words of one command line from left to right."""

    def __init__(self, flags: list[Flag], prog: str) -> None:
        self.prog = prog
        self.wants_help = False
        self._flags = {each.spelling: each for each in flags if each.metavar is None}
        self._negations = {each.negation: each for each in self._flags.values() if each.is_switch}
        self._places = [each for each in flags if each.metavar is not None]
        self._standing: list[str] = []  # words given without a flag

    def read(self, words: list[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Each given field's path and value."""
        position = 0
        while position < len(words):
            word = words[position]
            position += 1
            if word in ("-h", "--help"):
                self.wants_help = True
            elif not word.startswith("-"):
                yield self._place(word)
            else:
                spelled, equals, text = word.partition("=")
                spelled = spelled.replace("_", "-")
                end = position
                while not equals and end < len(words) and not words[end].startswith("--") and words[end] != "-h":
                    end += 1
                if equals:
                    self._refuse_unclear_switch(spelled, text)
                path, value, used = self._value(spelled, [text] if equals else words[position:end])
                position += 0 if equals else used
                yield path, value

    def _place(self, word: str) -> tuple[tuple[str, ...], Any]:
        last = self._places[-1] if self._places else None
        if last is not None and last.item_hint is not None and len(self._standing) >= len(self._places) - 1:
            self._standing.append(word)
            texts = self._standing[len(self._places) - 1 :]
            return last.path, tuple(self._meaning(last, text, last.item_hint, str(last.metavar)) for text in texts)
        if len(self._standing) == len(self._places):
            taken = ", ".join(
                f"{place.metavar} {text}" for place, text in zip(self._places, self._standing, strict=True)
            )
            after = f" after {taken}" if taken else ""
            raise ConfigError(f"no use for '{word}'{after}; {_see(self.prog)}")
        place = self._places[len(self._standing)]
        self._standing.append(word)
        return place.path, self._meaning(place, word, place.hint, str(place.metavar))

    def _value(self, spelled: str, texts: list[str]) -> tuple[tuple[str, ...], Any, int]:
        """A flag's path, its value, and how many of the words after it were used."""
        if spelled in self._negations:
            return self._negations[spelled].path, False, 0
        if spelled not in self._flags:
            raise ConfigError(self._unknown(spelled))
        found = self._flags[spelled]
        if found.is_switch:
            is_told = bool(texts) and texts[0] in (*TRUE_WORDS, *FALSE_WORDS)
            return found.path, texts[0] in TRUE_WORDS if is_told else True, int(is_told)
        if found.item_hint is not None:
            return found.path, tuple(self._meaning(found, text, found.item_hint) for text in texts), len(texts)
        if not texts:
            raise ConfigError(f"{spelled} needs a value: {describe(found.hint)}{self._usual(found)}")
        return found.path, self._meaning(found, texts[0], found.hint), 1

    def _refuse_unclear_switch(self, spelled: str, text: str) -> None:
        """Refuse a switch with a value other than true or false: `--trust=no` must not mean `--trust`."""
        if spelled in self._negations:
            raise ConfigError(f"{spelled}={_shown(text)}: it takes no value; write {spelled}")
        found = self._flags.get(spelled)
        if found is not None and found.is_switch and text not in (*TRUE_WORDS, *FALSE_WORDS):
            raise ConfigError(f"{spelled}={_shown(text)}: expected true or false; write {spelled} or {found.negation}")

    def _meaning(self, found: Flag, text: str, hint: Any, label: str = "") -> Any:
        meaning = from_text(text, hint)
        if meaning is NO_FIT:
            several = "; a list ends at the next flag, so other words stand before it" if found.item_hint else ""
            expected = f"expected {describe(hint)}{' in each place' if several else ''}"
            rest = nearest_choice(text, hint) or several or self._usual(found)
            raise ConfigError(f"{label or found.spelling} {_shown(text)}: {expected}{rest}")
        return meaning

    def _usual(self, found: Flag) -> str:
        has_default = found.default not in (MISSING, None, ())
        return f"; the default is {found.default}" if has_default else ""

    def _unknown(self, spelled: str) -> str:
        known = [each.name for each in self._flags.values()]
        name = spelled.lstrip("-").replace("-", "_")
        if spelled in _flags_of_training() and "learning_rate" not in known:
            return f"{_shown(spelled)} is for `scramjet train`; `{self.prog} --help` lists the flags of this command"
        return f"unknown flag {_shown(spelled)}.{suggestion(name, known, flag)} `{self.prog} --help` lists all flags"


def _flags_of_training() -> set[str]:
    """How every setting of a run is typed."""
    from scramjet.training.config.run_config import RunConfig  # takes a while: only where a mistake is told

    flags = list(flags_of(RunConfig))
    return {each.spelling for each in flags} | {each.negation for each in flags if each.is_switch}


def _shown(text: str) -> str:
    """Short text as it was typed, long text shortened."""
    return text if 0 < len(text) <= 100 else shortened(text)


def require_run(text: str, runs_dir: Path) -> None:
    """Raise the error of a RUN whose folder does not exist, before torch is loaded to read it.

    A text that may be something else (a name, FILE.py:Name, RUN@SEARCH) is left to what loads it.
    """
    parent = os.path.basename(os.path.dirname(text))
    if os.sep in text and not any(each in text for each in (":", "@", ".py")) and parent not in _OF_CHECKPOINTS:
        find_run(text, runs_dir)


_OF_CHECKPOINTS = ("checkpoints", "opponents")
"""Folders of a run that hold checkpoints."""


# --- flags made from a dataclass, and the values that their texts stand for


TRUE_WORDS, FALSE_WORDS = ("true", "True"), ("false", "False")


@dataclass(frozen=True)
class Flag:
    """One field of a command's dataclass, or of a dataclass within it."""

    owner: type
    """The dataclass that has the field."""
    path: tuple[str, ...]
    """The names that lead to the field: ("settings", "ppo", "gamma")."""
    name: str
    """The name in a config file: `policy.hidden`."""
    hint: Any
    """Its type."""
    default: Any
    """MISSING if it must be given."""
    metavar: str | None
    """The word for it in messages if it is given without a flag; else None."""

    @property
    def spelling(self) -> str:
        """As it is typed: `--policy.hidden`."""
        return flag(self.name)

    @property
    def negation(self) -> str:
        """The flag that turns a switch off: `--policy.no-shared-trunk`."""
        table, dot, last = self.spelling.removeprefix("--").rpartition(".")
        return f"--{table}{dot}no-{last}"

    @property
    def is_switch(self) -> bool:
        """Whether it needs no value."""
        return self.hint is bool

    @property
    def item_hint(self) -> Any:
        """The type of each value if it takes several; else None."""
        return get_args(self.hint)[0] if get_origin(self.hint) is tuple else None


def flags_of(cls: type, path: tuple[str, ...] = (), prefix: str = "") -> Iterator[Flag]:
    """Every flag of a dataclass, in order; annotations say what is positional, has no flag or no prefix."""
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        hint, notes = _without_notes(hints[field.name])
        here = (*path, field.name)
        if isinstance(hint, type) and is_dataclass(hint):
            is_flat = any(isinstance(note, Flat) for note in notes)
            yield from flags_of(hint, here, prefix if is_flat else f"{prefix}{field.name}.")
        elif not any(isinstance(note, NoFlag) for note in notes):
            metavar = next((note.metavar for note in notes if isinstance(note, Positional)), None)
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            yield Flag(cls, here, prefix + field.name, hint, default, metavar)


def _without_notes(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and its annotations apart; an annotation that says how text is read stays with the type."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    inner, *notes = get_args(hint)
    return hint if any(isinstance(note, Spelling) for note in notes) else inner, tuple(notes)


def from_text(text: str, hint: Any) -> Any:
    """The value of a flag's text as the type `hint`, or NO_FIT."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        in_order = sorted(arguments, key=_strictness)
        meanings = (from_text(text, argument) for argument in in_order)
        return next((meaning for meaning in meanings if meaning is not NO_FIT), NO_FIT)
    if hint is bool:
        return text in TRUE_WORDS if text in (*TRUE_WORDS, *FALSE_WORDS) else NO_FIT
    if hint in (int, float):
        try:
            return fit(hint(text), hint)
        except ValueError:
            return NO_FIT
    return fit(text, hint)


def _strictness(hint: Any) -> int:
    """The order in which types are tried; text last, because any word is text."""
    return (type(None), int, float).index(hint) if hint in (type(None), int, float) else 9 if hint in (str, Path) else 5


# --- telling a terminal that a command loads what it needs: torch takes seconds


_PATIENCE = 0.2
"""Seconds of loading of which nothing is said."""


@contextlib.contextmanager
def loading_shown(command: str) -> Iterator[None]:
    """While the body imports modules: a line that is gone afterwards, if that takes long."""
    if not is_screen(sys.stderr) or os.environ.get("LOCAL_RANK", "0") != "0":
        yield
        return
    timer = threading.Timer(_PATIENCE, show_over, [f"scramjet {command}: loading"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        show_over("")


# --- the help of a command: its description, then its flags with their types, texts and defaults


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
