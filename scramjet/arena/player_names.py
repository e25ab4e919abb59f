"""Players as a text: a run with or without a search, "runs/four@alphazero:64", or a player by name."""

from __future__ import annotations

import os
from pathlib import Path

from scramjet.errors import ConfigError, shortened
from scramjet.players.registry import is_scripted
from scramjet.search.specs import SearchSpec, parse_search, split_player

PERFECT = "perfect"


def split_search(text: str, runs_dir: str | Path = "runs") -> tuple[str, SearchSpec | None]:
    """The run or checkpoint that a text names, and the search behind its last "@", if there is one.

    Raises a ConfigError with examples where a search is meant and misspelled: behind a run that there is, or begun
    like one.
    """
    if names_a_path(text, runs_dir):
        return text, None
    player, spec = split_player(text)
    place, at, search = text.rpartition("@")
    if player == text and at and (names_a_path(place, runs_dir) or search.lower().startswith(("alphazero", "spo"))):
        parse_search(search)
    if spec is not None and (player == PERFECT or is_scripted(player)):
        raise ConfigError(f"{shortened(text)}: only networks search, and {player} is none; give RUN@{spec.text}")
    return player, spec


def names_a_path(text: str, runs_dir: str | Path) -> bool:
    """Whether a text is a path, or a name in the folder of runs."""
    return os.path.exists(text) or (os.sep not in text and os.path.exists(os.path.join(runs_dir, text)))
