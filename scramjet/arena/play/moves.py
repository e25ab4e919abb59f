"""The moves of a world as people name them: by number, by name, and which of them are legal."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from scramjet.engine.layout import ActionKind, action_kind, action_sizes
from scramjet.envs.api import Env
from scramjet.errors import ConfigError

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
