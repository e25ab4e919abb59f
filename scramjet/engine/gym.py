"""Native worlds as Gymnasium environments: `gymnasium.make("scramjet/CartPole-v1")` and `gymnasium.make_vec`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from scramjet.engine.native import NativePool
from scramjet.envs.registry import load_env


class GymEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One env of a native world. Seeded with s, it plays the episode that env i of a pool seeded with s - i plays."""

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 30}

    def __init__(self, world: str, render_mode: str | None = None, **parameters: Any) -> None:
        self.rules = load_env(world, **parameters)
        self.observation_space = self.rules.observation_space
        self.action_space = self.rules.action_space
        self.render_mode = render_mode
        self._pool = NativePool(self.rules, 1)
        self._states: np.ndarray | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        episode_seed = int(self.np_random.integers(2**62)) if seed is None else seed
        out = self._pool.reset(episode_seed)
        self._states = self._pool.states()
        return out.obs[0].copy(), self._info(out.mask[0])

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._states is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space!r}")
        self._states, out = self._pool.simulate(self._states, np.array([action], np.int64))
        info = self._info(out.mask[0])
        return out.obs[0], float(out.reward[0]), bool(out.terminated[0]), bool(out.truncated[0]), info

    def render(self) -> Any:
        if self._states is None:
            raise gymnasium.error.ResetNeeded("call reset() before render()")
        record = self._pool.as_record(self._states[0])
        if self.render_mode == "rgb_array":
            return self.rules.render(record)
        return self.rules.ascii(record) if self.render_mode == "ansi" else None

    def _info(self, mask: np.ndarray) -> dict[str, Any]:
        return {"action_mask": mask.astype(np.int8)} if self._pool.mask_size else {}


class GymVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many envs of a native world, with auto-reset in the same step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(
        self, world: str, num_envs: int = 1, num_threads: int | None = None, render_mode: str | None = None,
        **parameters: Any,
    ) -> None:  # fmt: skip
        self.rules = load_env(world, **parameters)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = self.rules.observation_space
        self.single_action_space = self.rules.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._pool = NativePool(self.rules, num_envs, num_threads=num_threads)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        if isinstance(seed, list | tuple | np.ndarray):
            raise gymnasium.error.Error("give one seed: env i uses seed + i")
        super().reset(seed=seed)
        out = self._pool.reset(int(self.np_random.integers(2**62)) if seed is None else seed)
        return out.obs.copy(), self._info(out.mask)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self.action_space.contains(np.asarray(actions)):
            raise gymnasium.error.InvalidAction(f"{actions!r} is not in {self.action_space!r}")
        out = self._pool.step(np.asarray(actions, np.int64))
        info = self._info(out.mask)
        ended = out.terminated | out.truncated
        if ended.any():
            info.update(self._final_info(ended, out.final_obs))
        reward = out.reward.astype(np.float64)
        return out.obs.copy(), reward, out.terminated.copy(), out.truncated.copy(), info

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode != "rgb_array":
            return None
        return tuple(self.rules.render(self._pool.record(i)) for i in range(self.num_envs))

    def _info(self, mask: np.ndarray) -> dict[str, Any]:
        return {"action_mask": mask.astype(np.int8)} if self._pool.mask_size else {}

    def _final_info(self, ended: np.ndarray, final_obs: np.ndarray) -> dict[str, Any]:
        """What Gymnasium's same-step mode promises: the true last observations, and the episodes' statistics."""
        observations = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            observations[i] = final_obs[i].copy()
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
