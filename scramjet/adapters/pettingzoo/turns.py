"""PettingZoo's games that are played in turns: each player is a seat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scramjet.adapters.info.numbers import numbers_in
from scramjet.adapters.pettingzoo.pool import MakeEnv, PettingZooPool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves
from scramjet.errors import WorldError


class AECPool(PettingZooPool):
    """Games of PettingZoo's AECEnv kind, in which players take turns: one row an env, seat k is `possible_agents[k]`.

    A step is one move: what it pays, it pays to every seat at once. A game is over when all its agents have terminated
    or been truncated; who leaves it before gets no more turns (the step with None that PettingZoo demands of them is
    made here). The game counts as truncated where those who ended it were, and none of them terminated.
    """

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int) -> None:
        super().__init__(name, make_env, num_envs, PlayedBy.SEATS, "AECEnv")
        self._numbers: list[list[Mapping[str, float]]] = []  # of each env: what each seat was told at its end

    def _infos_at_start(self) -> Mapping[Any, Any]:
        with self._told(0, "reset()"):
            self.envs[0].reset()
        return self.envs[0].infos

    def _reset(self, seeds: EpisodeSeed, out: Transition) -> None:
        self._numbers = [[{}] * self.num_players for _ in self.envs]
        for i in range(self.num_envs):
            self._begin(i, out, seeds.of_env(i))

    def _step(self, actions: np.ndarray, out: Transition) -> None:
        for i in range(self.num_envs):
            self._step_env(i, actions, out)

    def _begin(self, i: int, out: Transition, seed: int | None = None) -> None:
        env = self.envs[i]
        with self._told(i, "reset()"):
            if seed is None:
                env.reset()
            else:
                env.reset(seed=seed)
        self._check_anyone(i, env)
        self._numbers[i] = [{}] * self.num_players
        for view in leaves(self._views):
            view[self._places(i)] = 0
        self._show(i, out)

    def _places(self, i: int) -> slice:
        return slice(i * self.num_players, (i + 1) * self.num_players)

    def _step_env(self, i: int, actions: np.ndarray, out: Transition) -> None:
        out.reward[i] = 0.0
        with self._told(i, "step()"):
            self.envs[i].step(self._to_action(actions[i]))
        is_over, is_cut = self._pass_turn(i, out.reward[i])
        out.terminated[i], out.truncated[i] = is_over and not is_cut, is_over and is_cut
        self._count(out.reward[i : i + 1], slice(i, i + 1))
        if not is_over:
            self._show(i, out)
            return
        for final, view in zip(leaves(out.final_obs), leaves(self._views), strict=True):
            final[self._places(i)] = view[self._places(i)]
        self._log_episode(i, self._numbers[i])
        self._begin(i, out)

    def _pass_turn(self, i: int, gains: np.ndarray) -> tuple[bool, bool]:
        """Add up what was paid and let the dead step, until someone alive is to move.

        Returns whether the game is over instead, and if so, whether it was cut short.
        """
        env, ways_to_end = self.envs[i], set()
        while True:
            for agent, reward in env.rewards.items():
                gains[self._number[agent]] += self._gain(agent, reward)
            dead = [agent for agent in env.agents if env.terminations[agent] or env.truncations[agent]]
            for agent in dead:
                ways_to_end.add("terminated" if env.terminations[agent] else "truncated")
                self._look(i, agent)
                self._numbers[i][self._number[agent]] = numbers_in(env.infos[agent])
            if len(dead) == len(env.agents):
                return True, ways_to_end == {"truncated"}
            if env.agent_selection not in dead:
                return False, False
            with self._told(i, "step(None)"):
                env.step(None)

    def _look(self, i: int, agent: Any) -> Any:
        """What an agent sees now; where it is shown nothing, its place keeps what it saw before."""
        with self._told(i, f"observe({agent!r})"):
            obs = self.envs[i].observe(agent)
        if obs is not None:
            self._see(i * self.num_players + self._number[agent], agent, obs)
        return obs

    def _show(self, i: int, out: Transition) -> None:
        """Write what the player who is to move sees, and its legal actions, into row i of `out`."""
        env, mover = self.envs[i], self.envs[i].agent_selection
        seat = self._number.get(mover)
        if seat is None:
            raise WorldError(f"{self.name}: env {i} is {mover!r}'s to move, who is not in possible_agents")
        obs = self._look(i, mover)
        if obs is None:
            raise WorldError(f"{self.name}: env {i} shows nothing to {mover!r}, who is to move; observe() gave None")
        out.turn[i] = seat
        for shown, view in zip(leaves(out.obs), leaves(self._views), strict=True):
            shown[i] = view[i * self.num_players + seat]
        out.mask[i] = self._mask_of(mover, obs, env.infos.get(mover, {})) if self.mask_size else True

    def views(self) -> Any:
        for i, env in enumerate(self.envs):
            for agent in env.agents:
                self._look(i, agent)
        return super().views()
