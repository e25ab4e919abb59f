"""Players by name: `random`, `greedy`, `minimax:3`, and those of the user's own in a module or file."""

from __future__ import annotations

import os
import re

from scramjet.adapters.factories import functions_of, module_at
from scramjet.adapters.world_code import NamedCode, find_in_current_folder
from scramjet.errors import ConfigError, PlayerError, WorldError, did_you_mean, shortened
from scramjet.players.player import Player
from scramjet.players.scripted import GreedyPlayer, MinimaxPlayer, RandomPlayer
from scramjet.players.user_player import UserPlayer, blamed_on

USUAL_NAME = "choose"
"""The function that is meant where a file is given and nothing in it."""
SCRIPTED = ("random", "greedy", "minimax:N")
"""Names of the players that come with scramjet; N is how many moves ahead minimax looks."""

_FAMILIES = {name.partition(":")[0] for name in SCRIPTED}
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def scripted_player(spec: str) -> Player | None:
    """The player that a text names; None if the text is none of "random", "greedy", "minimax:3", "module:Name",
    "FILE.py:Name" and "FILE.py".

    The last three run the user's code: only texts that the user has given may come here, see `runs_code`.
    """
    if spec == "random":
        return RandomPlayer()
    if spec == "greedy":
        return GreedyPlayer()
    if spec == "minimax" or spec.startswith("minimax:"):
        return _minimax(spec)
    place = _place(spec)
    return None if place is None else _user_player(spec, *place)


def is_scripted(spec: str) -> bool:
    """Whether `scripted_player` would make a player of this text, or refuse it as a wrong one; nothing is loaded."""
    return spec.partition(":")[0] in _FAMILIES or runs_code(spec)


def runs_code(spec: str) -> bool:
    """Whether making this player would import a module or run a file; nothing is loaded to find out."""
    return not spec.startswith("minimax:") and _place(spec) is not None


def _minimax(spec: str) -> MinimaxPlayer:
    depth = spec.partition(":")[2]
    if not depth.isascii() or not depth.isdigit() or len(depth) > 3:
        raise ConfigError(f"{shortened(spec)} must say how many moves to look ahead: minimax:3")
    return MinimaxPlayer(int(depth))


def _place(spec: str) -> tuple[str, str] | None:
    """The module or file, and the name in it, that a text stands for; None where it stands for none."""
    if spec.endswith(".py"):
        return spec, USUAL_NAME
    where, colon, name = spec.rpartition(":")
    if not colon or not name.isidentifier():
        return None
    return (where, name) if where.endswith(".py") or _MODULE.fullmatch(where) else None


def _user_player(spec: str, where: str, name: str) -> Player:
    """The player in a module or file of the user's."""
    if where.endswith(".py") and not os.path.isfile(where):
        raise ConfigError(f"there is no file {shortened(where)} for the player {shortened(spec)}; give its path")
    if not where.endswith(".py"):
        find_in_current_folder(NamedCode(where, is_file=False))
    try:
        module = module_at(where, spec)
    except WorldError as error:
        raise PlayerError(f"player {spec}: {error}") from error
    found = getattr(module, name, None)
    if found is None:
        known = functions_of(module)
        listed = f"It has {', '.join(known[:20])}" if known else "It has no functions or classes"
        raise PlayerError(f"{shortened(where)} has no {name!r} to play.{did_you_mean(name, known)} {listed}")
    if isinstance(found, type) and issubclass(found, Player):
        with blamed_on(spec):
            found = found()
    if not isinstance(found, Player):
        return UserPlayer(found, spec)
    found.name = spec
    return found
