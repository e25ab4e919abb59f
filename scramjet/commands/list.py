"""`scramjet list`: the built-in worlds, or details of one of them or of your own."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import Any

from scramjet.adapters.registry import is_foreign, known_names, note_on_id
from scramjet.commands.arguments.list import Arguments
from scramjet.commands.output.world_facts import describe, facts
from scramjet.engine.layout import check_spaces
from scramjet.envs.registry import Registration, canonical_name, is_registered, load_env, registrations
from scramjet.errors import WorldError, did_you_mean, printable, shortened
from scramjet.runtime.shipped import shipped_file, shown_path
from scramjet.training.worlds.trust import name_of


def list_command(arguments: Arguments) -> int:
    """Run `scramjet list ...`; returns the exit code."""
    # Probes, which test learners, come last: people look for games.
    entries = sorted(registrations(), key=lambda entry: (entry.name.startswith("probe_"), entry.name))
    if arguments.world is not None:
        entries = [_entry(arguments.world)]
    worlds = [describe(entry) for entry in entries]
    if arguments.json:
        print(json.dumps(worlds[0] if arguments.world else {"worlds": worlds}))
        return 0
    width = min(100, max(60, shutil.get_terminal_size().columns))
    lines = facts(worlds[0], width) if arguments.world else [*_table(worlds, width), "", *_next_steps()]
    if arguments.world and (note := note_on_id(arguments.world)):
        lines = [note, "", *lines]
    print("\n".join(printable(line) for line in lines))
    return 0


def _entry(given: str) -> Registration:
    """The registered world of this name, or one in a file or module; raises a WorldError for any other."""
    if is_registered(given):
        return next(entry for entry in registrations() if entry.name == canonical_name(given))
    if ":" not in given and not given.endswith(".py") and not is_foreign(given):
        raise WorldError(
            f"no world of this name: {shortened(given)}.{did_you_mean(given, known_names())} `scramjet list` has the "
            f"names; of a world of your own, give the file: my_world.py"
        )
    name = name_of(given)
    if is_foreign(name):
        raise WorldError(
            f"{note_on_id(given) or f'{shortened(given)} is an env of another library'}: `scramjet check {given}` "
            f"shows its spaces, `scramjet train {given} --help` its parameters"
        )
    env = load_env(name)
    check_spaces(env)
    return Registration(given, type(env))


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
