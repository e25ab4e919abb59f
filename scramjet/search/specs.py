"""Searches as a text: "alphazero:64" tries 64 positions, "spo:16x4" sends 16 particles 4 steps ahead."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from scramjet.algorithms.config import AlphaZeroConfig, SPOConfig
from scramjet.errors import ConfigError, shortened

SearchKind = Literal["alphazero", "spo"]
NONE = "none"
EXAMPLES = "alphazero:64 (64 simulations), spo:16x4 (16 particles, 4 steps deep) or none"
MOST = {"simulations": 10_000, "particles": 10_000, "depth": 1_000}

_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """Which search a player uses, and how much of it."""

    kind: SearchKind
    sizes: tuple[int, ...]
    """alphazero: simulations; spo: particles and depth."""

    @property
    def text(self) -> str:
        """What `parse_search` makes it from."""
        return f"{self.kind}:{'x'.join(map(str, self.sizes))}"

    @property
    def positions_per_root(self) -> int:
        """Records that a search keeps for each root."""
        return self.sizes[0] + 1

    def config(self, base: AlphaZeroConfig | SPOConfig | None = None) -> AlphaZeroConfig | SPOConfig:
        """The settings of the search: those of `base`, which is of this kind, or the defaults, with these sizes."""
        names = ("simulations",) if self.kind == "alphazero" else ("particles", "depth")
        usual = AlphaZeroConfig() if self.kind == "alphazero" else SPOConfig()
        sizes: dict[str, Any] = dict(zip(names, self.sizes, strict=True))
        return replace(base or usual, **sizes)


def parse_search(text: Any) -> SearchSpec | None:
    """The search that a text means; None for "none", and for None. Raises a ConfigError with examples."""
    if text is None or isinstance(text, SearchSpec):
        return text
    if text == NONE:
        return None
    if not isinstance(text, str):
        raise ConfigError(f"search={shortened(text)} must be a text: {EXAMPLES}")
    kind, _, numbers = text.partition(":")
    if kind == "alphazero":
        return SearchSpec("alphazero", (_size(text, "simulations", numbers),))
    if kind == "spo":
        particles, _, depth = numbers.partition("x")
        return SearchSpec("spo", (_size(text, "particles", particles), _size(text, "depth", depth)))
    raise ConfigError(f"search={shortened(text)} names no search; use {EXAMPLES}")


def _size(text: str, name: str, number: str) -> int:
    """A number of a search's text."""
    size = int(number) if _NUMBER.fullmatch(number) else None
    if size is None or not 1 <= size <= MOST[name]:
        given = shortened(number) if number else "nothing"
        raise ConfigError(
            f"search={shortened(text)} must say its {name} as a whole number from 1 to {MOST[name]:,}, not {given}; "
            f"use {EXAMPLES}"
        )
    return size


def split_player(text: str) -> tuple[str, SearchSpec | None]:
    """A player's text and the search behind its last "@", as in "runs/four@alphazero:64"; None if there is none."""
    player, at, search = text.rpartition("@")
    if not at or search.partition(":")[0] not in ("alphazero", "spo", NONE):
        return text, None
    return player, parse_search(search)
