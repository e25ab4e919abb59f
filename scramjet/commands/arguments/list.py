"""The flags of `scramjet list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from scramjet.commands.command_line import parse
from scramjet.settings import Positional

DESCRIPTION = """List the worlds that scramjet knows by name, or show the details of one of them or of your own.

  scramjet list
  scramjet list maze
  scramjet list my_world.py
"""


@dataclass(frozen=True)
class Arguments:
    """What to list, and how."""

    world: Annotated[str | None, Positional("WORLD")] = None
    """Show this world, a name or a file such as my_world.py: its spaces, parameters, presets and page of the docs."""
    json: bool = False
    """Print one JSON object instead of text."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet list", description=DESCRIPTION),)
