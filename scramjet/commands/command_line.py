"""Reads a command line into a dataclass; a mistake becomes one message that names it and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from scramjet.commands.arguments.flags import FALSE_WORDS, TRUE_WORDS, Flag, flags_of, from_text
from scramjet.commands.arguments.help_text import show_help
from scramjet.errors import ConfigError, shortened
from scramjet.settings import NO_FIT, describe, flag, nearest_choice
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
