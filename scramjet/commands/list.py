"""`scramjet list`: the built-in worlds, or details of one of them or of your own."""

from __future__ import annotations

import inspect
import json
import math
import shutil
import textwrap
from typing import Any

from scramjet.adapters.registry import is_foreign, known_names, note_on_id
from scramjet.commands.arguments.list import Arguments
from scramjet.engine.layout import check_spaces, num_players, played_by
from scramjet.envs.api import Dict, Discrete, Env, MultiDiscrete
from scramjet.envs.registry import Registration, canonical_name, is_registered, load_env, registrations
from scramjet.errors import WorldError, did_you_mean, printable, shortened
from scramjet.runs.world_trust import name_of
from scramjet.runtime.shipped import shipped_file, shown_path
from scramjet.training.config.files import preset_worlds
from scramjet.training.config.presets import preset_path


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


# --- the facts about a world


def describe(entry: Registration) -> dict[str, Any]:
    """A world's name, spaces, parameters, first line of description, presets, and paths of its own preset and page."""
    cls = entry.env_class()
    env = cls()
    obs, action = env.observation_space, env.action_space
    page = shipped_file(f"docs/worlds/{entry.name}.md")
    preset = preset_path(entry.name)
    return {
        "name": entry.name,
        "aliases": list(entry.aliases),
        "observes": _space_in_words(obs),
        "acts": _actions_in_words(action),
        "players": _players_in_words(env),
        "observation_space": repr(obs),
        "action_space": repr(action),
        "has_mask": hasattr(env, "mask"),
        "max_episode_steps": env.max_episode_steps,
        "parameters": cls.parameter_defaults(),
        "stats": list(env.stat_names),
        "preset": preset is not None,
        "preset_path": None if preset is None else shown_path(preset),
        "presets": [name for name, world in preset_worlds().items() if canonical_name(world) == entry.name],
        "docs_path": None if page is None else shown_path(page),
        "description": (inspect.getdoc(cls) or "").split("\n")[0],
    }


def facts(world: dict[str, Any], width: int) -> list[str]:
    """The details of a world that `describe` returned, as lines of at most `width` columns."""
    also = f" (also {', '.join(world['aliases'])})" if world["aliases"] else ""
    limit = world["max_episode_steps"]
    rows = {
        "observes": world["observes"] + (f": {space}" if "\n" not in (space := world["observation_space"]) else ""),
        "acts": f"{world['acts']}: {world['action_space']}{', with a mask' if world['has_mask'] else ''}",
        "players": world["players"],
        "time limit": "none" if limit is None else f"{limit} steps",
        "statistics": ", ".join(world["stats"]) or "none",
        "preset": world["preset_path"] or "none",
        "--preset": ", ".join(world["presets"]) or "none",
        "docs": world["docs_path"] or "none",
    }
    lines = [f"{world['name']}{also}", *textwrap.wrap(world["description"], width), ""]
    for label, text in rows.items():
        fold = textwrap.TextWrapper(width, initial_indent=f"{label:<12}", subsequent_indent=" " * 12)
        fold.break_long_words = fold.break_on_hyphens = False  # paths stay whole, to be copied
        lines += fold.wrap(text)
    parameters = [f"  --env.{name.replace('_', '-')} {value}" for name, value in world["parameters"].items()]
    lines += ["", "parameters", *parameters] if parameters else []
    return [*lines, "", f"scramjet train {world['name']}"]


def _space_in_words(space: Any) -> str:
    if isinstance(space, Dict):
        return ", ".join(space.spaces)
    if isinstance(space, Discrete):
        return f"one of {space.n}"
    choices = "choices, " if isinstance(space, MultiDiscrete) else ""
    return f"{choices}{space.dtype} {list(space.shape)}"


def _actions_in_words(space: Any) -> str:
    if isinstance(space, Discrete):
        return f"{space.n} actions"
    if isinstance(space, MultiDiscrete):
        return f"{len(space.nvec)} choices"
    return f"{math.prod(space.shape)} numbers" if math.prod(space.shape) > 1 else "1 number"


def _players_in_words(env: Env) -> str:
    count = num_players(env)
    return "1" if count == 1 else f"{count} {played_by(env).value}"
