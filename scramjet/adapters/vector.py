"""Vector envs of others as a pool: any `gymnasium.vector.VectorEnv`, whatever its style of auto-reset.

The style is in `metadata["autoreset_mode"]`, and each is brought to ours, where the observation that comes with an
episode's end belongs to the next episode already:

- SAME_STEP does as we do; the last observations are in `info["final_obs"]`. A library that leaves them out is taken
  all the same: in their place stands the observation before the last step, whose value is the nearest one known. It
  matters for truncated episodes only.
- DISABLED resets nothing: the pool resets those that ended, by `reset(options={"reset_mask": ...})`.
- NEXT_STEP spends a step on each reset, in which the action is ignored. Gymnasium's own SyncVectorEnv and
  AsyncVectorEnv are switched to DISABLED (not to SAME_STEP: an env that writes all its observations into one array
  would have its last one overwritten). Any other can only step all envs together, so these steps cannot be taken out;
  they are marked instead. The pool says that it is played by agents, one an env, who is dead in that step
  (`turn` is False): then no loss, advantage, statistic or memory of the policy sees it, as with any dead agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.info import numbers_in, recorded
from scramjet.adapters.library import NamedWorld, PoolRequest
from scramjet.adapters.spaces import UnfitObservationError, batch_parts, env_actions, observation_writer
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import check_count
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves
from scramjet.errors import ConfigError, WorldError

FINAL_OBS = ("final_obs", "final_observation")
FINAL_INFO = ("final_info",)


class VectorPool(ForeignPool):
    """The envs of one vector env. Its own state cannot be saved: a resumed run starts fresh episodes."""

    def __init__(self, name: str, make_vector_env: Callable[[int], VectorEnv], num_envs: int) -> None:
        check_count("num_envs", num_envs)
        env = _without_dead_steps(_checked(name, make_vector_env(num_envs), num_envs))
        self.vector_env = env
        self.autoreset_mode = _autoreset_mode(name, env)
        skips_a_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        super().__init__(
            name,
            env.single_observation_space,
            env.single_action_space,
            num_envs,
            played_by=PlayedBy.AGENTS if skips_a_step else PlayedBy.ONE,
        )
        self.has_time_limit = getattr(env.spec, "max_episode_steps", None) is not None
        self.draws_every_step = getattr(env, "render_mode", None) == "human"
        self._step_in_style = {
            AutoresetMode.SAME_STEP: self._step_same,
            AutoresetMode.DISABLED: self._step_disabled,
            AutoresetMode.NEXT_STEP: self._step_next,
        }[self.autoreset_mode]
        self._to_theirs = _batch_of_actions(env.single_action_space)
        self._dead = np.zeros(num_envs, np.bool_)  # NEXT_STEP: the coming step only resets
        self._shown = self._own  # where the observations of the last step are

    def _reset(self, seeds: EpisodeSeed, out: Transition) -> None:
        obs, _ = self.vector_env.reset(seed=seeds.of_env(0))  # a number, from which vector envs count up
        self._dead[:] = False
        out.turn[:] = True
        self._show(obs, out)

    def _step(self, actions: np.ndarray, out: Transition) -> None:
        self._step_in_style(actions, out)

    def _step_same(self, actions: np.ndarray, out: Transition) -> None:
        obs, reward, terminated, truncated, infos = self.vector_env.step(self._to_theirs(actions))
        rows = self._take(reward, terminated, truncated, out)
        if len(rows):
            self._take_finals(infos, rows, out)
            self._log_ended(rows, _first_of(infos, FINAL_INFO), infos)
        self._show(obs, out)

    def _step_disabled(self, actions: np.ndarray, out: Transition) -> None:
        rows = self._step_without_reset(actions, out)
        if len(rows):
            obs, _ = self.vector_env.reset(options={"reset_mask": out.terminated | out.truncated})
            self._write(obs, out.obs, rows)

    def _step_next(self, actions: np.ndarray, out: Transition) -> None:
        self._step_without_reset(actions, out)
        np.logical_or(out.terminated, out.truncated, out=self._dead)
        np.logical_not(self._dead, out=out.turn)

    def _step_without_reset(self, actions: np.ndarray, out: Transition) -> np.ndarray:
        """A step whose observations are the last ones of episodes that ended; returns their rows."""
        obs, reward, terminated, truncated, infos = self.vector_env.step(self._to_theirs(actions))
        rows = self._take(reward, terminated, truncated, out)
        self._show(obs, out)
        if len(rows):
            self._copy_rows(out.obs, out.final_obs, rows)
            self._log_ended(rows, infos)
        return rows

    def _take(self, reward: Any, terminated: Any, truncated: Any, out: Transition) -> np.ndarray:
        """Write rewards and flags, count the step; the rows that ended."""
        try:
            out.reward[:] = reward
        except (TypeError, ValueError) as error:
            raise WorldError(f"{self.name} gave rewards {reward!r}; they must be numbers, one an env") from error
        out.terminated[:] = terminated
        np.greater(truncated, out.terminated, out=out.truncated)  # and not terminated
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            for array in (out.reward, out.terminated, out.truncated):
                array[self._dead] = 0
            self._count(out.reward, alive=~self._dead)
        else:
            self._count(out.reward)
        if True not in out.terminated.tobytes() and True not in out.truncated.tobytes():  # any() costs more
            return _NONE
        return np.flatnonzero(out.terminated | out.truncated)

    def _take_finals(self, infos: Mapping[str, Any], rows: np.ndarray, out: Transition) -> None:
        """The last observations of what ended, from `infos`; where there are none, those before this step."""
        finals = _first_of(infos, FINAL_OBS)
        if finals is None:
            self._copy_rows(self._shown.obs, out.final_obs, rows)
        elif isinstance(finals, np.ndarray) and finals.dtype == object:
            write = observation_writer(self.their_observation_space, leaves(out.final_obs))
            for row in rows:
                try:
                    write(finals[row], row)
                except UnfitObservationError as error:
                    raise WorldError(f"{self.name}: env {row} {error}") from error
        else:
            self._write(finals, out.final_obs, rows)

    def _show(self, obs: Any, out: Transition) -> None:
        self._write(obs, out.obs)
        self._shown = out

    def _write(self, obs: Any, arrays: Any, rows: np.ndarray | None = None) -> None:
        """Put a batch [N, ...] of theirs into our arrays; `rows`: only these."""
        for array, part in zip(leaves(arrays), batch_parts(self.their_observation_space, obs), strict=True):
            try:
                fitting = np.reshape(part, array.shape)
            except ValueError:
                raise WorldError(
                    f"{self.name} observed {list(np.shape(part))}, which its observation_space "
                    f"{self.their_observation_space} of {self.num_envs} envs does not have"
                ) from None
            if rows is None:
                np.copyto(array, fitting, casting="unsafe")
            else:
                array[rows] = fitting[rows]

    @staticmethod
    def _copy_rows(source: Any, target: Any, rows: np.ndarray) -> None:
        for old, new in zip(leaves(source), leaves(target), strict=True):
            new[rows] = old[rows]

    def _log_ended(self, rows: np.ndarray, *infos: Any) -> None:
        """Log episodes, with the numbers of the first `infos`; a score may be in any of them."""
        if not any(each is not None and len(each) for each in infos):
            self._log_episodes(rows, {})
            return
        for row in rows:
            own = [info_of(each, row) for each in infos if each is not None]
            self._log_episode(int(row), numbers_in(own[0]) if len(own) == len(infos) else {}, *recorded(*own))

    def close(self) -> None:
        """End what the vector env runs."""
        self.vector_env.close()


_NONE = np.zeros(0, np.int64)


def info_of(infos: Any, row: int) -> dict[str, Any]:
    """One env's own `info` out of a vector env's: arrays by name, with `_name` saying which envs have it."""
    if not isinstance(infos, Mapping):
        return dict(infos[row] or {})  # a list of infos, as some give it
    own: dict[str, Any] = {}
    for name, values in infos.items():
        has = infos.get(f"_{name}")
        if name.startswith("_") or name in (*FINAL_OBS, *FINAL_INFO) or (has is not None and not has[row]):
            continue
        if isinstance(values, Mapping):
            own[name] = info_of(values, row)
        elif isinstance(values, np.ndarray | list | tuple) and len(values) > row:
            own[name] = values[row]
    return own


def _first_of(infos: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((infos[name] for name in names if name in infos), None)


def _checked(name: str, env: Any, num_envs: int) -> VectorEnv:
    if not isinstance(env, VectorEnv):
        raise WorldError(
            f"{name}: the factory made {type(env).__name__}, which is no gymnasium.vector.VectorEnv; give single envs "
            f"by a factory of their own, without num_envs"
        )
    if env.num_envs != num_envs:
        raise WorldError(f"{name}: asked for {num_envs} envs, the factory made {env.num_envs}; let it use its argument")
    return env


def _autoreset_mode(name: str, env: VectorEnv) -> AutoresetMode:
    # An env that says nothing shows the base class's dict, where another library may have left its own style.
    said = {} if env.metadata is VectorEnv.metadata else env.metadata or {}
    mode = said.get("autoreset_mode", getattr(env, "autoreset_mode", None))
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{each.name}" for each in AutoresetMode)
        raise WorldError(
            f"{name}: metadata['autoreset_mode'] is {mode!r}, so nobody knows when its envs are reset; "
            f"set it to one of {modes}"
        ) from None


def _without_dead_steps(env: VectorEnv) -> VectorEnv:
    """Gymnasium's own vector envs, whose resets we can do, and told not to copy what is copied here anyway.

    Those in wrappers stay as they are, since wrappers may have looked at the style.
    """
    if type(env) is SyncVectorEnv:
        env.copy = False
        if env.autoreset_mode is AutoresetMode.NEXT_STEP:
            env.autoreset_mode = AutoresetMode.DISABLED
            env.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.DISABLED}
    if type(env) is AsyncVectorEnv:
        env.copy = False
        if env.autoreset_mode is AutoresetMode.NEXT_STEP and env.worker is None:
            return _rebuilt(env)
    return env


def _rebuilt(env: AsyncVectorEnv) -> AsyncVectorEnv:
    """The same vector env with new processes: those it has were told their style of auto-reset when they began."""
    options = {
        name: getattr(env, name)
        for name in ("shared_memory", "context", "daemon", "observation_mode", "max_concurrency")
        if hasattr(env, name)
    }
    env_fns = env.env_fns
    env.close()
    return AsyncVectorEnv(env_fns, copy=False, autoreset_mode=AutoresetMode.DISABLED, **options)


def _batch_of_actions(space: Any) -> Callable[[np.ndarray], np.ndarray]:
    if isinstance(space, Discrete) and space.start == 0 and space.dtype == np.int64:
        return lambda actions: actions
    return env_actions(space)


def vector_pool(world: NamedWorld, make_vector_env: Callable[[int], VectorEnv], request: PoolRequest) -> VectorPool:
    """A pool of one vector env; refuses worker processes, which cannot divide it."""
    workers = request.workers
    if request.learns and workers.num_workers and not workers.apart:
        raise ConfigError(
            f"num_workers={workers.num_workers}, and {world.name} makes many envs at once, which processes "
            f"cannot divide; leave it out, or give a function that makes one env"
        )
    return VectorPool(world.name, make_vector_env, request.num_envs)
