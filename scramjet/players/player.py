"""The interface of players, and players that a user writes: a function `choose(view) -> action` or a class with one."""

from __future__ import annotations

import contextlib
import copy
import operator
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import policy_part
from scramjet.engine.transition import Transition
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.envs.api import Discrete, MultiDiscrete
from scramjet.errors import ENV_FAILURES, ConfigError, PlayerError, ScramjetError, shortened

# --- the interface


class Player(ABC):
    """Chooses moves in some games of a pool; other players may sit in the other seats of the same games."""

    name: str
    """What tables and messages call this player."""

    def begin(self, pool: Pool) -> None:  # noqa: B027 - most players keep nothing
        """Get ready for the games of a pool, all of which begin; called before the first move."""

    @abstractmethod
    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Choose actions for some rows, [len(rows), *action_shape], as the envs take them.

        `seen` is what the pool shows of all rows before the step: `obs`, `mask`, `turn`. `rows` [M] are the numbers of
        the rows to choose for: with seats those envs in which this player is to move, with agents the agents it plays.
        Whatever is random is drawn with `generator`.
        """

    def see(self, out: Transition) -> None:  # noqa: B027
        """Take in the results of a step of all rows: what a player remembers of games that ended is forgotten."""

    def memory(self) -> Any:
        """A copy of what the player remembers of its games, to go back to with `recall`; None if it remembers nothing.

        What follows from a position alone need not be in it. A player that cannot copy its memory raises a
        ConfigError.
        """
        return None

    def recall(self, memory: Any) -> None:  # noqa: B027
        """Remember what `memory` held, and nothing else: moves were taken back."""


# --- players that a user writes

NO_ACTION = -1
"""Stands for a number that is too large for an action; illegal everywhere."""
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class View:
    """What a player may know when it is to move in one game; all of it is its own copy."""

    observation: Any
    """What the player sees: an array, or for a Dict space nested dicts of arrays."""
    legal: list[Any]
    """Numbers of the legal actions; with several choices (MultiDiscrete) a list of them for each; empty for a Box."""
    random: np.random.Generator
    """For whatever is random: with it, a match is the same for the same seed."""
    state: Any
    """The record of the game with its fields as attributes, all that the rules know; None for other libraries' envs."""
    env: Any
    """The rules of the world and its parameters."""
    seat: int
    """The seat that the player has in this game; with agents, which of them it plays."""


class UserPlayer(Player):
    """Asks a function of the user's for an action, one game at a time.

    `chooser` is a function `choose(view) -> action`, an object with such a method, or a class, made without arguments,
    whose objects have it.
    """

    def __init__(self, chooser: Any, name: str | None = None) -> None:
        self.name = name or str(getattr(chooser, "__name__", type(chooser).__name__))
        if isinstance(chooser, type):
            with blamed_on(self.name):
                chooser = chooser()
        choose = getattr(chooser, "choose", chooser)
        if not callable(choose):
            raise ConfigError(
                f"player {self.name} is a {type(chooser).__name__} without a method choose(view); give a function that "
                f"takes a view and returns an action, or a class with such a method"
            )
        self._choose: Callable[[View], Any] = choose

    def begin(self, pool: Pool) -> None:
        self._pool = pool

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        pool: Any = self._pool
        states = pool.states() if isinstance(getattr(pool, "pool", pool), WorldPool) else None
        rows_per_env = pool.num_rows // pool.num_envs
        chosen = []
        for row in rows.tolist():
            game = row // rows_per_env
            view = View(
                observation=map_leaves(lambda leaf, row=row: leaf[row].copy(), policy_part(seen.obs)),
                legal=_legal_actions(pool.action_space, seen.mask[row]),
                random=generator,
                state=None if states is None else pool.as_record(states[game].copy()),
                env=pool.env,
                seat=int(seen.turn[row]) if pool.played_by is PlayedBy.SEATS else row % rows_per_env,
            )
            with blamed_on(self.name):
                answer = self._choose(view)
            chosen.append(self._as_action(answer))
        return np.stack(chosen)

    def memory(self) -> Any:
        """A copy of the attributes of the user's object; None for a function."""
        owner = self._owner
        if owner is None:
            return None
        try:
            return copy.deepcopy(vars(owner))
        except Exception as error:  # whatever the user's objects raise
            raise ConfigError(
                f"player {self.name} remembers what cannot be copied ({type(error).__name__}: {error})"
            ) from error

    def recall(self, memory: Any) -> None:
        owner = self._owner
        if owner is not None:
            vars(owner).clear()
            vars(owner).update(memory)

    @property
    def _owner(self) -> Any:
        """The user's object, whose attributes are what it remembers; None where a function chooses."""
        owner = getattr(self._choose, "__self__", self._choose)
        return None if isinstance(owner, FunctionType | BuiltinFunctionType | ModuleType | type) else owner

    def _as_action(self, answer: Any) -> np.ndarray:
        """An answer as the envs take it; raises a PlayerError for what cannot be an action."""
        space = self._pool.action_space
        try:
            if isinstance(space, Discrete):
                number = operator.index(answer)
                return np.array(number if abs(number) < 2**62 else NO_ACTION, np.int64)
            action = np.asarray(answer, np.int64 if isinstance(space, MultiDiscrete) else np.float32)
        except (TypeError, ValueError, OverflowError):
            action = None
        if action is None or action.shape != space.shape:
            kind = "one of view.legal" if isinstance(space, Discrete) else f"an action of {space}"
            raise PlayerError(f"player {self.name} returned {shortened(answer)}, which is no action; return {kind}")
        return action


def _legal_actions(space: Any, mask: np.ndarray) -> list[Any]:
    """The legal actions by number, as `View.legal` has them; `mask` is empty where all are."""
    if isinstance(space, Discrete):
        return np.flatnonzero(mask).tolist() if len(mask) else list(range(int(space.n)))
    if not isinstance(space, MultiDiscrete):
        return []
    sizes = [int(size) for size in space.nvec]
    parts = np.split(mask, np.cumsum(sizes)[:-1]) if len(mask) else [np.ones(size, np.bool_) for size in sizes]
    return [np.flatnonzero(part).tolist() for part in parts]


@contextmanager
def blamed_on(player: str) -> Iterator[None]:
    """Turn what a user's code raises into a PlayerError that names the player and the line."""
    try:
        yield
    except ScramjetError:
        raise
    except ENV_FAILURES as error:
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise PlayerError(f"player {player} failed{_place_of(error)}: {problem}; mend it and play again") from error


def _place_of(error: BaseException) -> str:
    """` in FILE line N`, the last line of the user's code that an error passed through; empty where there is none."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_ours(each.filename)]
    own = [each for each in frames if each.filename == frames[0].filename]
    return f" in {Path(own[-1].filename).name} line {own[-1].lineno}" if own else ""


def _is_ours(file: str) -> bool:
    """Whether a file is part of scramjet, or is Python's own that calls it."""
    return Path(file).is_relative_to(_PACKAGE) or file == contextlib.__file__
