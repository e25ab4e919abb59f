"""The facts about a world that `scramjet list` shows."""

from __future__ import annotations

import inspect
import math
import textwrap
from typing import Any

from scramjet.engine.layout import num_players, played_by
from scramjet.envs.api import Dict, Discrete, Env, MultiDiscrete
from scramjet.envs.registry import Registration, canonical_name
from scramjet.runtime.shipped import shipped_file, shown_path
from scramjet.training.config.files import preset_worlds
from scramjet.training.config.presets import preset_path


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
