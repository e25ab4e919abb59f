"""`scramjet list`: the built-in worlds, or details of one of them."""

from __future__ import annotations

import json
import shutil
import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from scramjet.commands.command_line import parse
from scramjet.commands.output.world_facts import describe, facts
from scramjet.envs.registry import canonical_name, is_registered, registrations
from scramjet.errors import WorldError, did_you_mean, printable, shortened
from scramjet.runtime.shipped import shipped_file, shown_path

DESCRIPTION = """List the worlds that scramjet knows by name, or show the details of one of them.

  scramjet list
  scramjet list maze
"""


@dataclass(frozen=True)
class Arguments:
    """What to list, and how."""

    world: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[WORLD]")] = None
    """Show this world: its spaces, parameters, presets and page of the docs."""
    json: bool = False
    """Print one JSON object instead of text."""


def list_command(words: list[str]) -> int:
    """Run `scramjet list ...`; returns the exit code."""
    arguments = parse(Arguments, words, prog="scramjet list", description=DESCRIPTION)
    # Probes, which test learners, come last: people look for games.
    entries = sorted(registrations(), key=lambda entry: (entry.name.startswith("probe_"), entry.name))
    if arguments.world is not None:
        name = _registered(arguments.world)
        entries = [entry for entry in entries if entry.name == name]
    worlds = [describe(entry) for entry in entries]
    if arguments.json:
        print(json.dumps(worlds[0] if arguments.world else {"worlds": worlds}))
        return 0
    width = min(100, max(60, shutil.get_terminal_size().columns))
    lines = facts(worlds[0], width) if arguments.world else [*_table(worlds, width), "", *_next_steps()]
    print("\n".join(printable(line) for line in lines))
    return 0


def _registered(name: str) -> str:
    """The name under which a world is registered; raises a WorldError for any other."""
    if is_registered(name):
        return canonical_name(name)
    known = [entry.name for entry in registrations()]
    raise WorldError(
        f"no world of this name: {shortened(name)}.{did_you_mean(name, known)} `scramjet list` has the names; "
        f"`scramjet train WORLD --help` tells the parameters of any other world"
    )


def _table(worlds: list[dict[str, Any]], width: int) -> list[str]:
    """A line for each world, its name and what it is about; longer descriptions go on below."""
    name_width = max(len(world["name"]) for world in worlds) + 2
    lines: list[str] = []
    for world in worlds:
        parts = textwrap.wrap(world["description"], width - name_width) or [""]
        lines.append(f"{world['name']:<{name_width}}{parts[0]}".rstrip())
        lines += [" " * name_width + part for part in parts[1:]]
    return lines


def _next_steps() -> list[str]:
    page = shipped_file("docs/writing-environments.md")
    own = f"; how: {shown_path(page)}" if page else ""
    return [
        "all about one       scramjet list NAME",
        "train one           scramjet train NAME",
        f"write one           scramjet example corridor{own}",
    ]
