"""The flags of a command, made from its dataclass, and the values that their texts stand for."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from scramjet.settings import NO_FIT, Flat, NoFlag, Positional, Spelling, fit, flag

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
