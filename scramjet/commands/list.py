"""`scramjet list`: the worlds there are."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import dataclass
from typing import Any

import tyro

from scramjet.engine.layout import num_players, played_by
from scramjet.envs.api import Dict, Discrete, Env, MultiDiscrete
from scramjet.envs.registry import Registration, registrations
from scramjet.errors import printable
from scramjet.training.config_files import preset_path


@dataclass(frozen=True)
class Arguments:
    """How to list."""

    json: bool = False
    """Print one JSON object instead of a table."""


def list_command(words: list[str]) -> int:
    """Run `scramjet list ...`; returns the exit code."""
    arguments = tyro.cli(
        Arguments,
        prog="scramjet list",
        description="The worlds scramjet knows by name, with their spaces.",
        args=words,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    # Probes test learners; people look for games: they come last.
    entries = sorted(registrations(), key=lambda entry: (entry.name.startswith("probe_"), entry.name))
    worlds = [describe(entry) for entry in entries]
    if arguments.json:
        print(json.dumps({"worlds": worlds}))
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("world", "observes", "acts", ""):
        table.add_column(heading, no_wrap=heading == "world")
    for world in worlds:
        cells = (world[key] for key in ("name", "observes", "acts", "description"))
        table.add_row(*(Text(printable(text)) for text in cells))  # as text: brackets are no markup of ours
    Console().print(table)
    print("\nTrain one with `scramjet train NAME`; write your own: see docs/writing-environments.md.")
    return 0


def _space_in_words(space: Any) -> str:
    if isinstance(space, Dict):
        return ", ".join(space.spaces)
    if isinstance(space, Discrete):
        return f"one of {space.n}"
    return f"{space.dtype} {list(space.shape)}"


def _actions_in_words(space: Any) -> str:
    if isinstance(space, Discrete):
        return f"{space.n} actions"
    if isinstance(space, MultiDiscrete):
        return f"{len(space.nvec)} choices"
    return f"{math.prod(space.shape)} numbers" if math.prod(space.shape) > 1 else "1 number"


def _players_in_words(env: Env) -> str:
    count = num_players(env)
    return "1" if count == 1 else f"{count} {played_by(env).value}"


def describe(entry: Registration) -> dict[str, Any]:
    """A world's name, spaces, parameters and first line of description."""
    cls = entry.env_class()
    env = cls()
    obs, action = env.observation_space, env.action_space
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
        "preset": preset_path(entry.name) is not None,
        "description": (inspect.getdoc(cls) or "").split("\n")[0],
    }
