"""Sets a game up as a page asks for: the request, checked; the world; the network that advises; and the opponent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from scramjet.arena.game import PERSON, Game
from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.arena.network_players import NetworkPlayer, SearchPlayer, Temperature, load_player
from scramjet.arena.play.screen import title_of
from scramjet.arena.play.thoughts import Adviser
from scramjet.engine.actions import says_where_actions_lie
from scramjet.engine.layout import PlayedBy, has_seat_rule, num_players
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import policy_space
from scramjet.engine.transition import Transition
from scramjet.envs.api import Box, Discrete, Env
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.registry import is_registered
from scramjet.errors import ConfigError, shortened
from scramjet.players.player import Player
from scramjet.players.scripted import PERFECT
from scramjet.policies.policy import Policy
from scramjet.search.rows import SearchSettings
from scramjet.settings import coerce
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import MAX_SEED, RunConfig
from scramjet.training.playing import search_settings
from scramjet.web.context import LATEST, Agent, Agents, checkpoint_names
from scramjet.web.playing.steering import SteeredGame

# --- the request

RUN = "run"
"""The opponent that is the run's own checkpoint."""
STRENGTHS = (0, 8, 16, 32, 64, 128, 256)
"""Simulations of a search that a page can choose; 0: the network alone."""
MOST_AHEAD = 6
"""Moves that minimax looks ahead at most: more take minutes."""

_MINIMAX = re.compile(r"minimax:([1-9])")


@dataclass(frozen=True, slots=True)
class PlayRequest:
    """Who plays what. A run's checkpoint gives the world and advises; without a run, `world` names a built-in one."""

    run: str | None = None
    checkpoint: str = LATEST
    world: str | None = None
    opponent: str | None = None
    """`run`, `random`, `greedy`, `minimax:N`, `perfect` or `person`; None: the run, or greedy without one."""
    seat: str = "first"
    """The person's: `first`, `second` or `random`."""
    temperature: float = 0.0
    simulations: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        if (self.run is None) == (self.world is None):
            raise ConfigError("name a run or a world to play")
        check_strength(self.simulations)
        if self.seed is not None and not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"seed={self.seed} must be from 0 to 2**62 - 1")
        known = (RUN, "random", "greedy", PERFECT, PERSON)
        if self.opponent is not None and self.opponent not in known and not _is_minimax(self.opponent):
            raise ConfigError(
                f"opponent={shortened(self.opponent)} cannot be chosen in the page: give {', '.join(known)}, or "
                f"minimax:1 to minimax:{MOST_AHEAD}"
            )

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> PlayRequest:
        """The request in a message of a page; a ConfigError says what is wrong with it."""
        kinds = {
            "run": str | None, "checkpoint": str, "world": str | None, "opponent": str | None, "seat": str,
            "temperature": float, "simulations": int, "seed": int | None,
        }  # fmt: skip
        given = {name: message[name] for name in kinds if message.get(name) is not None}
        assert set(kinds) == {field.name for field in fields(cls)}
        return cls(**{name: coerce(name, value, kinds[name]) for name, value in given.items()})


def check_strength(simulations: int) -> None:
    """Refuse a number of simulations that no page offers."""
    if simulations not in STRENGTHS:
        raise ConfigError(f"simulations={simulations} must be one of {', '.join(map(str, STRENGTHS))}")


def _is_minimax(opponent: str) -> bool:
    found = _MINIMAX.fullmatch(opponent)
    return found is not None and int(found[1]) <= MOST_AHEAD


# --- the opponent


class AdjustablePlayer(NetworkPlayer):
    """Plays a policy by a search of `simulations`, which may change between moves; 0: by the policy alone.

    `settings` makes the search of a number of simulations. What it remembers is what the policy remembers, and a
    policy with memory cannot search.
    """

    def __init__(
        self, policy: Policy, name: str, temperature: Temperature, settings: Callable[[int], SearchSettings]
    ) -> None:
        super().__init__(policy, name, temperature)
        self.simulations = 0
        self._settings = settings
        self._searchers: dict[int, SearchPlayer] = {}

    def begin(self, pool: Pool) -> None:
        super().begin(pool)
        self._pool = pool
        for searcher in self._searchers.values():
            searcher.begin(pool)

    def choose(self, seen: Transition, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        if self.simulations == 0:
            return super().choose(seen, rows, generator)
        if self.simulations not in self._searchers:
            search = self._settings(self.simulations)
            self._searchers[self.simulations] = SearchPlayer(self.policy, self.name, search, self.temperature)
            self._searchers[self.simulations].begin(self._pool)
        return self._searchers[self.simulations].choose(seen, rows, generator)


# --- the setting

IDLE_NAMES = ("none", "nothing", "wait", "stay", "idle", "no-op", "noop")
"""Names of actions that are taken where a world goes on and nobody presses a key."""
MOST_NAMED = 1000
"""Moves whose names a page is told at the beginning."""


@dataclass
class Setting:
    """A game that is ready to begin, and what a page should know of it."""

    request: PlayRequest
    game: Game | SteeredGame
    opponent: Player | None
    """None: people play in all places."""
    facts: dict[str, Any]
    """For JSON."""


def make_setting(agents: Agents, request: PlayRequest) -> Setting:
    """Load what a page asks for; raises a ScramjetError for the person at the page."""
    agent = None if request.run is None else agents.load(request.run, request.checkpoint)
    config = _for_people(_of_world(request.world or "") if agent is None else agent.config)
    adviser = None if agent is None else Adviser(agent.policy, agent.run, agent.reward_scale)
    world = config.make_env()
    search = _Search(agent, config)
    opponents = _opponents(agent, world) if isinstance(world, Env) and num_players(world) > 1 else []
    name = _chosen(request.opponent, opponents) if opponents else PERSON
    opponent = _opponent(name, config, search, Temperature(request.temperature))
    pool = make_pool(config, num_envs=1, num_threads=1)
    try:
        game = SteeredGame(pool, adviser) if isinstance(pool.action_space, Box) else Game(pool, adviser)
    except ConfigError:
        pool.close()
        raise
    facts = {
        "run": request.run,
        "checkpoint": None if agent is None else agent.checkpoint_name,
        "checkpoints": [] if agent is None else checkpoint_names(agents.runs_dir, agent.run),
        "adviser": None if agent is None else agent.name,
        "opponent": name if opponents else None,
        "opponents": opponents,
        "seat": request.seat,
        "temperature": request.temperature,
        "search": search.facts(opponent),
        "note": "" if agent is None else agent.note,
        **_facts_of_game(game, pool),
    }
    return Setting(request, game, opponent, facts)


def _of_world(name: str) -> RunConfig:
    """A config of a world without a run: only of those that come with scramjet, as a page may run no other code."""
    if not is_registered(name):
        raise ConfigError(
            f"there is no built-in world {shortened(name)}; a world in a file of your own is played with a run of it"
        )
    return RunConfig(env=name)


def _for_people(config: RunConfig) -> RunConfig:
    """The config with a seat for each player, and games that begin at the beginning."""
    try:
        config, _ = for_several(config)
    except ConfigError:  # a world for one
        return config
    return from_the_start(config, ())[0]


class _Search:
    """How a run's network looks ahead, or why it cannot."""

    def __init__(self, agent: Agent | None, config: RunConfig) -> None:
        self.agent, self._config = agent, config
        self.reason = "" if agent is not None else "only a run's network searches"
        if agent is not None:
            try:
                self.settings(STRENGTHS[1])
            except ConfigError as error:
                self.reason = str(error)

    def settings(self, simulations: int) -> SearchSettings:
        """The search of a number of simulations."""
        assert self.agent is not None
        text = f"alphazero:{simulations}"
        found = search_settings(text, self.agent.policy, self._config, self.agent.checkpoint)
        assert found is not None
        return found

    def facts(self, opponent: Player | None) -> dict[str, Any]:
        """For JSON: the strengths that can be chosen; none, and the reason, where this opponent does not search."""
        can_search = isinstance(opponent, AdjustablePlayer) and not self.reason
        return {"strengths": list(STRENGTHS) if can_search else [], "reason": self.reason}


def _opponent(name: str, config: RunConfig, search: _Search, temperature: Temperature) -> Player | None:
    if name == PERSON:
        return None
    if name != RUN:
        return load_player(name, config, temperature=temperature)
    assert search.agent is not None, "only games of a run offer it as an opponent"
    return AdjustablePlayer(search.agent.policy, search.agent.run, temperature, search.settings)


def _opponents(agent: Agent | None, world: Env) -> list[str]:
    """Who can be chosen, the usual one first.

    Where cards are hidden, nobody who looks ahead with them open, and no second person at the same screen.
    """
    own = [] if agent is None else [RUN]
    looks_ahead = has_seat_rule(world) and not world.hidden and isinstance(world.action_space, Discrete)
    if not looks_ahead:
        return [*own, "random", *([PERSON] if has_seat_rule(world) and not world.hidden else [])]
    is_solved = isinstance(world, ConnectFour) and (world.rows, world.cols, world.connect) == (6, 7, 4)
    ahead = [f"minimax:{depth}" for depth in range(2, MOST_AHEAD + 1, 2)]
    return [*own, "greedy", "random", *ahead, *([PERFECT] if is_solved else []), PERSON]


def _chosen(name: str | None, opponents: list[str]) -> str:
    """The opponent that a page asks for, or the usual one; refuses one that this world does not have."""
    if name is None:
        return opponents[0]
    if name not in opponents and not (name.startswith("minimax:") and "minimax:2" in opponents):
        raise ConfigError(f"opponent={name} cannot be chosen in this game: give {', '.join(opponents)}")
    return name


def _facts_of_game(game: Game | SteeredGame, pool: Pool) -> dict[str, Any]:
    """What a page should know of the world to show it and to take moves."""
    moves = game.moves if isinstance(game, Game) else None
    names = [] if moves is None or len(moves) > MOST_NAMED else moves.names
    return {
        "title": title_of(game) if isinstance(game, Game) else pool.name,
        "num_players": pool.num_players,
        "takes_turns": pool.played_by is PlayedBy.SEATS,
        "moves": names,
        "idle": next((number for number, name in enumerate(names) if name.lower() in IDLE_NAMES), None),
        "is_clickable": says_where_actions_lie(game.env),
        "has_verdicts": isinstance(game.env, ConnectFour) and game.env.connect == 4,
        "bounds": None if isinstance(game, Game) else _bounds(game),
        "is_real_time": _goes_on_by_itself(pool),
    }


def _bounds(game: SteeredGame) -> list[list[float]]:
    return [[float(low), float(high)] for low, high in zip(game.low.ravel(), game.high.ravel(), strict=True)]


def _goes_on_by_itself(pool: Pool) -> bool:
    """Whether a world is rather a thing to balance than a puzzle: one player, who sees a row of real numbers."""
    space = policy_space(pool.observation_space)
    is_vector = isinstance(space, Box) and len(space.shape) == 1 and space.dtype.kind == "f"
    return is_vector and pool.played_by is PlayedBy.ONE
