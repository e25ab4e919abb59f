"""The search of a RUN: written behind it, RUN@alphazero:64, or given with --search."""

from __future__ import annotations

from pathlib import Path

from scramjet.arena.players import split_search
from scramjet.errors import ConfigError


def path_and_search(path: str, search: str | None, runs_dir: Path) -> tuple[str, str | None]:
    """The RUN of a command and the text of its search; None: it does not search."""
    place, spec = split_search(path, runs_dir)
    if place == path:
        return path, search
    if search is not None:
        raise ConfigError(f"{path} names a search, and --search {search} another; give one of them")
    return place, None if spec is None else spec.text
