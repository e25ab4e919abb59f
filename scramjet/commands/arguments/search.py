"""The search of a RUN: written behind it, RUN@alphazero:64, or given with --search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scramjet.errors import ConfigError
from scramjet.players.scripted import split_search
from scramjet.search.specs import parse_search


def path_and_search(path: str, search: str | None, runs_dir: Path) -> tuple[str, str | None]:
    """The RUN of a command and the text of its search; None: it does not search."""
    place, spec = split_search(path, runs_dir)
    if place == path:
        return path, search
    if search is not None:
        raise ConfigError(f"{path} names a search, and --search {search} another; give one of them")
    return place, None if spec is None else spec.text


def refuse_search(words: Sequence[str]) -> None:
    """Refuse --search where a run is trained: there a search is an algorithm with settings."""
    for i, word in enumerate(words):
        flag, _, text = word.partition("=")
        if flag == "--search":
            given = text or " ".join(words[i + 1 : i + 2])
            raise ConfigError(f"--search is for trained agents; to train with a search: {_to_train(given)}")


def _to_train(text: str) -> str:
    """The flags that train with a search of this text; of both kinds where it is none."""
    try:
        spec = parse_search(text)
    except ConfigError:
        spec = None
    if spec is None:
        return f"{_to_train('alphazero:64')}, or {_to_train('spo:16x4')}"
    names = ("simulations",) if spec.kind == "alphazero" else ("particles", "depth")
    sizes = (f"--{spec.kind}.{name} {size}" for name, size in zip(names, spec.sizes, strict=True))
    return " ".join([f"--algorithm {spec.kind}", *sizes])
