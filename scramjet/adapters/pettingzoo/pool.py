"""What the pools of both kinds of PettingZoo's envs share (see `parallel` and `turns`).

All envs of a pool run in this process, one after the other. PettingZoo has no way to save an env's state, so a resumed
run begins fresh episodes, and says so.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.spaces import env_action_of, observation_writer
from scramjet.engine.layout import PlayedBy, allocate_obs
from scramjet.engine.pool import check_count
from scramjet.engine.trees import leaves, map_leaves
from scramjet.errors import ScramjetError, WorldError

MakeEnv = Callable[[], Any]


def import_pettingzoo() -> ModuleType:
    """The package; a WorldError that says how to install it where it is missing."""
    try:
        return importlib.import_module("pettingzoo")
    except ImportError as error:
        raise WorldError(f"PettingZoo is not installed ({error}): pip install 'scramjet[pettingzoo]'") from error


class PettingZooPool(ForeignPool):
    """What pools of both kinds of PettingZoo's envs share: one space for all agents, and what each of them sees."""

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int, played_by: PlayedBy, kind: str) -> None:
        check_count("num_envs", num_envs)
        self.envs = [make_env() for _ in range(num_envs)]
        for env in self.envs:
            _check_kind(name, env, kind)
        self.agents, observed, action_space = _shared_spaces(name, self.envs)
        self._number = {agent: k for k, agent in enumerate(self.agents)}
        size = _num_choices(action_space)
        self._mask_is_seen = bool(size) and isinstance(observed, spaces.Dict) and "action_mask" in observed.spaces
        rest, self._is_bare = _without_mask(observed) if self._mask_is_seen else (observed, False)
        has_mask = self._mask_is_seen or (bool(size) and self._tells_mask(name))
        super().__init__(
            name, rest, action_space, num_envs,
            mask_size=size if has_mask else 0, played_by=played_by, num_players=len(self.agents),
        )  # fmt: skip
        self.draws_every_step = getattr(self.envs[0], "render_mode", None) == "human"
        self._to_action = env_action_of(action_space)
        self._views = allocate_obs(self.observation_space, num_envs * self.num_players)  # what each player saw last
        self._write = observation_writer(rest, leaves(self._views))

    @abstractmethod
    def _infos_at_start(self) -> Mapping[Any, Any]:
        """Reset the first env and return the `info` of each agent."""

    def _tells_mask(self, name: str) -> bool:
        """Whether masks come in `info`; seen in a first episode, which is not played."""
        self.name = name
        return any("action_mask" in info for info in self._infos_at_start().values())

    def views(self) -> Any:
        return map_leaves(np.copy, self._views)

    def close(self) -> None:
        """Close the envs."""
        for env in self.envs:
            env.close()

    def _see(self, place: int, agent: Any, obs: Any) -> None:
        """Keep what an agent sees, at its place among all players."""
        try:
            self._write(obs["observation"] if self._is_bare else obs, place)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise WorldError(
                f"{self.name}: an observation of {agent} does not fit its space {self.their_observation_space}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _mask_of(self, agent: Any, obs: Any, info: Mapping[str, Any]) -> Any:
        """The legal actions of an agent [mask_size]; all of them where nothing is said."""
        mask = obs["action_mask"] if self._mask_is_seen else info.get("action_mask")
        if mask is None:
            return True
        mask = np.concatenate([np.ravel(part) for part in mask]) if isinstance(mask, tuple | list) else np.asarray(mask)
        if mask.shape != (self.mask_size,):
            raise WorldError(
                f"{self.name}: the action mask of {agent} has the shape {list(mask.shape)}; its actions "
                f"{self.their_action_space} need [{self.mask_size}]"
            )
        return mask.astype(np.bool_)

    def _gain(self, agent: Any, reward: Any) -> float:
        try:
            return float(reward)
        except (TypeError, ValueError) as error:
            raise WorldError(f"{self.name}: the reward of {agent} is {reward!r}; give a number") from error

    def _check_anyone(self, i: int, env: Any) -> None:
        if not env.agents:
            raise WorldError(f"{self.name}: env {i} has no agents after reset(); an episode needs someone to play it")

    @contextmanager
    def _told(self, i: int, call: str) -> Iterator[None]:
        """Turn what env i raises in a call into a WorldError that names both."""
        try:
            yield
        except ScramjetError:
            raise
        except Exception as error:
            raise WorldError(f"{self.name}: env {i} raised {type(error).__name__} in {call}: {error}") from error


def _check_kind(name: str, env: Any, kind: str) -> None:
    pettingzoo = import_pettingzoo()
    if isinstance(env, getattr(pettingzoo, kind)):
        return
    other = "AECEnv" if kind == "ParallelEnv" else "ParallelEnv"
    if isinstance(env, getattr(pettingzoo, other)):
        raise WorldError(
            f"{name} is a PettingZoo {other}: use {'AECPool' if other == 'AECEnv' else 'ParallelPool'}, or convert it "
            f"with pettingzoo.utils.{'aec_to_parallel' if other == 'AECEnv' else 'parallel_to_aec'}"
        )
    raise WorldError(f"{name}: make_env gave a {type(env).__name__}; a PettingZoo {kind} is needed")


def _shared_spaces(name: str, envs: list[Any]) -> tuple[list[Any], Any, Any]:
    """The agents of all envs, and the one observation space and action space that all of them have."""
    agents = list(getattr(envs[0], "possible_agents", None) or [])
    if not agents:
        raise WorldError(f"{name} has no possible_agents: scramjet must know in advance who may play; list them there")
    for env in envs[1:]:
        if list(env.possible_agents) != agents:
            raise WorldError(
                f"{name}: make_env gives envs with different agents: {listed(agents)} and "
                f"{listed(env.possible_agents)}; a pool needs them equal"
            )
    found = []
    for what in ("observation_space", "action_space"):
        of_all = {(i, agent): getattr(env, what)(agent) for i, env in enumerate(envs) for agent in agents}
        first = of_all[0, agents[0]]
        for (i, agent), space in of_all.items():
            if space != first:
                who = f"{agents[0]} has {first} and {agent} has {space}"
                raise WorldError(
                    f"{name}: all agents must have one {what}, but {who}{f' (in env {i})' if i else ''}; pad them to "
                    f"one size (as SuperSuit's pad_observations_v0 and pad_action_space_v0 do), or give every kind of "
                    f"agent an env of its own"
                )
        found.append(first)
    return agents, found[0], found[1]


def _without_mask(space: spaces.Dict) -> tuple[Any, bool]:
    """What is observed beside the mask, and whether that is the one entry of Dict(observation, action_mask)."""
    rest = {key: part for key, part in space.spaces.items() if key != "action_mask"}
    is_bare = list(rest) == ["observation"]
    return (rest["observation"] if is_bare else spaces.Dict(rest)), is_bare


def _num_choices(space: Any) -> int:
    """Entries of a mask of actions; 0 for actions that are not masked."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(np.sum(space.nvec)) if isinstance(space, spaces.MultiDiscrete) else 0


def listed(agents: Any) -> str:
    """The names of agents, in order."""
    return ", ".join(sorted(str(agent) for agent in agents))
