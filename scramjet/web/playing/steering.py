"""One person who steers a world whose actions are real numbers, such as a torque; the rest is as in `arena.game`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scramjet.arena.game import PERSON, playable_env
from scramjet.arena.play.thoughts import Adviser
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.envs.api import Box
from scramjet.errors import ConfigError, PlayError
from scramjet.training.seeds import unseen_episodes

MOST_NUMBERS = 8
"""Numbers of an action for which a page has sliders."""
MOST_KEPT = 10_000
"""Steps that can be taken back."""


class SteeredGame:
    """An episode of a native world for one, whose actions are a few numbers within bounds."""

    def __init__(self, pool: Pool, adviser: Adviser | None = None) -> None:
        self.env, self.pool, self.adviser = playable_env(pool), pool, adviser
        space = pool.action_space
        if pool.played_by is not PlayedBy.ONE or not isinstance(space, Box) or np.prod(space.shape) > MOST_NUMBERS:
            raise ConfigError(
                f"{pool.name} cannot be played by a person: its actions are {space}; a world for one with at most "
                f"{MOST_NUMBERS} numbers can be steered"
            )
        self.low = np.maximum(np.nan_to_num(space.low, neginf=-1.0), -1e6)
        self.high = np.minimum(np.nan_to_num(space.high, posinf=1.0), 1e6)
        self._out = pool.allocate()

    def begin(self, seed: int) -> None:
        """Begin the episode of this seed."""
        self.pool.reset(unseen_episodes(seed), out=self._out)
        if self.adviser is not None:
            self.adviser.begin(self.pool)
        self._record = self.pool.record(0)  # type: ignore[attr-defined]
        self._history: list[tuple[Any, Any, Any, float]] = []
        self._return, self.num_steps = 0.0, 0
        self.is_over = self.was_cut = False

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to take back."""
        return bool(self._history)

    def act(self, values: Sequence[float]) -> None:
        """Take one step with these numbers, brought within their bounds."""
        if self.is_over:
            raise PlayError("the game is over: begin a new one")
        given = np.asarray(values, np.float32)
        if given.shape != (self.low.size,) or not np.isfinite(given).all():
            raise PlayError(f"an action of {self.pool.name} is {self.low.size} numbers")
        action = np.clip(given.reshape(self.low.shape), self.low, self.high)[None].astype(np.float32)
        memory = None if self.adviser is None else self.adviser.memory()
        self._history.append((self.pool.snapshot(), memory, self._record, self._return))
        del self._history[:-MOST_KEPT]
        if self.adviser is not None:
            self.adviser.watch(self._out)
        after, _ = self.pool.simulate(self.pool.states(), action)  # type: ignore[attr-defined]
        out = self.pool.step(action, out=self._out)
        if self.adviser is not None:
            self.adviser.see(out)
        self._record = self.pool.as_record(after[0])  # type: ignore[attr-defined]
        self._return += float(out.reward[0])
        self.num_steps += 1
        self.is_over = bool(out.terminated[0] or out.truncated[0])
        self.was_cut = bool(out.truncated[0])

    def undo(self) -> None:
        """Take the last step back."""
        if not self._history:
            raise PlayError("there is no move to take back")
        snapshot, memory, self._record, self._return = self._history.pop()
        self.pool.restore(snapshot, out=self._out)
        if self.adviser is not None:
            self.adviser.recall(memory)
        self.num_steps -= 1
        self.is_over = self.was_cut = False

    def suggestion(self) -> tuple[list[float], float]:
        """The numbers that the adviser finds most likely here, and the return that it expects."""
        if self.adviser is None:
            raise PlayError("there is no network to ask: play against a run")
        action, value = self.adviser.suggest(self._out, 0)
        return np.ravel(action).tolist(), value

    def picture(self) -> np.ndarray:
        """The position as an RGB picture [height, width, 3]."""
        return self.env.render(self._record)

    def as_dict(self) -> dict[str, Any]:
        """Everything that a page shows of the game, for JSON, by the names of `Game.as_dict`."""
        is_over, returns = self.is_over, [self._return]
        result = {"returns": returns, "winners": [0], "is_draw": False, "forfeited": None, "was_cut": self.was_cut}
        return {
            "world": self.pool.name,
            "players": [{"name": PERSON, "is_person": True}],
            "to_move": [] if is_over else [0],
            "person_to_move": None if is_over else 0,
            "legal_moves": [],
            "played": [],
            "returns": returns,
            "result": result if is_over else None,
            "can_undo": self.can_undo,
            "text": self.env.ascii(self._record),
        }
