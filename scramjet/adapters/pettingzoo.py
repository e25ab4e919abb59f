"""PettingZoo's envs as pools: `pettingzoo:pursuit_v5`, agents that act at once as well as games played in turns.

All envs of a pool run in this process, one after the other. PettingZoo has no way to save an env's state, so a resumed
run begins fresh episodes, and says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces

from scramjet.adapters.foreign_pool import ForeignPool
from scramjet.adapters.gymnasium.registered_envs import require_extra
from scramjet.adapters.info import numbers_in
from scramjet.adapters.spaces import env_action_of, num_choices, observation_writer
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy, allocate_obs
from scramjet.engine.pool import check_count
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves
from scramjet.errors import ScramjetError, WorldError, did_you_mean

MakeEnv = Callable[[], Any]


def import_pettingzoo() -> ModuleType:
    """The package; a WorldError that says how to install it where it is missing."""
    return require_extra("pettingzoo", "pettingzoo", "PettingZoo")


class PettingZooPool(ForeignPool):
    """What pools of both kinds of PettingZoo's envs share: one space for all agents, and what each of them sees."""

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int, played_by: PlayedBy, kind: str) -> None:
        check_count("num_envs", num_envs)
        self.envs = [make_env() for _ in range(num_envs)]
        for env in self.envs:
            _check_kind(name, env, kind)
        self.agents, observed, action_space = _shared_spaces(name, self.envs)
        self._number = {agent: k for k, agent in enumerate(self.agents)}
        size = num_choices(action_space)
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


def listed(agents: Any) -> str:
    """The names of agents, in order."""
    return ", ".join(sorted(str(agent) for agent in agents))


# --- envs in which agents act at once: each agent is a row


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


# --- games that are played in turns: each player is a seat


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


# --- the games that PettingZoo ships: where they are, what they need, and pools of them by name


GAMES = {  # where games are, and what to install for those there
    "pettingzoo.sisl": "pettingzoo[sisl]",
    "pettingzoo.classic": "pettingzoo[classic]",
    "pettingzoo.butterfly": "pettingzoo[butterfly]",
    "pettingzoo.atari": "pettingzoo[atari]",
    "pettingzoo.mpe": "pettingzoo[mpe]",  # of old; now in a package of its own
    "mpe2": "mpe2",
}


def make_pettingzoo_pool(name: str, module_name: str, num_envs: int, **parameters: Any) -> ForeignPool:
    """A pool of a game that PettingZoo ships, by its module's name: `pursuit_v5`, `connect_four_v3`.

    Agents that can act at once do so; what is played in turns only has seats.
    """
    make_env, is_parallel = game_maker(module_name, parameters)
    return (ParallelPool if is_parallel else AECPool)(name, make_env, num_envs)


def game_maker(module_name: str, parameters: dict[str, Any]) -> tuple[Callable[[], Any], bool]:
    """The function that makes one env of a game, and whether its agents act at once."""
    where = _find_game(module_name)
    with _dependencies_told(f"{where}.{module_name}", GAMES[where]), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo 1.27 wants its registry used; older have none
        module = importlib.import_module(f"{where}.{module_name}")
    is_parallel = hasattr(module, "parallel_env")
    build = module.parallel_env if is_parallel else module.env

    def make_env() -> Any:
        with _dependencies_told(f"{where}.{module_name}", GAMES[where]):
            try:
                return build(**parameters)
            except TypeError as error:
                raise WorldError(f"{module_name} cannot be made with {parameters}: {error}") from error

    return make_env, is_parallel


def _find_game(module_name: str) -> str:
    """The package that a game is in."""
    import_pettingzoo()
    known = {game: where for where in GAMES for game in _games_in(where)}
    if module_name in known:
        return known[module_name]
    near = did_you_mean(module_name, known) or f" There are {', '.join(sorted(known))}."
    more = "" if _games_in("mpe2") else " MPE's (simple_...) are in a package of their own: pip install mpe2"
    raise WorldError(f"PettingZoo has no game '{module_name}' here.{near}{more}")


def _games_in(where: str) -> list[str]:
    """The games of one package, none of them imported; an empty list where it is not installed."""
    try:
        found = importlib.util.find_spec(where)
    except ModuleNotFoundError:  # of a parent
        return []
    folders = found.submodule_search_locations if found is not None else None
    return [module.name for module in pkgutil.iter_modules(folders or []) if re.search(r"_v\d+$", module.name)]


@contextmanager
def _dependencies_told(game: str, install: str) -> Iterator[None]:
    """Turn a missing dependency of a game into a WorldError that says what to install."""
    try:
        yield
    except ImportError as error:  # Gymnasium's and PettingZoo's own errors for this are of another kind
        raise WorldError(f"{game} cannot be imported ({error}): pip install '{install}'") from error
    except Exception as error:
        if type(error).__name__ not in ("DependencyNotInstalled", "FailedToImport"):
            raise
        raise WorldError(f"{game} cannot be imported ({error}): pip install '{install}'") from error


# --- games that are drawn while they are played


def rendered_pool(name: str, module_name: str, num_envs: int, parameters: dict[str, Any]) -> ForeignPool:
    """A pool of a game with `drawings` (see `_Drawn`)."""
    make_env, is_parallel = game_maker(module_name, {**parameters, "render_mode": "rgb_array"})
    kind = type("_DrawnPool", (_Drawn, ParallelPool if is_parallel else AECPool), {})
    pool: ForeignPool = kind(name, make_env, num_envs)
    return pool


class _Drawn:
    """For pools of both kinds: `drawings[i]` has one of each position of env i since it was emptied; a step that ends
    a game adds two."""

    name: str
    envs: list[Any]

    def __init__(self, name: str, make_env: MakeEnv, num_envs: int) -> None:
        self.drawings: list[list[np.ndarray]] = [[] for _ in range(num_envs)]
        super().__init__(name, make_env, num_envs)  # type: ignore[call-arg]

    def _begin(self, i: int, out: Transition, seed: int | None = None) -> None:
        if seed is None:  # a game has just ended
            self._draw(i)
        super()._begin(i, out, seed)  # type: ignore[misc]
        self._draw(i)

    def _step_env(self, i: int, actions: np.ndarray, out: Transition) -> None:
        before = len(self.drawings[i])
        super()._step_env(i, actions, out)  # type: ignore[misc]
        if len(self.drawings[i]) == before:
            self._draw(i)

    def _draw(self, i: int) -> None:
        try:
            drawn = self.envs[i].render()
        except Exception as error:  # a package or a display that drawing needs is not there
            raise WorldError(f"{self.name} cannot be drawn: {type(error).__name__}: {error}") from error
        if not isinstance(drawn, np.ndarray):
            raise WorldError(f"{self.name} draws no pictures: render() gave {type(drawn).__name__}; go without a video")
        self.drawings[i].append(drawn)
