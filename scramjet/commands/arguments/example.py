"""The flags of `scramjet example`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from scramjet.commands.command_line import parse
from scramjet.settings import Positional

DESCRIPTION = """Write an example into the current folder as a start; without a name, list the examples.

  scramjet example corridor
"""


@dataclass(frozen=True)
class Arguments:
    """Which example."""

    name: Annotated[str | None, Positional("NAME")] = None
    """A name from the list."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet example", description=DESCRIPTION),)
