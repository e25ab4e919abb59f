"""What a game keeps of its earlier positions, to go back to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.errors import ConfigError
from scramjet.players.player import Player


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything needed to go back to a position."""

    pool: dict[str, np.ndarray]
    generator: Any  # state of the random numbers that players draw from
    memories: tuple[Any, ...]  # of each distinct player
    adviser: Any
    returns: np.ndarray  # [players]
    num_played: int
    is_persons: bool  # whether a person was to move


def memory_of(player: Player) -> Any:
    """A copy of what a player remembers, or the error that says why there is none: it matters only if moves are taken
    back."""
    try:
        return player.memory()
    except ConfigError as error:
        return error
