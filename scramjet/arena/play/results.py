"""The moves of a game as they were made, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scramjet.arena.play.moves import Move


@dataclass(frozen=True, slots=True)
class PlayedMove:
    """A move that was made."""

    player: int
    move: Move

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"player": self.player, **self.move.as_dict()}


@dataclass(frozen=True, slots=True)
class Result:
    """How a game ended."""

    returns: tuple[float, ...]  # of each player
    winners: tuple[int, ...]  # who had the highest return; all players after a draw
    forfeited: int | None = None  # the player whose illegal move ended the game, if one did
    was_cut: bool = False  # whether the world's time limit ended it

    @property
    def is_draw(self) -> bool:
        """Whether all players came out even."""
        return len(self.winners) == len(self.returns) > 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "returns": list(self.returns), "winners": list(self.winners), "is_draw": self.is_draw,
            "forfeited": self.forfeited, "was_cut": self.was_cut,
        }  # fmt: skip
