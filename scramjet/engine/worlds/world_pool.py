"""The base class of the pools of native worlds, and the check of records that come from a file."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from scramjet.engine.layout import (
    PlayedBy,
    action_layout,
    check_spaces,
    episode_dtype,
    mask_size,
    num_players,
    obs_bytes,
    played_by,
    rows_per_env,
    state_dtype,
)
from scramjet.engine.pool import Episodes, Pool, check_count, is_whole
from scramjet.engine.privileged import shown_space
from scramjet.engine.transition import Transition
from scramjet.engine.worlds.rules import rule_functions
from scramjet.envs.api import Env
from scramjet.errors import ConfigError, WorldError
from scramjet.runtime.machine import require_memory


class WorldPool(Pool):
    """Base class of the pools of native worlds on the CPU and on the GPU."""

    episodes_kept_per_env = 1
    """Finished episodes that are kept for each player until `episodes` is called."""
    num_threads: int
    """Threads of the CPU that step envs."""

    def __init__(self, env: Env, num_envs: int) -> None:
        check_count("num_envs", num_envs)
        check_spaces(env)
        self.env = env
        self.name = type(env).__name__
        self.num_envs = num_envs
        self.played_by = played_by(env)
        self.num_players = num_players(env)
        self._rows_per_env = rows_per_env(env)
        self.num_rows = num_envs * self._rows_per_env
        self.observation_space = shown_space(env)
        self.action_space = env.action_space
        self.has_scores = "score" in rule_functions(env)
        self.has_time_limit = env.max_episode_steps is not None
        self.mask_size = mask_size(env)
        action_shape, self._action_dtype = action_layout(env)
        self._action_shape = (self.num_rows, *action_shape)
        self._check_memory()

    def _check_memory(self) -> None:
        """Raise an error if memory cannot hold the records of all envs and what one step of all of them writes."""
        env = self.env
        row = 2 * obs_bytes(self.observation_space) + 3 * self.mask_size
        log = self.episodes_kept_per_env * self.num_players * episode_dtype(env).itemsize
        bytes_per_env = state_dtype(env).itemsize + self._rows_per_env * row + log
        what = f"num_envs={self.num_envs} of {self.name}"
        require_memory(self.num_envs * bytes_per_env, what, "lower --num-envs, or the world's size")

    @abstractmethod
    def states(self) -> np.ndarray:
        """A copy of every env's record, from which `simulate` can step."""

    @abstractmethod
    def state_bytes(self) -> Any:
        """Every env's record as it is now, uint8 [N, record size]: the pool's own memory, a tensor on its device."""

    @abstractmethod
    def allocate_branches(self, num_branches: int) -> tuple[Any, Any, Transition]:
        """Memory for a search: records as kernels take them, the same as bytes [B, record size], and results."""

    @abstractmethod
    def step_branches(self, records: Any, live: Any, actions: Any, key: Any, depth: int, out: Transition) -> None:
        """Step records of `allocate_branches` that are `live` [B], which says afterwards which still are.

        Their random numbers are keyed by `key` int64 [1], `depth` and their own number. Nothing is checked.
        """

    @abstractmethod
    def scores(self, states: np.ndarray) -> Any:
        """How good each state looks for each player by the world's `score`, float32 [len(states), num_players]."""

    def _require_scores(self) -> None:
        if not self.has_scores:
            raise WorldError(f"{self.name} does not judge positions; write `def score(self, s, player)` to have scores")

    def record(self, index: int) -> Any:
        """The record of env `index` with its fields as attributes, as `render` and `ascii` take it."""
        if not is_whole(index) or not -self.num_envs <= index < self.num_envs:
            raise ConfigError(f"there is no env {index!r}; this pool has {self.num_envs}, counted from 0")
        return self.as_record(self._state_of(index))

    def _state_of(self, index: int) -> Any:
        return self.states()[index]

    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        states = self.states()
        lengths = np.repeat(states["_steps"].astype(np.int64), self.num_players)
        if self.played_by is PlayedBy.ONE:
            return states["_return"].copy(), lengths
        returns = states["_returns"].astype(np.float64)
        if self.played_by is PlayedBy.AGENTS:
            returns[states["_alive"] == 0] = np.nan
        return returns.ravel(), lengths

    def as_record(self, state: np.void) -> Any:
        """An element of `states()` as a record with its fields as attributes."""
        from scramjet.engine.worlds.cpu import Record

        return Record(state, self.name)

    def _check_snapshot(self, snapshot: dict[str, np.ndarray], record_bytes: int) -> None:
        """Raise a ConfigError unless a snapshot fits this pool, whose records have `record_bytes` bytes."""
        if missing := {"states", "tick"} - set(snapshot):
            raise ConfigError(f"no snapshot of a pool: it has no {' and no '.join(sorted(missing))}")
        raw = snapshot["states"]
        if raw.shape != (self.num_envs, record_bytes) or raw.dtype != np.uint8:
            raise ConfigError(
                f"a snapshot of {raw.dtype} {list(raw.shape)} does not fit a pool of "
                f"{self.num_envs} envs of {record_bytes} bytes; use the same world and num_envs, or where the "
                f"world's state has changed, begin a new run with --fork"
            )

    def _listed(self, log: np.ndarray, num_ended: int) -> Episodes:
        """The rows of a log of finished episodes as `Episodes`, in the order they ended."""
        if len(log):
            tick = log["_tick"] - log["_tick"].min()
            place = log["_env"] * self.num_players + log["_player"]
            log = log.take(np.argsort(tick * (self.num_envs * self.num_players) + place))
        return Episodes(
            num_ended=num_ended,
            returns=log["_return"],
            lengths=log["_length"],
            env_ids=log["_env"],
            players=log["_player"],
            stats={name: log[name] for name in self.env.stat_names},
            ticks=log["_tick"],
        )


# --- Records of envs that come from a file: looked at before compiled code, which checks no bounds, may use them
#
# Machine code follows whatever a record says: an index or a length that no episode could have would make it read and
# write outside its arrays. So header and declared bounds (`Env.state_bounds`) are checked, and until an env has begun a
# fresh episode it is stepped by kernels that check every index.


MOST = 1 << 30
"""More episodes, draws or steps than any env has had: beyond them 32-bit counters would soon overflow."""


def check_states(env: Env, states: np.ndarray) -> None:
    """Refuse records that no episode of this world could have left."""
    names = states.dtype.names or ()
    counts = {"_episode": MOST, "_draw": MOST, "_steps": (env.max_episode_steps or MOST) - 1, "_index": MOST}
    bounds = {name: (0, most) for name, most in counts.items()}
    bounds |= {"_alive": (0, 1)} if "_alive" in names else {}
    for name, (low, high) in {**bounds, **env.state_bounds}.items():
        values = states[name]
        _require(env, name, values, (values >= low) & (values <= high), f"from {low} to {high}")
    for name in {"_return", "_returns"} & set(names):
        _require(env, name, states[name], np.isfinite(states[name]), "finite")


def _require(env: Env, name: str, values: np.ndarray, are_right: Any, rule: str) -> None:
    wrong = np.argwhere(~np.asarray(are_right))
    if len(wrong):
        i = int(wrong[0][0])
        raise _unfit(env, i, f"{name} is {values[tuple(wrong[0])]}, and must be {rule}")


def _unfit(env: Env, i: int, problem: str) -> ConfigError:
    return ConfigError(f"the saved state of env {i} is none of {type(env).__name__}: {problem}; {FIX}")


def out_of_bounds(env: Env, error: Exception) -> WorldError:
    """What to say where a kernel that checks bounds has found an index outside its array."""
    return WorldError(f"the saved state of an env is none of {type(env).__name__}: {error}; {FIX}")


FIX = "the checkpoint is damaged or forged: begin fresh episodes from its weights with --fork"


class Probation:
    """Envs that go on with an episode from a file, until each of them has begun another."""

    def __init__(self, states: np.ndarray) -> None:
        self._states = states
        self._restored = states["_episode"].copy()

    @property
    def is_over(self) -> bool:
        """Whether nothing of the file is left."""
        return bool((self._states["_episode"] != self._restored).all())
