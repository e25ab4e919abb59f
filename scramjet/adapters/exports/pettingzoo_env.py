"""Native worlds as PettingZoo's environments: `parallel_env("snake", snakes=3)`, and `env("connect_four")` in turns."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding

from scramjet.adapters.exports.gymnasium_env import for_gymnasium, render_modes, row_of
from scramjet.adapters.gymnasium.registered_envs import gym_id
from scramjet.adapters.pettingzoo import import_pettingzoo
from scramjet.engine.layout import PlayedBy, action_layout, played_by
from scramjet.engine.privileged import policy_part
from scramjet.engine.transition import Transition
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.registry import canonical_name, load_env, registrations
from scramjet.errors import WorldError

RENDER_MODES = ["human", "rgb_array", "ansi"]

try:
    _pettingzoo: Any = importlib.import_module("pettingzoo")
except ImportError:  # `import_pettingzoo` raises the error when an env is made
    AECEnv: Any = object
    ParallelEnv: Any = object
else:
    AECEnv, ParallelEnv = _pettingzoo.AECEnv, _pettingzoo.ParallelEnv


def parallel_env(world: str, render_mode: str | None = None, **parameters: Any) -> WorldParallelEnv:
    """A world whose agents act at once, as a PettingZoo ParallelEnv with the agents agent_0, agent_1, and so on."""
    pool = _pool_of(world, PlayedBy.AGENTS, parameters)
    return WorldParallelEnv(Table(world, pool, render_mode))


def env(world: str, render_mode: str | None = None, **parameters: Any) -> WorldAECEnv:
    """A world whose players take turns, as a PettingZoo AECEnv with the agents seat_0, seat_1, and so on."""
    pool = _pool_of(world, PlayedBy.SEATS, parameters)
    return WorldAECEnv(Table(world, pool, render_mode))


def _pool_of(world: str, wanted: PlayedBy, parameters: dict[str, Any]) -> NativePool:
    """A pool of one env; raises a WorldError unless the world is played as `wanted`."""
    import_pettingzoo()
    rules = load_env(world, **parameters)
    found = played_by(rules)
    if found is PlayedBy.ONE:
        name = {entry.name: gym_id(entry) for entry in registrations()}.get(canonical_name(world))
        instead = f'gymnasium.make("scramjet.gym:{name}")'
        if name is None:
            instead = f"scramjet.adapters.exports.gymnasium_env.GymEnv({world!r})"
        raise WorldError(f"{world} is played by one: PettingZoo is for several; use {instead}")
    if found is not wanted:
        instead = "parallel_env" if found is PlayedBy.AGENTS else "env"
        how = "acts at once" if found is PlayedBy.AGENTS else "takes turns"
        raise WorldError(
            f"in {world} everyone {how}: use scramjet.adapters.exports.pettingzoo_env.{instead}({world!r})"
        )
    return NativePool(rules, 1)


class Table:
    """One game of a native world, without auto-reset; both of PettingZoo's interfaces use it.

    Seeded with s, it plays the same game as env 0 of a pool seeded with s.
    """

    def __init__(self, world: str, pool: NativePool, render_mode: str | None) -> None:
        if render_mode not in (None, *RENDER_MODES):
            raise WorldError(f"render_mode={render_mode!r} of {world} must be None or one of {', '.join(RENDER_MODES)}")
        self.name = canonical_name(world)
        self.pool, self.rules, self.render_mode = pool, pool.env, render_mode
        self._random: np.random.Generator | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that PettingZoo expects of an env."""
        is_parallelizable = self.pool.played_by is PlayedBy.AGENTS
        return {
            "name": self.name,
            "render_modes": render_modes(self.rules, RENDER_MODES),
            "render_fps": 30,
            "is_parallelizable": is_parallelizable,
        }

    def players(self, word: str) -> list[str]:
        """The names of the players: `word` and a number."""
        return [f"{word}_{k}" for k in range(self.pool.num_players)]

    def reset(self, seed: int | None) -> Transition:
        """Begin a game. Without a seed it is a new game, drawn from a generator that the last seed determines."""
        if seed is not None or self._random is None:
            self._random, _ = seeding.np_random(seed)
        out = self.pool.reset(int(self._random.integers(2**62)) if seed is None else seed)
        self._print()
        return out

    def step(self, actions: list[Any]) -> Transition:
        """Take one step; a game that ends stays in its last state."""
        after, out = self.pool.simulate(self.pool.states(), np.array(actions, action_layout(self.rules)[1]))
        self.pool.restore({"states": after.view(np.uint8).reshape(1, -1), "tick": np.zeros(1, np.int64)})
        self._print()
        return out

    def check(self, agent: str, action: Any, space: Any) -> Any:
        """Return the action; raises InvalidAction if it is outside the action space."""
        if not space.contains(action):
            raise gymnasium.error.InvalidAction(f"{action!r} of {agent} is not in {space!r}")
        return action

    def check_reset(self, call: str) -> None:
        """Raise ResetNeeded if `reset` was not called before `call`."""
        if self._random is None:
            raise gymnasium.error.ResetNeeded(f"call reset() before {call}")

    def views(self) -> list[Any]:
        """What each player sees now, in Gymnasium's form."""
        seen = for_gymnasium(self.rules.observation_space, policy_part(self.pool.views()))
        return [row_of(seen, k) for k in range(self.pool.num_players)]

    def render(self) -> Any:
        """A picture for render_mode rgb_array, text for ansi, else None; with human, each step prints text."""
        self.check_reset("render()")
        if self.render_mode == "rgb_array":
            return self.rules.render(self.pool.record(0))
        return self.rules.ascii(self.pool.record(0)) if self.render_mode == "ansi" else None

    def _print(self) -> None:
        if self.render_mode == "human":
            print(self.rules.ascii(self.pool.record(0)))


def _one_each(agents: list[str], space: Any) -> dict[str, Any]:
    """A copy of the space for each agent, so that each can be seeded separately."""
    return {agent: copy.deepcopy(space) for agent in agents}


class WorldParallelEnv(ParallelEnv):
    """A native world whose agents act at once. Legal actions are in `infos[agent]["action_mask"]`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.metadata, self.render_mode = table.metadata, table.render_mode
        self.possible_agents = table.players("agent")
        self.agents: list[str] = []
        self.observation_spaces = _one_each(self.possible_agents, table.rules.observation_space)
        self.action_spaces = _one_each(self.possible_agents, table.rules.action_space)
        self._idle = np.zeros(action_layout(table.rules)[0], action_layout(table.rules)[1])

    def observation_space(self, agent: str) -> Any:
        """The observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The action space of an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode; `options` is ignored."""
        out = self._table.reset(seed)
        self.agents = [agent for k, agent in enumerate(self.possible_agents) if out.turn[k]]
        return self._observations(self.agents), self._infos(self.agents, out)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Take one step with the actions of all agents that are alive."""
        self._table.check_reset("step()")
        acting = self.agents
        if missing := [agent for agent in acting if agent not in actions]:
            raise gymnasium.error.InvalidAction(f"there is no action of {', '.join(missing)}; all in `agents` act")
        for agent in acting:
            self._table.check(agent, actions[agent], self.action_spaces[agent])
        out = self._table.step([actions[a] if a in acting else self._idle for a in self.possible_agents])
        number = self.possible_agents.index
        rewards = {agent: float(out.reward[number(agent)]) for agent in acting}
        terminations = {agent: bool(out.terminated[number(agent)]) for agent in acting}
        truncations = {agent: bool(out.truncated[number(agent)]) for agent in acting}
        self.agents = [agent for agent in acting if not terminations[agent] and not truncations[agent]]
        return self._observations(acting), rewards, terminations, truncations, self._infos(acting, out)

    def render(self) -> Any:
        """See `Table.render`."""
        return self._table.render()

    def close(self) -> None:
        """There is nothing to close."""

    def _observations(self, agents: list[str]) -> dict[str, Any]:
        views = self._table.views()
        return {agent: views[self.possible_agents.index(agent)] for agent in agents}

    def _infos(self, agents: list[str], out: Transition) -> dict[str, dict[str, Any]]:
        if not self._table.pool.mask_size:
            return {agent: {} for agent in agents}
        return {agent: {"action_mask": out.mask[self.possible_agents.index(agent)].astype(np.int8)} for agent in agents}


class WorldAECEnv(AECEnv):
    """A native world whose players take turns.

    If the world has an action mask, an observation is a Dict of `observation` and `action_mask`, and the mask is zero
    for seats that are not to move, as in PettingZoo's own games. The world's rules decide what an illegal move does.
    """

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self.metadata, self.render_mode = table.metadata, table.render_mode
        self.possible_agents = table.players("seat")
        self.agents: list[str] = []
        self.observation_spaces = _one_each(self.possible_agents, self._shown_space())
        self.action_spaces = _one_each(self.possible_agents, table.rules.action_space)
        self._mask = np.zeros(table.pool.mask_size, np.int8)

    def _shown_space(self) -> Any:
        space, size = self._table.rules.observation_space, self._table.pool.mask_size
        if not size:
            return space
        return spaces.Dict({"observation": space, "action_mask": spaces.Box(0, 1, (size,), np.int8)})

    def observation_space(self, agent: str) -> Any:
        """The observation space of a seat."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The action space of a seat."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a game; `options` is ignored."""
        out = self._table.reset(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._skip_agent_selection = None
        self._pass_turn(out)

    def step(self, action: Any) -> None:
        """Play the action of the seat to move. Once the game is over, each seat steps once with None and is removed."""
        self._table.check_reset("step()")
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        self._table.check(mover, action, self.action_spaces[mover])
        out = self._table.step([action])
        self._cumulative_rewards[mover] = 0.0
        self.rewards = {agent: float(out.reward[0, k]) for k, agent in enumerate(self.possible_agents)}
        self.terminations = dict.fromkeys(self.agents, bool(out.terminated[0]))
        self.truncations = dict.fromkeys(self.agents, bool(out.truncated[0]))
        self._accumulate_rewards()
        self._pass_turn(out)

    def observe(self, agent: str) -> Any:
        """The current observation of a seat, whether or not it is to move."""
        self._table.check_reset("observe()")
        seen = self._table.views()[self.possible_agents.index(agent)]
        if not self._table.pool.mask_size:
            return seen
        mask = self._mask if agent == self.agent_selection else np.zeros_like(self._mask)
        return {"observation": seen, "action_mask": mask.copy()}

    def render(self) -> Any:
        """See `Table.render`."""
        return self._table.render()

    def close(self) -> None:
        """There is nothing to close."""

    def _pass_turn(self, out: Transition) -> None:
        self.agent_selection = self.possible_agents[int(out.turn[0])]
        self._mask = out.mask[0].astype(np.int8)
