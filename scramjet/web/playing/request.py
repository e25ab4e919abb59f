"""What a page asks for when a game begins, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from scramjet.arena.game import PERSON
from scramjet.errors import ConfigError, shortened
from scramjet.players.scripted import PERFECT
from scramjet.settings import coerce
from scramjet.training.config.run_config import MAX_SEED
from scramjet.web.agents import LATEST

RUN = "run"
"""The opponent that is the run's own checkpoint."""
STRENGTHS = (0, 8, 16, 32, 64, 128, 256)
"""Simulations of a search that a page can choose; 0: the network alone."""
MOST_AHEAD = 6
"""Moves that minimax looks ahead at most: more take minutes."""

_MINIMAX = re.compile(r"minimax:([1-9])")


@dataclass(frozen=True, slots=True)
class PlayRequest:
    """Who plays what. A run's checkpoint gives the world and advises; without a run, `world` names a built-in one."""

    run: str | None = None
    checkpoint: str = LATEST
    world: str | None = None
    opponent: str | None = None
    """`run`, `random`, `greedy`, `minimax:N`, `perfect` or `person`; None: the run, or greedy without one."""
    seat: str = "first"
    """The person's: `first`, `second` or `random`."""
    temperature: float = 0.0
    simulations: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        if (self.run is None) == (self.world is None):
            raise ConfigError("name a run or a world to play")
        check_strength(self.simulations)
        if self.seed is not None and not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"seed={self.seed} must be from 0 to 2**62 - 1")
        known = (RUN, "random", "greedy", PERFECT, PERSON)
        if self.opponent is not None and self.opponent not in known and not _is_minimax(self.opponent):
            raise ConfigError(
                f"opponent={shortened(self.opponent)} cannot be chosen in the page: give {', '.join(known)}, or "
                f"minimax:1 to minimax:{MOST_AHEAD}"
            )

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> PlayRequest:
        """The request in a message of a page; a ConfigError says what is wrong with it."""
        kinds = {
            "run": str | None, "checkpoint": str, "world": str | None, "opponent": str | None, "seat": str,
            "temperature": float, "simulations": int, "seed": int | None,
        }  # fmt: skip
        given = {name: message[name] for name in kinds if message.get(name) is not None}
        assert set(kinds) == {field.name for field in fields(cls)}
        return cls(**{name: coerce(name, value, kinds[name]) for name, value in given.items()})


def check_strength(simulations: int) -> None:
    """Refuse a number of simulations that no page offers."""
    if simulations not in STRENGTHS:
        raise ConfigError(f"simulations={simulations} must be one of {', '.join(map(str, STRENGTHS))}")


def _is_minimax(opponent: str) -> bool:
    found = _MINIMAX.fullmatch(opponent)
    return found is not None and int(found[1]) <= MOST_AHEAD
