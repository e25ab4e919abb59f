"""The moves of a world as people make them: by number, by name or by a click on its picture, and those of a game."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scramjet.engine.actions import action_at, says_where_actions_lie
from scramjet.engine.layout import ActionKind, action_kind, action_sizes
from scramjet.envs.api import Env
from scramjet.errors import ConfigError

# --- moves by name

MOST_MOVES = 10_000
"""A world with more moves than this is refused: nobody chooses among so many by name."""


@dataclass(frozen=True, slots=True)
class Move:
    """One of a world's moves."""

    number: int
    """Its place among all moves of the world; of a Discrete world the action itself."""
    name: str

    def as_dict(self) -> dict[str, int | str]:
        """For JSON."""
        return {"number": self.number, "name": self.name}


class Moves:
    """All moves of a world whose actions are choices.

    A Discrete world has one move an action, named as `Env.action_names` says or by its number. A MultiDiscrete world
    has one for each combination of choices, named "2,0" for choice 2 of the first part and 0 of the second.
    """

    def __init__(self, env: Env) -> None:
        name, kind = type(env).__name__, action_kind(env)
        if kind is ActionKind.BOX:
            raise ConfigError(
                f"{name} cannot be played by a person: its actions are {env.action_space}, real numbers and no moves"
            )
        self._sizes = action_sizes(env)
        count = math.prod(self._sizes.tolist())
        if count > MOST_MOVES:
            raise ConfigError(f"{name} cannot be played by a person: it has {count:,} moves, more than {MOST_MOVES:,}")
        self.choices = np.array(list(itertools.product(*map(range, self._sizes))), np.int64)  # [moves, parts]
        self.actions = self.choices[:, 0] if kind is ActionKind.CHOICE else self.choices  # as envs take them
        given = [str(each) for each in env.action_names]
        self.names = given or [",".join(map(str, row)) for row in self.choices.tolist()]
        self._numbers = {each.casefold(): number for number, each in enumerate(self.names)}
        if len(self._numbers) < count:  # "a" and "A" are two moves: then case tells them apart
            self._numbers = {each: number for number, each in enumerate(self.names)}
        self._takes_numbers = not any(each.lstrip("+-").isdigit() for each in self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> Move:
        return Move(number, self.names[number])

    def legal(self, mask: np.ndarray) -> np.ndarray:
        """Which moves are legal, [moves] bool, by a row of the pool's mask; an empty one allows all."""
        if not mask.size:
            return np.ones(len(self), np.bool_)
        first = np.concatenate([[0], np.cumsum(self._sizes)[:-1]])  # of each part's entries in the mask
        return np.asarray(mask[first + self.choices].all(1))

    def number_of(self, action: np.ndarray) -> int | None:
        """The number of the move that is this action of an env; None where it is none."""
        found = np.flatnonzero((self.choices == np.reshape(action, -1)).all(1))
        return int(found[0]) if len(found) else None

    def find(self, text: str) -> Move | None:
        """The move that a person means: its name, whatever the case, or its number where no name is a number."""
        words = text.strip()
        number = self._numbers.get(words, self._numbers.get(words.casefold()))
        if number is None and self._takes_numbers and words.isascii() and words.isdigit() and len(words) < 7:
            number = int(words)
        return self[number] if number is not None and number < len(self) else None


# --- where moves lie on a picture

POINTS = 41
"""Points that are asked for along each side of a picture: odd, so that the middle is one of them."""
HALVINGS = 8
"""How often the distance between two points is halved to find the edge of a place."""


@dataclass(frozen=True, slots=True)
class Place:
    """A box on a picture all of which means one move; its sides are shares of the picture's width and height."""

    number: int  # of the move
    left: float
    top: float
    right: float
    bottom: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def find_places(env: Env, s: Any, moves: Sequence[Move]) -> list[Place]:
    """The places of these moves on the picture of `s`, to a thousandth of its sides; of moves whose place is a box."""
    if not says_where_actions_lie(env):
        return []
    ticks = (np.arange(POINTS) + 0.5) / POINTS
    numbers = np.array([[_number(env, s, x, y) for x in ticks] for y in ticks])  # [y, x]
    places = []
    for move in moves:
        hits = np.argwhere(numbers == move.number)
        spans = np.ptp(hits, axis=0) + 1 if len(hits) else np.zeros(2)
        if 0 < spans.prod() == len(hits):  # it fills the box around it
            places.append(_box(env, s, move.number, ticks[hits]))
    return places


def _number(env: Env, s: Any, x: float, y: float) -> int:
    found = action_at(env, s, float(x), float(y))
    return -1 if found is None else found


def _box(env: Env, s: Any, number: int, points: np.ndarray) -> Place:
    """The box around the points [points, (y, x)] of a move, its sides moved outwards to where the move ends."""

    def edge(axis: int, sign: int) -> float:
        inside = points[np.argmax(sign * points[:, axis])].copy()
        outside = inside.copy()
        outside[axis] = min(max(inside[axis] + sign / POINTS, 0.0), np.nextafter(1.0, 0.0))
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            if _number(env, s, middle[1], middle[0]) == number:
                inside = middle
            else:
                outside = middle
        return round(float(inside[axis]), 4)

    return Place(number, edge(1, -1), edge(0, -1), edge(1, 1), edge(0, 1))


# --- moves that were made, and how a game ended


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
