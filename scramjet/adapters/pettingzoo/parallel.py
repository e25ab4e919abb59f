"""PettingZoo's envs in which agents act at once: each agent is a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scramjet.adapters.info.numbers import numbers_in
from scramjet.adapters.pettingzoo.pool import MakeEnv, PettingZooPool, listed
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves
from scramjet.errors import WorldError


class ParallelPool(PettingZooPool):
    """Envs of PettingZoo's ParallelEnv kind: agent k of env i has row i * num_agents + k, by its place in
    `possible_agents`.

    `turn` says who is alive. An agent's episode ends once, when it terminates, is truncated or is gone from `agents`;
    from then on its row shows zeros and counts for nothing, until it joins again or the env, when all have ended, is
    reset in the same step. What an agent is paid in the step in which it joins is not counted: it had not acted.
    """

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int) -> None:
        super().__init__(name, make_env, num_envs, PlayedBy.AGENTS, "ParallelEnv")
        self._alive = np.zeros(self.num_rows, np.bool_)

    def _infos_at_start(self) -> Mapping[Any, Any]:
        with self._told(0, "reset()"):
            _, infos = self.envs[0].reset()
        return infos

    def _reset(self, seeds: EpisodeSeed, out: Transition) -> None:
        for i in range(self.num_envs):
            self._begin(i, out, seeds.of_env(i))
        self._show(out)

    def _step(self, actions: np.ndarray, out: Transition) -> None:
        for i in range(self.num_envs):
            self._step_env(i, actions, out)
        self._show(out)

    def _begin(self, i: int, out: Transition, seed: int | None = None) -> None:
        env = self.envs[i]
        with self._told(i, "reset()"):
            obs, infos = env.reset() if seed is None else env.reset(seed=seed)
        self._check_anyone(i, env)
        self._take_in(i, set(env.agents), obs, infos, out)

    def _step_env(self, i: int, actions: np.ndarray, out: Transition) -> None:
        env, rows = self.envs[i], slice(i * self.num_players, (i + 1) * self.num_players)
        was_alive = self._alive[rows].copy()
        acting = {a: self._to_action(actions[rows.start + k]) for k, a in enumerate(self.agents) if was_alive[k]}
        with self._told(i, "step()"):
            obs, rewards, terminations, truncations, infos = env.step(acting)
        present = set(env.agents)
        living = {a for a in present if not terminations.get(a, False) and not truncations.get(a, False)}
        ended = []
        for k, agent in enumerate(self.agents):
            row, is_over = rows.start + k, was_alive[k] and agent not in living
            is_cut = is_over and bool(truncations.get(agent, False)) and not terminations.get(agent, False)
            out.reward[row] = self._gain(agent, rewards.get(agent, 0.0)) if was_alive[k] else 0.0
            out.terminated[row], out.truncated[row] = is_over and not is_cut, is_cut
            if is_over:
                ended.append((row, agent))
        self._count(out.reward[rows], rows, was_alive)
        for row, agent in ended:
            self._end(row, agent, obs, infos, out)
        if living:
            self._take_in(i, living, obs, infos, out)
        else:
            self._begin(i, out)

    def _end(self, row: int, agent: Any, obs: Mapping[Any, Any], infos: Mapping[Any, Any], out: Transition) -> None:
        """Keep an agent's last observation (where it gets none, the one before) and log its episode."""
        if agent in obs:
            self._see(row, agent, obs[agent])
        for final, view in zip(leaves(out.final_obs), leaves(self._views), strict=True):
            final[row] = view[row]
        self._log_episode(row, numbers_in(infos.get(agent, {})))

    def _take_in(
        self, i: int, living: set[Any], obs: Mapping[Any, Any], infos: Mapping[Any, Any], out: Transition
    ) -> None:
        """What the agents of an env see now; the rows of those that are not there are blank."""
        if strangers := living - self._number.keys():
            raise WorldError(
                f"{self.name}: env {i} has agents that are not in possible_agents: {listed(strangers)}; name there "
                f"all that may join"
            )
        for agent, k in self._number.items():
            row, is_alive = i * self.num_players + k, agent in living
            self._alive[row] = is_alive
            out.mask[row] = True
            if not is_alive:
                for view in leaves(self._views):
                    view[row] = 0
                continue
            if agent not in obs:
                raise WorldError(f"{self.name}: env {i} gives no observation of {agent}, which is among its agents")
            self._see(row, agent, obs[agent])
            if self.mask_size:
                out.mask[row] = self._mask_of(agent, obs[agent], infos.get(agent, {}))

    def _show(self, out: Transition) -> None:
        out.turn[:] = self._alive
        for shown, view in zip(leaves(out.obs), leaves(self._views), strict=True):
            shown[:] = view
