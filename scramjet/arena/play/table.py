"""Who sits where: the person's seat by name or number, the other player in all other seats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scramjet.arena.game import Game
from scramjet.errors import ConfigError, shortened
from scramjet.players.player import Player

SEAT_NAMES = ("first", "second", "random")


@dataclass(frozen=True, slots=True)
class Table:
    """A person, and who plays against them in all other seats; without an opponent, people play in all seats."""

    opponent: Player | None
    seat: str = "first"
    """`first`: the seat that moves first, `second`: the next one, `random`: drawn for each game, or a number from 1."""

    def players(self, game: Game, seed: int) -> list[Player | None]:
        """Who plays in the game of this seed, by seat; a game under way ends."""
        number = self._seat(game, seed)
        return [None if place == number else self.opponent for place in range(game.pool.num_players)]

    def _seat(self, game: Game, seed: int) -> int:
        """The person's seat, counted from 0."""
        count, seat = game.pool.num_players, self.seat.strip().lower()
        if seat in ("first", "second"):
            return (game.opening_player(seed) + (seat == "second")) % count
        if seat == "random":
            return int(np.random.default_rng([seed, 1]).integers(count))  # another stream than the players draw from
        if seat.isascii() and seat.isdigit() and 1 <= int(seat[:9]) <= count:
            return int(seat) - 1
        places = "1" if count == 1 else f"from 1 to {count}"
        raise ConfigError(f"seat={shortened(self.seat)}: expected {', '.join(SEAT_NAMES)}, or a number {places}")
