"""The interface of pools: many envs that step together, whatever runs them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.transition import Transition, allocate_transition
from scramjet.errors import ConfigError, shortened
from scramjet.settings import MAX_COUNT

# --- Which rows of a pool were sent and not received yet: the bookkeeping behind `Pool.send` and `Pool.recv`


Rows = slice | np.ndarray
"""Neighbouring rows of a pool as a slice, or any rows by their numbers."""


def neighbours(rows: Rows | None, num_rows: int, rows_per_env: int = 1) -> slice:
    """`rows` (None: all of them) as a slice with a start and a stop; refuses gaps and parts of an env."""
    if not isinstance(rows, slice | None):
        raise ConfigError(f"rows={rows!r} must be a slice of neighbours: this pool takes no list of rows")
    start, stop, stride = slice(0, num_rows).indices(num_rows) if rows is None else rows.indices(num_rows)
    if stride != 1 or start >= stop or start % rows_per_env or stop % rows_per_env:
        raise ConfigError(f"rows={rows} must be neighbours, at least one, and whole envs of {rows_per_env} rows")
    return slice(start, stop)


def row_numbers(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """The numbers of rows as they were given; refuses none, doubled ones and those that a pool does not have."""
    is_list = rows.ndim == 1 and rows.dtype.kind in "iu" and len(rows) > 0
    if not is_list or rows.min() < 0 or rows.max() >= num_rows or len(np.unique(rows)) < len(rows):
        raise ConfigError(
            f"rows={rows.tolist()!r:.60} must be different whole numbers, at least one, from 0 to {num_rows - 1}"
        )
    return rows.astype(np.int64)


class RowsUnderWay:
    """The rows that `send` gave actions to and `recv` has not handed over yet."""

    def __init__(self, num_rows: int) -> None:
        self._is_sent = np.zeros(num_rows, np.bool_)
        self.sends: list[Rows] = []
        """The rows of each `send` of which some are still under way, oldest first."""

    def __bool__(self) -> bool:
        return bool(self.sends)

    def add(self, rows: Rows) -> None:
        """Note rows that were sent; refuses those that are under way already."""
        if True in self._is_sent[rows].tobytes():  # of few rows, any() takes longer
            raise ConfigError(f"{_spelled(rows)} step already: call recv() first")
        self._is_sent[rows] = True
        self.sends.append(rows)

    def take(self, rows: Rows | None = None, *, partly: bool = False) -> Rows:
        """Note that rows are received (None: those of the oldest send) and return them.

        Refuses rows that were not sent together; `partly`: any rows that were sent will do.
        """
        if rows is None:
            if not self.sends:
                raise ConfigError("recv() without send(): no row has an action; call send() first")
            rows = self.sends[0]
        is_sent = bool(self._is_sent[rows].all()) if partly else any(_is_same(rows, send) for send in self.sends)
        if not is_sent:
            raise ConfigError(f"{_spelled(rows)} were not sent together: recv() takes the rows of a send()")
        self._is_sent[rows] = False
        self.sends = [send for send in self.sends if True in self._is_sent[send].tobytes()]
        return rows

    def clear(self) -> None:
        """Forget all of them."""
        self._is_sent[:] = False
        self.sends.clear()

    def refuse(self, what: str) -> None:
        """Refuse a call that needs every env at rest."""
        if self.sends:
            raise ConfigError(f"{what} while envs step: call recv() first")


def _is_same(one: Rows, other: Rows) -> bool:
    if isinstance(one, slice) or isinstance(other, slice):
        return isinstance(one, slice) and isinstance(other, slice) and one == other
    return np.array_equal(np.sort(one), np.sort(other))


def _spelled(rows: Rows) -> str:
    if isinstance(rows, slice):
        return f"rows {rows.start} to {rows.stop}"
    return f"rows {', '.join(map(str, rows[:8].tolist()))}{', ...' * (len(rows) > 8)}"


# --- The interface


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


@dataclass(frozen=True, slots=True)
class Episodes:
    """Finished episodes in the order they ended, by step, then by env; if there are too many to keep, the newest."""

    num_ended: int  # number of finished episodes, of which E are kept
    returns: np.ndarray  # [E] float64
    lengths: np.ndarray  # [E] int64
    env_ids: np.ndarray  # [E] int64
    players: np.ndarray  # [E] int64: which agent or seat; 0 where a world is played alone
    stats: dict[str, np.ndarray]  # name -> [E] float64
    ticks: np.ndarray | None = None  # [E] int64: the pool's step in which each ended; None where that is not known

    def __len__(self) -> int:
        return len(self.returns)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of `recv`: which rows have stepped, and the arrays that hold their results."""

    rows: Rows  # a slice if they are neighbours; else the numbers of the rows that were ready first
    out: Transition  # of the whole pool; only these rows of it were written

    @property
    def transition(self) -> Transition:
        """The results of these rows alone: views where they are neighbours, else copies."""
        return self.out.part(self.rows)


def check_actions_fit(actions: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise a ConfigError unless `actions` is an array of this shape and dtype."""
    if not isinstance(actions, np.ndarray) or actions.shape != shape or actions.dtype != dtype:
        given = f"{actions.dtype} {list(actions.shape)}" if isinstance(actions, np.ndarray) else repr(actions)[:60]
        raise ConfigError(f"actions are {given}; this pool takes {dtype} {list(shape)} as a NumPy array")


class Pool(ABC):
    """N envs behind one interface.

    Auto-reset is in the same step: a step with `terminated` or `truncated` carries that episode's last reward, and
    the observation and mask that come with it belong to the next episode already. The true last observation of an
    episode that ended is in `final_obs`.
    """

    name: str
    """The world's name in messages."""
    env: Any
    """The description of the world: a native world's `Env`, or a `ForeignWorld`."""
    restarts: int = 0
    """How many envs failed and were replaced, since the start."""
    resume_note: str | None = None
    """After `restore`: what could not be restored, in words; None if everything was."""
    num_envs: int
    num_rows: int
    """Rows of observations and actions: one an env, or one for each of its agents."""
    played_by: PlayedBy
    num_players: int
    """Agents or seats of one env."""
    observation_space: Any
    action_space: Any
    mask_size: int
    """Entries of the action mask; 0 where there is none."""
    _own: Transition
    """The arrays that `reset` and `step` write to if the caller passes none."""
    _actions_sent: Any = None  # by `send`, of pools that step all rows at once; for `recv`
    say: Callable[[str], None] = staticmethod(_warn)
    """Receives messages for the user, such as that an env failed and was replaced; may be called on any thread."""
    can_step_rows = False
    """Whether `send` takes either half of the rows (see `halves`); if not, it takes all rows or none."""
    overlaps = False
    """Whether envs that were sent step in threads or processes of their own, while the caller goes on, so that both
    halves of the rows can be under way at the same time."""
    processes = ""
    """Which other processes step envs, in words; empty where none does."""
    has_time_limit = False
    """Whether every episode ends after a number of steps, whatever is played; False where nobody knows."""
    has_scores = False
    """Whether the world judges positions: it has a rule `score`, and the pool a method `scores`."""
    draws_every_step = False
    """Whether envs show themselves in a window at every step, as far as they tell."""
    render_modes: tuple[str, ...] = ()
    """Gymnasium's render modes in which single envs of the world can draw themselves here, as far as is known."""
    is_guarded = False
    """Whether all envs live in worker processes, where one that hangs or leaves can be ended."""

    def __repr__(self) -> str:
        """One line: the kind of pool, its world and how many envs it has."""
        return f"{type(self).__name__}({getattr(self, 'name', '')!r}, num_envs={getattr(self, 'num_envs', None)})"

    @property
    @abstractmethod
    def steps_taken(self) -> int:
        """Steps of each env since the last reset."""

    def allocate(self) -> Transition:
        """Fresh arrays for one step of this pool."""
        return self._allocate_for(self.num_envs)

    def _allocate_for(self, num_envs: int) -> Transition:
        return allocate_transition(
            self.observation_space,
            self.played_by,
            num_envs=num_envs,
            num_rows=num_envs * (self.num_rows // self.num_envs),
            num_players=self.num_players,
            mask_size=self.mask_size,
        )

    def _fitting(self, out: Transition | None) -> Transition:
        """`out`, or the pool's own arrays for None. Refuses arrays of another size: envs would write past their end."""
        if out is None:
            return self._own
        if not isinstance(out, Transition) or out.layout != self._own.layout:
            raise ConfigError(f"out= does not fit this pool of {self.num_envs} envs; make it with pool.allocate()")
        return out

    def tell(self, say: Callable[[str], None]) -> None:
        """Have `say` receive the pool's messages for the user from now on; by default they are warnings."""
        self.say = say

    @property
    def waiting(self) -> list[tuple[int, float]] | None:
        """File descriptors to poll and the seconds left of each worker that is stepping; None if this pool cannot be
        polled.

        A descriptor becomes readable when its worker has stepped, and `recv` then waits no longer for it. A worker
        without seconds left is hung: `recv` fails or restarts it.
        """
        return None

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Compile and try what the first step needs, so that a mistake in the world shows before training begins."""

    def close(self) -> None:  # noqa: B027
        """End the processes and threads of this pool; calling it again does nothing."""

    @abstractmethod
    def reset(self, seed: int | EpisodeSeed, out: Transition | None = None) -> Transition:
        """Begin the episodes of this seed, other ones for each env. Writes `obs` and `mask` of `out`.

        Pools with other seeds play other episodes, and so do training and evaluation: see `EpisodeSeed`.
        """

    @abstractmethod
    def step(self, actions: np.ndarray, out: Transition | None = None) -> Transition:
        """Step every env and write the results into `out` (by default into the pool's own arrays)."""

    def rollout_step(self, actions: Any, out: Transition) -> None:
        """`step` as a rollout wants it: actions that a policy drew need no check, and the last observations of
        terminated episodes are not asked for."""
        self.step(actions, out=out)

    def send(self, actions: np.ndarray, rows: Rows | None = None) -> None:
        """Have the envs of some rows (default: all; whole envs) step while the caller does something else.

        Reads these rows of `actions` [R, ...], and may do so until the `recv` that hands them over. A pool without
        threads or processes of its own does the work in `recv`. This default is for pools that step all rows at once.
        """
        if neighbours(rows, self.num_rows) != slice(0, self.num_rows):
            raise ConfigError(f"rows={rows}, but this pool of {self.name} steps all its envs at once: send all rows")
        if self._actions_sent is not None:
            raise ConfigError("all rows step already: call recv() first")
        self._actions_sent = actions

    def _refuse_while_sent(self, what: str) -> None:
        """Refuse what needs all rows at rest while they have been sent; for pools that step all rows at once."""
        if self._actions_sent is not None:
            raise ConfigError(f"{what} while envs step: call recv() first")

    def recv(self, rows: Rows | None = None, out: Transition | None = None) -> Batch:
        """Wait for rows that were sent and write their results into these rows of `out` (default: the pool's own).

        With `rows`, as they were sent, wait for just these; with None, for the rows that are ready first. `out` is a
        Transition of the whole pool, from `allocate`; its other rows stay as they are.
        """
        if self._actions_sent is None:
            raise ConfigError("recv() without send(): no row has an action; call send() first")
        everything = slice(0, self.num_rows)
        if neighbours(rows, self.num_rows) != everything:
            raise ConfigError(f"rows={rows} were not sent together: recv() takes the rows of a send()")
        actions, self._actions_sent = self._actions_sent, None
        return Batch(everything, self.step(actions, out=out))

    @abstractmethod
    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything needed to go on from here exactly, as plain arrays."""

    @abstractmethod
    def restore(
        self, snapshot: dict[str, np.ndarray], out: Transition | None = None, *, is_own: bool = True
    ) -> Transition:
        """Go back to a snapshot. Writes `obs` and `mask` of `out`.

        `is_own`: nobody else can have made it; else it is checked, or not used where that cannot be done.
        """

    @property
    def has_records_of_others(self) -> bool:
        """Whether records are left that somebody else may have made: a snapshot is then not our own either."""
        return False

    @abstractmethod
    def simulate(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, Transition]:
        """The states and results after one step from `states`; the pool itself does not move."""

    @abstractmethod
    def views(self) -> Any:
        """The current observations of all players, whoever is to move: [num_envs * num_players, ...]."""

    def begin_reading_episodes(self) -> None:  # noqa: B027 - most have them at hand
        """Begin to fetch the episodes that have finished by now, without waiting for them: what `episodes` returns
        next. Those of later steps are returned by the call after it."""

    @abstractmethod
    def episodes(self) -> Episodes:
        """The episodes finished since the last call."""

    @abstractmethod
    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the episodes under way, [N * num_players] each; NaN for agents that are dead."""


def halves(num_envs: int, rows_per_env: int = 1) -> list[slice]:
    """The rows of a pool in two halves of whole envs; in one part where there is only one env."""
    middle, end = num_envs // 2 * rows_per_env, num_envs * rows_per_env
    return [slice(0, middle), slice(middle, end)] if middle else [slice(0, end)]


def check_count(name: str, count: Any) -> None:
    """Raise a ConfigError where `count` is no whole number from 1 to MAX_COUNT."""
    if not is_whole(count) or count < 1:
        raise ConfigError(f"{name}={shortened(count)} must be a whole number of at least 1")
    if count > MAX_COUNT:
        raise ConfigError(f"{name}={shortened(count)} must be at most {MAX_COUNT}")


def is_whole(number: Any) -> bool:
    """Whether this is an integer, Python's or NumPy's; True and False are not."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)
