"""EnvPool's envs as a pool: `envpool:Pong-v5`, `envpool:CartPole-v1`, and what else it lists.

An env of EnvPool shows its last observation together with `done`, and spends its next step on the reset. No such dead
step is seen here: a few spare envs have been reset already, and one of them takes the row over at once, while the env
that ended is reset beside the next step. Should more end together than there are spares, the rest are stepped once more
alone. So the true last observation of every episode is known, and a step costs what EnvPool's own does.

Atari games learn from lives and clipped rewards and are reported as whole games: their scores are the game's own. A
game goes on after a lost life, so its row keeps its env, and there are no spares.

Asynchronous (`batch_size` < `num_envs`): `recv` hands over what is ready first. An env that ended is sent to its reset
and handed over, with its last reward, once that is done; so a batch has up to `batch_size` rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.gymnasium.registered_envs import require_extra
from scramjet.adapters.spaces import batch_parts, env_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import allocate_obs
from scramjet.engine.pool import Batch, Rows, RowsUnderWay, check_count, is_whole, neighbours, row_numbers
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves
from scramjet.errors import ConfigError, WorldError, did_you_mean

ATARI_TRAINING = {"episodic_life": True, "reward_clip": True}
"""Options of games with lives, in training."""
RESERVED = ("num_envs", "batch_size", "seed", "env_seed", "env_type", "gym_reset_return_info", "max_num_players")
"""Options that are no parameters of a world."""
ENVS_PER_SPARE = 8
"""One spare env for so many envs. Episodes of 20 steps, the shortest that are common, end in a twentieth of the envs
at a time, and spares that were reset before take their rows over."""


class EnvPoolPool(ForeignPool):
    """The envs of one EnvPool. Their state cannot be saved: a resumed run starts fresh episodes."""

    def __init__(
        self,
        task_id: str,
        num_envs: int,
        *,
        batch_size: int | None = None,
        num_threads: int = 0,
        training: bool = True,
        **options: Any,
    ) -> None:
        """`options` go to `envpool.make`; `num_threads`=0: as many as EnvPool finds right.

        In `training` Atari games end at the loss of a life and clip rewards, unless the options say otherwise.
        """
        check_count("num_envs", num_envs)
        _check_batch_size(batch_size, num_envs)
        if not is_whole(num_threads) or num_threads < 0:
            raise ConfigError(f"num_threads={num_threads!r} must be a whole number; 0: EnvPool chooses")
        self.task_id = task_id
        self.batch_size = num_envs if batch_size is None else int(batch_size)
        self._options = _checked_options(task_id, options, training=training)
        self._num_threads = num_threads
        has_spares = self.batch_size == num_envs and not _has_lives(
            require_extra("envpool", "envpool").make_spec(task_id)._state_keys
        )
        self._num_spares = -(-num_envs // ENVS_PER_SPARE) if has_spares else 0
        self.envs = self._made(EpisodeSeed(0), num_envs)
        super().__init__(f"envpool:{task_id}", self.envs.observation_space, self.envs.action_space, num_envs)
        self.has_time_limit = self.envs.config.get("max_episode_steps", 0) > 0
        self._place = {name: place for place, name in enumerate(self.envs._state_keys)}
        self._is_one_array = "obs" in self._place
        is_atari = _has_lives(self.envs._state_keys)
        self._scores = self._returns[:, 0]
        self._score = self._place["info:reward" if is_atari else "reward"]  # a game's own, before it is clipped
        self._game_over = self._place["info:terminated"] if is_atari else None  # not only a life was lost
        self._results = [*(self._place[name] for name in ("reward", "done", "trunc")), self._score]
        self._numbers = _numbers_of_info(self.envs)
        self._ids = np.arange(num_envs + self._num_spares, dtype=np.int32)  # each row's env, and then the spare ones
        self._to_theirs = env_actions(self.envs.action_space)
        self._takes_ours = isinstance(self.envs.action_space, Discrete) and self.envs.action_space.start == 0
        self._actions = np.zeros((len(self._ids), *self._action_shape[1:]), self.envs._spec._action_spec[-1][0])
        self._num_ended_spares = 0  # so many spares, the first ones, are to be reset beside the next step
        self._spare_obs = leaves(allocate_obs(self.observation_space, self._num_spares))  # their first ones
        self._waiting = self.allocate()  # async: results of rows whose episode ended, until they are reset
        self._is_resetting = np.zeros(num_envs, np.bool_)  # async: the episode ended, and the next is not there yet
        self._under_way, self._num_stepping = RowsUnderWay(num_envs), 0
        self._handed_over = 0  # rows, since the last reset

    @property
    def is_async(self) -> bool:
        """Whether `recv` hands over a part of the envs."""
        return self.batch_size < self.num_envs

    def _made(self, seeds: EpisodeSeed, num_envs: int) -> Any:
        envpool, num_made = require_extra("envpool", "envpool"), num_envs + self._num_spares
        numbers = {"num_envs": num_made, "batch_size": self.batch_size + self._num_spares}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Gymnasium, about the precision of bounds
            try:
                envs = envpool.make(
                    self.task_id, env_type="gymnasium", seed=seeds.of_envs(num_made), num_threads=self._num_threads,
                    **numbers, **self._options,
                )  # fmt: skip
                _ = envs.observation_space
            except (TypeError, ValueError, AssertionError, RuntimeError) as error:
                raise WorldError(f"envpool:{self.task_id} with {self._options} and {num_envs} envs: {error}") from error
        if envs.config.get("max_num_players", 1) != 1:
            raise WorldError(f"envpool:{self.task_id} is played by several; only envs with one player are taken")
        return envs

    def _reset(self, seeds: EpisodeSeed, out: Transition) -> None:
        self.envs = self._made(seeds, self.num_envs)  # EnvPool takes seeds only when it is made
        self._is_resetting[:] = False
        self._under_way.clear()
        self._num_stepping = 0
        self._handed_over = self._tick * self.num_envs
        self._ids[:] = np.arange(len(self._ids))
        self._num_ended_spares = 0
        self.envs._reset(self._ids)
        if self.is_async:
            for _ in range(self.num_envs // self.batch_size):
                state = self.envs._recv()
                self._write(state, out.obs, state[self._place["info:env_id"]])
        else:
            self._show(self.envs._recv(), out)

    def _step(self, actions: np.ndarray, out: Transition) -> None:
        if self.is_async:
            raise ConfigError(
                f"this pool of {self.num_envs} envs is asynchronous (batch_size={self.batch_size}): "
                f"use send() and recv(), or leave out batch_size"
            )
        num_envs, num_sent = self.num_envs, self.num_envs + self._num_ended_spares
        self._actions[:num_envs] = actions if self._takes_ours else self._to_theirs(actions)
        ids = self._ids[:num_sent]
        self.envs._send([ids, ids, self._actions[:num_sent]])  # EnvPool's own `send` does the same in more Python
        state = self.envs._recv()
        reward, done, truncated, score = (state[place][:num_envs] for place in self._results)
        out.reward[:], out.truncated[:] = reward, truncated
        np.greater(done, truncated, out=out.terminated)
        np.add(self._scores, score, self._scores)  # as `_count` does, for all rows of the one player
        np.add(self._lengths, 1, self._lengths)
        self._show(state, out)
        self._num_ended_spares = 0
        if True in done.tobytes():  # of few envs, any() takes as long as their step
            self._end_episodes(done.nonzero()[0], state, out)

    def _show(self, state: list[np.ndarray], out: Transition) -> None:
        """Write the observations of all rows, and keep those of spare envs that were reset in the same step."""
        num_envs = self.num_envs
        for array, spare, part in zip(leaves(out.obs), self._spare_obs, self._parts(state, out.obs), strict=True):
            array[:] = part[:num_envs]
            if len(part) > num_envs:
                spare[: len(part) - num_envs] = part[num_envs:]

    def _end_episodes(self, rows: np.ndarray, state: list[np.ndarray], out: Transition) -> None:
        """Keep what was seen last; spares take the rows over, and where there are too few, envs are reset at once."""
        replaced, rest = rows[: self._num_spares], rows[self._num_spares :]
        for shown, final, spare in zip(leaves(out.obs), leaves(out.final_obs), self._spare_obs, strict=True):
            final[rows] = shown.take(rows, 0)
            if self._num_spares:
                shown[replaced] = spare[: len(replaced)]
        self._log_ended(rows, state, rows)
        if self._num_spares:
            spares = self._ids[self.num_envs : self.num_envs + len(replaced)]
            fresh = spares.copy()
            self._ids.take(replaced, out=spares)
            self._ids[replaced] = fresh
            self._num_ended_spares = len(replaced)
        if len(rest):
            self._send_to_reset(self._ids[rest])
            self._write(self.envs._recv(), out.obs, rest)

    def send(self, actions: np.ndarray, rows: Rows | None = None) -> None:
        if not self.is_async:
            super().send(actions, rows)
            return
        self._check_actions(actions, self._action_shape)
        if isinstance(rows, np.ndarray):
            ids = self._ids[row_numbers(rows, self.num_rows)]
        else:
            ids = self._ids[neighbours(rows, self.num_rows)]
        self._under_way.add(ids)
        theirs = np.ascontiguousarray(self._to_theirs(actions[ids]), self._actions.dtype)  # EnvPool reads it until recv
        self.envs._send([ids, ids, theirs])
        self._num_stepping += len(ids)

    def recv(self, rows: Rows | None = None, out: Transition | None = None) -> Batch:
        """With `batch_size`: up to so many rows, those that are ready first."""
        if not self.is_async:
            return super().recv(rows, out)
        if rows is not None:
            raise ConfigError("EnvPool with batch_size hands over what is ready first: call recv() alone")
        out = self._fitting(out)
        ready = self._receive_batch()
        while not len(ready):
            ready = self._receive_batch()
        self._under_way.take(ready, partly=True)
        self._tick_of(len(ready))
        self._hand_over(ready, out)
        return Batch(ready, out)

    def _receive_batch(self) -> np.ndarray:
        """Wait for the next `batch_size` envs of EnvPool, and have those whose episode ended be reset; returns the rows
        of the others."""
        if self._num_stepping < self.batch_size:
            raise ConfigError(
                f"recv() waits for {self.batch_size} rows, and {self._num_stepping} have actions: call send() first"
            )
        state = self.envs._recv()
        ids = state[self._place["info:env_id"]]
        self._num_stepping -= len(ids)
        fresh = ~self._is_resetting[ids]
        done = state[self._place["done"]].astype(np.bool_) & fresh
        self._receive(state, ids, fresh)
        self._write(state, self._waiting.obs, ids)
        self._is_resetting[ids] = done
        if done.any():
            ended = ids[done]
            for shown, final in zip(leaves(self._waiting.obs), leaves(self._waiting.final_obs), strict=True):
                final[ended] = shown[ended]
            self._log_ended(ended, state, np.flatnonzero(done))
            self._send_to_reset(ended)
            self._num_stepping += len(ended)
        return np.sort(ids[~done]).astype(np.int64)

    def _receive(self, state: list[np.ndarray], ids: np.ndarray, fresh: np.ndarray) -> None:
        """Keep rewards and flags of envs that played a step; those of envs that were only reset are kept already."""
        place, waiting, played = self._place, self._waiting, ids[fresh]
        waiting.reward[played] = state[place["reward"]][fresh]
        waiting.truncated[played] = state[place["trunc"]][fresh]
        waiting.terminated[played] = state[place["done"]][fresh] > waiting.truncated[played]
        self._returns[played, 0] += state[self._score][fresh]
        self._lengths[played] += 1

    def _hand_over(self, rows: np.ndarray, out: Transition) -> None:
        """Copy the results of these rows into `out`."""
        waiting = self._waiting
        for name in ("reward", "terminated", "truncated"):
            getattr(out, name)[rows] = getattr(waiting, name)[rows]
        for theirs, ours in ((waiting.obs, out.obs), (waiting.final_obs, out.final_obs)):
            for source, target in zip(leaves(theirs), leaves(ours), strict=True):
                target[rows] = source[rows]

    def _tick_of(self, num_rows: int) -> None:
        """Count rows that were handed over: `steps_taken` is their number divided by the number of envs."""
        self._handed_over += num_rows
        self._tick = self._handed_over // self.num_envs

    def _send_to_reset(self, ids: np.ndarray) -> None:
        """Have envs begin their next episode by a step, whose action is ignored.

        EnvPool's `reset` would begin a whole game where only a life was lost.
        """
        self.envs._send([ids, ids, np.zeros((len(ids), *self._actions.shape[1:]), self._actions.dtype)])

    def _write(self, state: list[np.ndarray], arrays: Any, rows: np.ndarray) -> None:
        """Put their batch of observations into rows of our arrays."""
        for array, part in zip(leaves(arrays), self._parts(state, arrays), strict=True):
            array[rows] = part

    def _parts(self, state: list[np.ndarray], arrays: Any) -> list[np.ndarray]:
        """Their batch of observations, shaped as our arrays are."""
        if self._is_one_array:
            part = state[self._place["obs"]]
            if part.ndim == arrays.ndim:
                return [part]
            parts = [part]
        else:
            parts = batch_parts(self.their_observation_space, self.envs._to(state, True, True)[0])
        return [
            part if part.ndim == array.ndim else np.reshape(part, (len(part), *array.shape[1:]))
            for array, part in zip(leaves(arrays), parts, strict=True)
        ]

    def _log_ended(self, rows: np.ndarray, state: list[np.ndarray], places: np.ndarray) -> None:
        """Log episodes that ended; of games with lives, only whole ones. `places`: of the rows in `state`."""
        if self._game_over is not None:
            is_over = (state[self._game_over][places] != 0) | state[self._place["trunc"]][places]
            rows, places = rows[is_over], places[is_over]
        if len(rows):
            self._log_episodes(rows, {name: state[where].take(places) for name, where in self._numbers.items()})

    def close(self) -> None:
        """EnvPool ends its threads when it is let go of."""
        self.envs = None


# --- what EnvPool takes and tells of an env


def _has_lives(state_keys: Sequence[str]) -> bool:
    """Whether an env is an Atari game: `info` then has its lives and its own score beside the clipped reward."""
    return {"info:lives", "info:reward", "info:terminated"} <= set(state_keys)


def _check_batch_size(batch_size: Any, num_envs: int) -> None:
    """Refuse batches that do not divide the envs."""
    if batch_size is None:
        return
    check_count("batch_size", batch_size)
    if num_envs % batch_size:
        raise ConfigError(
            f"batch_size={batch_size} does not divide num_envs={num_envs}: a reset would wait for ever; "
            f"try batch_size={np.gcd(batch_size, num_envs)}"
        )


def _checked_options(task_id: str, options: dict[str, Any], *, training: bool) -> dict[str, Any]:
    """The options for `envpool.make`: refuses unknown names, and in training adds those of `ATARI_TRAINING`."""
    envpool = require_extra("envpool", "envpool")
    known = envpool.list_all_envs()
    if task_id not in known:
        raise WorldError(f"EnvPool has no env '{task_id}'.{did_you_mean(task_id, known)}")
    takes = [name for name in envpool.make_spec(task_id).config._fields if name not in RESERVED]
    for name in options:
        if name not in takes:
            raise ConfigError(
                f"envpool:{task_id} has no parameter '{name}'.{did_you_mean(name, takes)} It has {', '.join(takes)}"
            )
    lives = {name: value for name, value in ATARI_TRAINING.items() if name in takes and training}
    return {**lives, **options}


def _numbers_of_info(envs: Any) -> dict[str, int]:
    """Entries of `info` that are one number for each env: name -> place in EnvPool's state, without those of Atari."""
    skipped = ("env_id", "players.env_id", "lives", "reward", "terminated", "ram")
    found = {}
    for place, (name, spec) in enumerate(zip(envs._state_keys, envs._spec._state_spec, strict=True)):
        short = name.removeprefix("info:")
        if name != short and short not in skipped and list(spec[1]) in ([], [-1]):
            found[short] = place
    return found
