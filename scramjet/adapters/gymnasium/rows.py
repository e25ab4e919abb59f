"""Gymnasium envs stepped one after the other, for the serial pool and for each worker process: results are written to
rows of a pool's arrays.

When an episode ends, the next one begins in the same step. To keep steps fast, everything that can be allocated, looked
up or checked beforehand is.
"""

from __future__ import annotations

import math
import numbers
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from scramjet.adapters.gymnasium import env_state
from scramjet.adapters.info import numbers_in, recorded
from scramjet.adapters.spaces import (
    UnfitObservationError,
    action_shape_and_dtype,
    adapted_action_space,
    adapted_observation_space,
    env_actions,
    num_choices,
    observation_writer,
    plain_space,
)
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import leaf_layout
from scramjet.engine.trees import leaves, space_tree
from scramjet.errors import ENV_FAILURES, WorldError

# A reward that is too large for 32 bits becomes infinite; training reports that with a better message.
warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning, __name__.replace(".", r"\."))

TRIED_SECONDS = 0.02
"""Seconds for which an env is played to measure how long its steps take."""

MakeEnv = Callable[[], Any]
"""Makes one `gymnasium.Env`."""


@dataclass(frozen=True, slots=True)
class RowArrays:
    """Arrays that envs write their results to and read their actions from: N rows each."""

    obs: tuple[np.ndarray, ...]  # the leaves of the adapted space, [N, *shape] each
    final_obs: tuple[np.ndarray, ...]
    mask: np.ndarray  # [N, mask_size] bool
    reward: np.ndarray  # [N] float32
    terminated: np.ndarray  # [N] bool
    truncated: np.ndarray  # [N] bool
    action: np.ndarray  # [N, *action_shape]

    def strided(self, rows: slice) -> RowArrays:
        """Views of some rows."""
        obs, final_obs = (tuple(leaf[rows] for leaf in each) for each in (self.obs, self.final_obs))
        rest = (self.mask, self.reward, self.terminated, self.truncated, self.action)
        return RowArrays(obs, final_obs, *(array[rows] for array in rest))


@dataclass(frozen=True, slots=True)
class Ended:
    """Numbers that an env gave in its `info` at the end of an episode."""

    row: int
    stats: dict[str, float]
    score: float | None  # where the env keeps count itself
    length: int | None


@dataclass(frozen=True, slots=True)
class Renewed:
    """An env that failed and was made anew."""

    row: int
    problem: str


class EnvFailedError(Exception):
    """An env raised. The text begins with a line that says what and where; its traceback follows."""


@dataclass(frozen=True, slots=True)
class EnvFacts:
    """What a pool must know of its envs before it can hold their results."""

    observation_space: Any
    action_space: Any
    mask_size: int
    has_time_limit: bool  # every episode is truncated after a number of steps, as far as the env tells
    draws_every_step: bool  # in a window
    render_modes: tuple[str, ...]  # those in which it can draw itself here


class GymRows:
    """The envs of some rows of a pool."""

    def __init__(
        self, name: str, make_env: MakeEnv, rows: range, *, renews: bool = False,
        tell: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """`rows` are the envs' rows in the pool. `renews`: an env that raises is replaced by a new one, and its episode
        truncated. `tell` is called with the number of envs done so far, while all are made or reset."""
        self.name, self.rows = name, rows
        self._make_env, self._renews, self._tell = make_env, renews, tell
        self._envs: list[Any] = []
        try:
            for i in range(len(rows)):
                self._envs.append(self._made(i))
                self._is_through(i)
            self.facts = self._facts()
        except BaseException:
            self.close()
            raise
        self._steps = [env.step for env in self._envs]
        self._renewals, self._seeds = 0, EpisodeSeed(0)
        self._to_env_actions = env_actions(self.facts.action_space)

    def _is_through(self, i: int) -> None:
        if self._tell is not None:
            self._tell(i + 1)

    def _made(self, i: int) -> Any:
        try:
            env = self._make_env()
            is_one = all(callable(getattr(env, call, None)) for call in ("reset", "step", "close"))
            is_one = is_one and all(hasattr(env, space) for space in ("observation_space", "action_space"))
        except ENV_FAILURES as error:
            raise self._failure("making", i, error) from error
        if not is_one:
            raise WorldError(
                f"{self.name}'s factory made a {type(env).__name__}, which is no gymnasium.Env; return one with "
                f"reset(), step(), close() and spaces"
            )
        return env

    def _facts(self) -> EnvFacts:
        first = self._envs[0]
        adapted_observation_space(self.name, first.observation_space)  # raises if it cannot be adapted
        adapted_action_space(self.name, first.action_space)
        for row, env in zip(self.rows, self._envs, strict=True):
            check_same_spaces(self.name, row, env, self.rows[0], first)
        # Whether there is a mask is known only from an env's first `info`.
        try:
            _, info = first.reset(seed=0)
        except ENV_FAILURES as error:
            raise self._failure("reset()", 0, error) from error
        has_mask = isinstance(info, Mapping) and "action_mask" in info
        size = num_choices(adapted_action_space(self.name, first.action_space)) if has_mask else 0
        if has_mask and not size:
            raise WorldError(f"{self.name} gives info['action_mask'], but actions of a Box are not masked; drop it")
        seen, chosen = plain_space(first.observation_space), plain_space(first.action_space)
        draws_every_step = getattr(first, "render_mode", None) == "human"
        return EnvFacts(seen, chosen, size, has_time_limit(first), draws_every_step, working_render_modes(first))

    def bind(self, arrays: RowArrays) -> None:
        """Set the arrays that results are written to; row k is that of the k-th env."""
        self._arrays = arrays
        self._write = observation_writer(self.facts.observation_space, arrays.obs)
        self._write_final = observation_writer(self.facts.observation_space, arrays.final_obs)

    def reset(self, seeds: EpisodeSeed) -> None:
        """Reset all envs; the env of row r is seeded with `seeds.of_env(r)`."""
        self._seeds = seeds
        for i, row in enumerate(self.rows):
            self._reset_one(i, seeds.of_env(row))
            self._is_through(i)

    def _reset_one(self, i: int, seed: int | None) -> None:
        try:
            obs, info = self._envs[i].reset(seed=seed) if seed is not None else self._envs[i].reset()
            self._write(obs, i)
            if self.facts.mask_size:
                self._write_mask(info, i)
        except ENV_FAILURES as error:
            raise self._failure("reset()", i, error) from error

    def step(self, start: int, stop: int) -> tuple[list[Ended], list[Renewed]]:
        """Step the envs `start` to `stop` (exclusive) with the actions in the arrays.

        Returns what the envs reported of episodes that ended, and which envs failed and were replaced.
        """
        arrays, steps, write = self._arrays, self._steps, self._write
        has_mask = self.facts.mask_size > 0
        arrays.terminated[start:stop] = False
        arrays.truncated[start:stop] = False
        rewards: list[float] = []
        ended: list[Ended] = []
        renewed: list[Renewed] = []
        for i, action in enumerate(self._to_env_actions(arrays.action[start:stop]), start):
            try:
                obs, reward, terminated, truncated, info = steps[i](action)
                if type(reward) is not float:
                    reward = self._number(reward, i)
                if terminated or truncated:
                    self._end_episode(i, obs, terminated, info, ended)
                else:
                    write(obs, i)
                    if has_mask:
                        self._write_mask(info, i)
                rewards.append(reward)
            except ENV_FAILURES as error:
                if not self._renews:
                    raise self._failure("step()", i, error) from error
                renewed.append(self._renew(i, error))
                rewards.append(0.0)
        arrays.reward[start:stop] = rewards
        return ended, renewed

    def _end_episode(self, i: int, obs: Any, terminated: Any, info: Any, ended: list[Ended]) -> None:
        """Write the last observation, add what the env reports of the episode to `ended`, and begin the next one."""
        self._write_final(obs, i)
        told = _told(self.rows[i], info)
        self._reset_one(i, None)
        flags = self._arrays.terminated if terminated else self._arrays.truncated
        flags[i] = True
        if told is not None:
            ended.append(told)

    def _renew(self, i: int, error: BaseException) -> Renewed:
        """Replace an env that failed by a new one; its episode ends as truncated, with the last observation before."""
        problem = str(error) if isinstance(error, EnvFailedError) else str(self._failure("step()", i, error))
        for final, obs in zip(self._arrays.final_obs, self._arrays.obs, strict=True):
            final[i] = obs[i]
        self._renewals += 1
        self._envs[i] = self._made(i)
        self._steps[i] = self._envs[i].step
        self._reset_one(i, self._seeds.after("renewed", self._renewals).of_env(self.rows[i]))
        self._arrays.truncated[i] = True
        return Renewed(self.rows[i], problem)

    def _number(self, reward: Any, i: int) -> float:
        """A reward as a float, from any numeric type; raises a WorldError if it is not a number."""
        if isinstance(reward, np.ndarray) and reward.size == 1 and reward.dtype.kind in "biuf":
            return float(reward.item())
        if isinstance(reward, numbers.Real | np.number | np.bool_) and not isinstance(reward, np.complexfloating):
            return float(reward)
        raise WorldError(
            f"{self.name} gave {reward!r} ({type(reward).__name__}) as the reward of env {self.rows[i]}; "
            f"its step() must return a number"
        )

    def _write_mask(self, info: Any, i: int) -> None:
        mask = info.get("action_mask")
        if mask is None:
            self._arrays.mask[i] = True
            return
        flat = np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple | list) else np.ravel(mask)
        if len(flat) != self.facts.mask_size:
            raise WorldError(
                f"{self.name}'s info['action_mask'] has {len(flat)} entries in env {self.rows[i]}; its actions have "
                f"{self.facts.mask_size} choices, and each needs one"
            )
        self._arrays.mask[i] = flat

    def _failure(self, where: str, i: int, error: BaseException) -> Exception:
        if isinstance(error, WorldError | EnvFailedError):
            return error
        if isinstance(error, UnfitObservationError):
            return WorldError(f"{self.name}: env {self.rows[i]} {error}")
        text = "".join(traceback.format_exception(error)).rstrip()
        summary = f"{type(error).__name__}: {_first_line(error)}".rstrip(": ")
        where = where if where == "making" else f"in its {where}"
        return EnvFailedError(f"{self.name}: env {self.rows[i]} raised {where}: {summary}\n\n{text}")

    def why_inexact(self) -> str | None:
        """Why such envs cannot be saved exactly, in words; None if they can.

        Tries it on the first two envs, which are left in an arbitrary state.
        """
        return env_state.why_inexact(self._envs[0], self._envs[1])

    def capture(self) -> list[bytes]:
        """The state of each env."""
        return [env_state.capture(env) for env in self._envs]

    def restore(self, states: Sequence[bytes], seeds: EpisodeSeed) -> None:
        """Restore the state of each env. Does not write observations: the pool has them from its snapshot."""
        self._seeds = seeds
        for i, state in enumerate(states):
            self._reset_one(i, seeds.of_env(self.rows[i]))  # creates the attributes that the state fills
            env_state.restore(self._envs[i], state)
            self._is_through(i)

    def seconds_of_a_step(self) -> float:
        """The median seconds of a step of the first env with random actions; infinite if it raises."""
        env, seconds = self._envs[0], list[float]()
        try:
            env.reset(seed=0)
            env.action_space.seed(0)
            until = time.perf_counter() + TRIED_SECONDS
            while not seconds or time.perf_counter() < until:
                action = env.action_space.sample()
                began = time.perf_counter()
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
                seconds.append(time.perf_counter() - began)
        except ENV_FAILURES:  # it may reject random actions; training reports errors in full
            return math.inf
        return statistics.median(seconds)

    def call(self, i: int, method: str) -> Any:
        """Call a method of the i-th env without arguments and return its result."""
        try:
            return getattr(self._envs[i], method)()
        except ENV_FAILURES as error:
            raise self._failure(f"{method}()", i, error) from error

    def close(self) -> None:
        """Close all envs, even if closing one of them fails."""
        for env in self._envs:
            try:
                env.close()
            except ENV_FAILURES:
                continue


def _first_line(error: BaseException) -> str:
    try:
        return next(iter(str(error).splitlines()), "")
    except Exception:  # its own __str__ fails
        return ""


def _told(row: int, info: Any) -> Ended | None:
    """The statistics in the last `info` of an episode; None if it has none."""
    if not info or not isinstance(info, Mapping):
        return None
    stats, (score, length) = numbers_in(info), recorded(info)
    return Ended(row, stats, score, length) if stats or score is not None else None


# --- how rows are laid out, and what is known of envs


def row_layout(
    observation_space: Any, action_space: Any, mask_size: int, num_envs: int
) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each array that envs write and read, in the order of `row_arrays`; of adapted spaces."""
    seen = [leaf_layout(part) for part in leaves(space_tree(observation_space))]
    flag, (action_shape, action_dtype) = np.dtype(np.bool_), action_shape_and_dtype(action_space)
    rest = [((mask_size,), flag), ((), np.dtype(np.float32)), ((), flag), ((), flag), (action_shape, action_dtype)]
    return [((num_envs, *shape), dtype) for shape, dtype in (*seen, *seen, *rest)]


def row_arrays(arrays: list[np.ndarray]) -> RowArrays:
    """The arrays of a `row_layout`, in its order, by name."""
    num_leaves = (len(arrays) - 5) // 2
    obs, final_obs, rest = arrays[:num_leaves], arrays[num_leaves : 2 * num_leaves], arrays[2 * num_leaves :]
    mask, reward, terminated, truncated, action = rest
    return RowArrays(tuple(obs), tuple(final_obs), mask, reward, terminated, truncated, action)


def has_time_limit(env: Any) -> bool:
    """Whether an env, one of its wrappers or its registration says that episodes are truncated."""
    layer = env
    while layer is not None:
        held = getattr(layer, "__dict__", {})  # not by name: wrappers pass that on, or refuse it
        if held.get("_max_episode_steps") is not None:  # as Gymnasium's TimeLimit calls it
            return True
        layer = held.get("env")
    return getattr(getattr(env, "spec", None), "max_episode_steps", None) is not None


def working_render_modes(env: Any) -> tuple[str, ...]:
    """The render modes that an env declares, without pictures where what they need is known to be missing here."""
    modes = tuple(map(str, (getattr(env, "metadata", None) or {}).get("render_modes") or ()))
    module = type(getattr(env, "unwrapped", env)).__module__
    has_pictures = True
    if module.startswith("gymnasium.envs.mujoco"):  # drawn by OpenGL
        has_screen = (
            os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform in ("darwin", "win32")
        )
        has_pictures = bool(has_screen or os.environ.get("MUJOCO_GL"))
    elif module.startswith("gymnasium.envs."):
        has_pictures = find_spec("pygame") is not None
    return modes if has_pictures else tuple(mode for mode in modes if mode != "rgb_array")


def check_same_spaces(name: str, row: int, given: Any, first_row: int, first: Any) -> None:
    """Refuse an env whose spaces are not those of the first; both are envs or their `EnvFacts`."""
    for kind in ("observation_space", "action_space"):
        mine, expected = getattr(given, kind), getattr(first, kind)
        if mine != expected:
            raise WorldError(
                f"{name}: env {row} has {kind} {mine}, and env {first_row} has {expected}; the envs of one pool must "
                f"have the same spaces"
            )
