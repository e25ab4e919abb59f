"""Native worlds as Gymnasium environments: `gymnasium.make("scramjet/CartPole-v1")` and `gymnasium.make_vec`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from scramjet.engine.layout import action_layout, num_players, played_by
from scramjet.engine.privileged import policy_part
from scramjet.engine.trees import map_leaves, space_tree
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Discrete, Env
from scramjet.envs.registry import load_env
from scramjet.errors import WorldError


def load_single(world: str, parameters: dict[str, Any]) -> Env:
    """Load a world; raises a WorldError if it has several players, which Gymnasium's interface does not support."""
    env = load_env(world, **parameters)
    if num_players(env) > 1:
        raise WorldError(
            f"{world} has {num_players(env)} {played_by(env).value}; Gymnasium's interface is for one player. "
            f"Play it with scramjet.make"
        )
    return env


def for_gymnasium(space: Any, obs: Any) -> Any:
    """Copy observations [N, ...] into Gymnasium's form, in which Discrete ones are [N] instead of [N, 1]."""

    def convert(part: Any, leaf: np.ndarray) -> np.ndarray:
        if isinstance(part, Discrete) or getattr(part, "shape", None) == ():
            return leaf[:, 0].copy()
        return leaf.copy()

    return map_leaves(convert, space_tree(space), obs)


def row_of(obs: Any, i: int) -> Any:
    """Observation `i` of a batch of observations."""
    return map_leaves(lambda leaf: leaf[i], obs)


def render_modes(rules: Env, modes: list[str]) -> list[str]:
    """The modes in `modes` that a world supports: rgb_array needs a `render` of its own."""
    return [mode for mode in modes if mode != "rgb_array" or type(rules).render is not Env.render]


def _info(pool: NativePool, mask: np.ndarray) -> dict[str, Any]:
    return {"action_mask": mask.astype(np.int8)} if pool.mask_size else {}


def _first_of(seeds: Any, num_envs: int) -> int:
    """The first of a list of consecutive seeds; raises an error for any other list.

    Gymnasium's vector envs turn one seed into such a list, which is turned back here.
    """
    first = int(seeds[0]) if len(seeds) and seeds[0] is not None else None
    if first is None or list(seeds) != list(range(first, first + num_envs)):
        raise gymnasium.error.Error(f"seed={seeds!r}: envs cannot be seeded one by one; give one seed for all")
    return first


class GymEnv(gymnasium.Env[Any, Any]):
    """One env of a native world. Seeded with s, it plays what env 0 of a pool seeded with s plays."""

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 30}

    def __init__(self, world: str, render_mode: str | None = None, **parameters: Any) -> None:
        self.rules = load_single(world, parameters)
        self.metadata = {**self.metadata, "render_modes": render_modes(self.rules, self.metadata["render_modes"])}
        self.observation_space = self.rules.observation_space
        self.action_space = self.rules.action_space
        self.render_mode = render_mode
        self._pool = NativePool(self.rules, 1)
        self._states: np.ndarray | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(2**62)) if seed is None else seed
        out = self._pool.reset(episode_seed)
        self._states = self._pool.states()
        return row_of(for_gymnasium(self.observation_space, policy_part(out.obs)), 0), _info(self._pool, out.mask[0])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._states is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space!r}")
        self._states, out = self._pool.simulate(self._states, np.array([action], action_layout(self.rules)[1]))
        info = _info(self._pool, out.mask[0])
        obs = row_of(for_gymnasium(self.observation_space, policy_part(out.obs)), 0)
        return obs, float(np.sum(out.reward[0])), bool(out.terminated[0]), bool(out.truncated[0]), info

    def render(self) -> Any:
        if self._states is None:
            raise gymnasium.error.ResetNeeded("call reset() before render()")
        record = self._pool.as_record(self._states[0])
        if self.render_mode == "rgb_array":
            return self.rules.render(record)
        return self.rules.ascii(record) if self.render_mode == "ansi" else None


class GymVectorEnv(VectorEnv[Any, np.ndarray, np.ndarray]):
    """Many envs of a native world, with auto-reset in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(
        self, world: str, num_envs: int = 1, num_threads: int | None = None, render_mode: str | None = None,
        **parameters: Any,
    ) -> None:  # fmt: skip
        self.rules = load_single(world, parameters)
        self.metadata = {**self.metadata, "render_modes": render_modes(self.rules, self.metadata["render_modes"])}
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = self.rules.observation_space
        self.single_action_space = self.rules.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._pool = NativePool(self.rules, num_envs, num_threads=num_threads)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if isinstance(seed, list | tuple | np.ndarray):
            seed = _first_of(seed, self.num_envs)
        super().reset(seed=seed)
        out = self._pool.reset(int(self.np_random.integers(2**62)) if seed is None else seed)
        return for_gymnasium(self.single_observation_space, policy_part(out.obs)), _info(self._pool, out.mask)

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self.action_space.contains(np.asarray(actions)):
            raise gymnasium.error.InvalidAction(f"{actions!r} is not in {self.action_space!r}")
        out = self._pool.step(np.array(actions, action_layout(self.rules)[1]))
        info = _info(self._pool, out.mask)
        ended = out.terminated | out.truncated
        if ended.any():
            info.update(self._final_info(ended, out.final_obs))
        reward = out.reward.astype(np.float64).reshape(self.num_envs)
        obs = for_gymnasium(self.single_observation_space, policy_part(out.obs))
        return obs, reward, out.terminated.copy(), out.truncated.copy(), info

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode != "rgb_array":
            return None
        return tuple(self.rules.render(self._pool.record(i)) for i in range(self.num_envs))

    def _final_info(self, ended: np.ndarray, final_obs: Any) -> dict[str, Any]:
        """The entries of `info` for episodes that ended: their last observations and statistics, as Gymnasium specifies
        for the same-step mode of auto-reset."""
        observations = np.full(self.num_envs, None, dtype=object)
        last = for_gymnasium(self.single_observation_space, policy_part(final_obs))
        for i in np.flatnonzero(ended):
            observations[i] = row_of(last, int(i))
        episodes = self._pool.episodes()
        episode = {"r": np.zeros(self.num_envs), "l": np.zeros(self.num_envs, np.int64)}
        episode["r"][episodes.env_ids] = episodes.returns
        episode["l"][episodes.env_ids] = episodes.lengths
        final: dict[str, Any] = {"episode": episode, "_episode": ended.copy()}
        for name, values in episodes.stats.items():
            final[name] = np.zeros(self.num_envs)
            final[name][episodes.env_ids] = values
        return {
            "final_obs": observations,
            "_final_obs": ended.copy(),
            "final_info": final,
            "_final_info": ended.copy(),
        }
