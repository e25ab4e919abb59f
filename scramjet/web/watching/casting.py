"""Who plays what: makes of a page's request the performance that it asks for, and the facts that the page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from scramjet.arena.head_to_head import OPENING, for_several, from_the_start
from scramjet.arena.network_players import Temperature, load_player, network_player
from scramjet.engine.layout import PlayedBy, num_players, played_by
from scramjet.envs.api import Env
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.errors import ConfigError, ScramjetError, shortened
from scramjet.players.scripted import PERFECT, runs_code
from scramjet.runs.world_files import is_same_world
from scramjet.search.requirements import check_searchable
from scramjet.search.specs import SearchSpec, parse_search, split_player
from scramjet.settings import coerce
from scramjet.training.config.run_config import RunConfig
from scramjet.training.playing import search_settings
from scramjet.web.context import LATEST, Agent, Agents
from scramjet.web.watching.performance import Performance, Performer, Scene

MOST_SEED = 2**53 - 1
"""The largest whole number that a browser reads exactly."""
MOST_SIMULATIONS = 1600
"""Positions that a search may try before each action: more would keep a core busy for seconds."""
DEEPEST = 4
"""Moves that minimax may look ahead here."""
SCRIPTED = ("random", "greedy", "minimax:2")
"""Players that the page offers against any game."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What a visitor asks to see."""

    run: str
    checkpoint: str = LATEST
    against: str | None = None
    """Who has the other seats: random, greedy, minimax:N, perfect, another RUN or RUN/CHECKPOINT; None: itself."""
    seed: int | None = None
    """Of the first episode; None: the run's own, as in an evaluation."""
    samples: bool | None = None
    """Draw actions as in training; None: as the run is evaluated."""
    search: str | None = None
    """Choose actions by search: "alphazero:64", "spo:16x4"; None: by the network alone."""

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> WatchRequest:
        """The request in a message; a ConfigError names what is wrong in it."""
        kinds = {"run": str, "checkpoint": str, "against": str | None, "seed": int | None, "samples": bool | None}
        known = {each.name: kinds.get(each.name, str | None) for each in fields(cls)}
        if not isinstance(message.get("run"), str):
            raise ConfigError("a message to start must name its run")
        given = {name: coerce(name, message[name], kind) for name, kind in known.items() if name in message}
        return cls(**{name: value for name, value in given.items() if name == "run" or value not in (None, "")})


@dataclass(frozen=True, slots=True)
class Cast:
    """A performance that is ready to begin, and what the page shows beside it."""

    performance: Performance
    seed: int
    facts: dict[str, Any]


def checked_seed(seed: int) -> int:
    """The seed of an episode, if a browser can name it."""
    if not 0 <= seed <= MOST_SEED:
        raise ConfigError(f"seed={seed} must be from 0 to {MOST_SEED}")
    return seed


def make_cast(agents: Agents, request: WatchRequest) -> Cast:
    """Load what a request names, and make the env that it plays in; compiles the world where it must."""
    agent = agents.load(request.run, request.checkpoint)
    seed = checked_seed(agent.config.seed % (MOST_SEED + 1) if request.seed is None else request.seed)
    samples = agent.config.eval.samples if request.samples is None else request.samples
    config, notes = agent.config, [agent.note]
    if request.against is not None:
        config, note = for_several(config)
        config, _ = from_the_start(config, ())
        notes.append(note)
    elif plies := config.env_parameters.get(OPENING, 0):
        notes.append(
            f"games begin after 0 to {plies} random moves, as in training; against another player, at the start"
        )
    performer = _performer(agent, config, request.search, samples=samples)
    opponent = None if request.against is None else _opponent(agents, request.against, config, samples=samples)
    scene = Scene(config)
    performance = Performance(scene, performer, opponent)
    facts = {
        "run": agent.run,
        "checkpoint": agent.checkpoint_name,
        "checkpoint_step": agent.checkpoint.step,
        "env": agent.config.env,
        "world": scene.pool.name,
        "by_turns": scene.pool.played_by is PlayedBy.SEATS,
        "num_players": scene.pool.num_players,
        "actions": performance.actions.as_dict(),
        "samples": samples,
        "search": request.search,
        "searches": _searches(agent),
        "opponents": _opponents(agent.config),
        "against": request.against,
        "speed": scene.frames_per_second,
        "notes": [note for note in notes if note],
    }
    return Cast(performance, seed, facts)


def _performer(agent: Agent, config: RunConfig, search: str | None, *, samples: bool) -> Performer:
    """The player of an agent, with its thoughts."""
    spec = parse_search(search)
    _check_size(spec)
    settings = search_settings(spec, agent.policy, config, agent.checkpoint)
    player = network_player(agent.policy, agent.name, settings, Temperature(float(samples)))
    return Performer(player, agent.reward_scale)


def _check_size(spec: SearchSpec | None) -> None:
    if spec is not None and spec.sizes[0] * (spec.sizes[1] if len(spec.sizes) > 1 else 1) > MOST_SIMULATIONS:
        raise ConfigError(f"search={spec.text} is too much to watch; try at most {MOST_SIMULATIONS:,} positions")


def _opponent(agents: Agents, against: str, config: RunConfig, *, samples: bool) -> Performer:
    """Who plays the other seats. Only names of players and runs count: a page names no code that would run."""
    name, spec = split_player(against)
    family, _, depth = name.partition(":")
    if name in (PERFECT, "random", "greedy") or family == "minimax":
        if family == "minimax" and depth.isdecimal() and int(depth[:9]) > DEEPEST:
            raise ConfigError(f"{name} looks too far ahead to watch; try minimax:{DEEPEST} or less")
        return Performer(load_player(against, config))
    if runs_code(name):
        raise ConfigError(f"against={shortened(against)} would run code; name {', '.join(SCRIPTED)} or a run")
    run, _, checkpoint = name.partition("/")
    other = agents.load(run, checkpoint or LATEST)
    if not is_same_world(other.config.env, config.env):
        raise ConfigError(f"run {run!r} was trained on {other.config.env}, and this game is {config.env}")
    return _performer(other, config, None if spec is None else spec.text, samples=samples)


def _searches(agent: Agent) -> bool:
    """Whether the agent's world can be searched, so that the page offers it."""
    if agent.config.frame_stack > 1:
        return False
    try:
        check_searchable(agent.config.make_env(), agent.policy, "alphazero")
    except ScramjetError:
        return False
    return True


def _opponents(config: RunConfig) -> list[str]:
    """Players by name that can be met in the config's world; empty where it is for one alone."""
    try:
        world = for_several(config)[0].make_env()
    except ConfigError:
        return []
    if not isinstance(world, Env) or num_players(world) < 2:
        return []
    if played_by(world) is PlayedBy.AGENTS or world.hidden:  # who looks ahead would look at hidden cards
        return ["random"]
    return [*SCRIPTED, PERFECT] if _is_solved(world) else list(SCRIPTED)


def _is_solved(world: Env) -> bool:
    """Whether perfect play is known: Connect Four of the usual size."""
    return isinstance(world, ConnectFour) and (world.rows, world.cols, world.connect) == (6, 7, 4)
