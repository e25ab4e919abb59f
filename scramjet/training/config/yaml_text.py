"""Reads YAML strictly as plain values, without the surprises of YAML 1.1.

The rules are those of YAML 1.2. `yes`, `off`, `1:30:00`, `2026-01-01` and `010` are text, and
a setting that wants a number refuses text; version 1.1 made a switch, 5400, a date and 8 of them. Keys are text. A key
that is given twice, an alias and a tag are refused with their line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from scramjet.errors import shortened

MAX_NODES, MAX_DEPTH = 10_000, 20
"""Values in a file, counted with every key, list and table, and how deep they may nest."""

_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9](_?[0-9])*|0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+)")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9](_?[0-9])*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_MAX_DIGITS = 400


def read_yaml(text: str) -> Any:
    """The values of a YAML file; a ValueError says what is wrong and where."""
    try:
        return _Reader(yaml.parse(text, Loader=yaml.SafeLoader)).read()
    except (yaml.YAMLError, OverflowError) as error:  # the latter for an escape such as "\UFFFFFFFF"
        raise ValueError(" ".join(str(error).split())) from error


class _Reader:
    """Makes values of a parser's events and counts them, so that a file is refused before it takes time or memory."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._num_nodes = 0

    def read(self) -> Any:
        """The file's one document; an empty file is an empty table."""
        value: Any = None
        num_documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                num_documents += 1
                if num_documents > 1:
                    raise ValueError(f"line {_line(event)} begins a second document; a config is one")
                value = self._value(next(self._events), 0)
        return {} if value is None else value

    def _value(self, event: Any, depth: int) -> Any:
        self._check(event, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._table(depth)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                items.append(self._value(item, depth + 1))
            return items
        is_quoted = event.style is not None or event.tag is not None
        return event.value if is_quoted else _plain_scalar(event.value, _line(event))

    def _table(self, depth: int) -> dict[str, Any]:
        table: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            self._check(key, depth + 1)
            if not isinstance(key, yaml.ScalarEvent):
                raise ValueError(f"line {_line(key)} has a list or a table for a key; keys are text")
            if key.value in table:
                raise ValueError(
                    f"line {_line(key)} gives {shortened(key.value)} again, which stands in line {lines[key.value]}; "
                    f"keep one of them"
                )
            lines[key.value] = _line(key)
            table[key.value] = self._value(next(self._events), depth + 1)
        return table

    def _check(self, event: Any, depth: int) -> None:
        """Refuse what a config does not need and what can be endless."""
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ValueError(f"it holds too much: a config has at most {MAX_NODES} values, {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"line {_line(event)}: write out what *{event.anchor} stands for: aliases are not read")
        if event.tag not in (None, "!"):
            raise ValueError(f"line {_line(event)} has the tag {shortened(event.tag)}; write a plain value")


def _plain_scalar(text: str, line: int) -> Any:
    """The value of a word without quotes."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        if len(text) > _MAX_DIGITS:  # no setting takes that, and Python may refuse to read it
            raise ValueError(f"line {line} has a number of {len(text):,} digits")
        return int(text.replace("_", ""), 0)
    is_number = _NUMBER.fullmatch(text) and not _LEADING_ZERO.fullmatch(text)
    return float(text.replace("_", "")) if is_number else text


def _line(event: Any) -> int:
    line: int = event.start_mark.line + 1
    return line
