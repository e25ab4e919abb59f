"""`scramjet play`: a person at the board, against a trained agent, a scripted player or another person."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from dataclasses import dataclass, replace

from rich.console import Console

from scramjet.arena.game import PERSON, Game, Table
from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.arena.network_players import Temperature, load_player, network_player
from scramjet.arena.play.dialogue import Dialogue
from scramjet.arena.play.thoughts import Adviser, reward_scale
from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.commands.arguments.play import Arguments
from scramjet.commands.arguments.search import path_and_search
from scramjet.engine.layout import num_players
from scramjet.envs.api import Env
from scramjet.envs.registry import is_registered, split_file
from scramjet.errors import ConfigError, printable
from scramjet.players.player import Player
from scramjet.runs.metadata import run_of
from scramjet.runs.world_trust import name_of
from scramjet.search.specs import parse_search
from scramjet.telemetry.readable import short_path
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import MAX_SEED, RunConfig
from scramjet.training.playing import load_trained, note_on_played, search_settings


@dataclass(frozen=True)
class Opponents:
    """The world that is played, the network that advises, and who plays against the person."""

    config: RunConfig
    adviser: Adviser | None
    opponent: Player | None  # None: another person


def play_command(arguments: Arguments, env_values: dict[str, str]) -> int:
    """Run `scramjet play ...`; returns the exit code."""
    path, search = path_and_search(arguments.path, arguments.search, arguments.runs_dir)
    arguments = replace(arguments, path=path, search=search)
    if arguments.seed is not None and not 0 <= arguments.seed <= MAX_SEED:
        raise ConfigError(f"--seed {arguments.seed} must be from 0 to 2**62 - 1")
    found = (_of_world if _names_world(arguments.path) else _of_run)(arguments, env_values)
    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    pool = make_pool(found.config, num_envs=1)
    with contextlib.closing(pool):
        game = Game(pool, found.adviser)
        console = Console(no_color=True if not arguments.color else None, highlight=False)
        Dialogue(game, Table(found.opponent, arguments.seat), console, input, seed).run()
    return 0


def _names_world(text: str) -> bool:
    """Whether a text names a world rather than a run: a known name, a file, or a module and a class."""
    return is_registered(text) or bool(split_file(text)[0]) or (":" in text and not os.path.exists(text))


def _of_world(arguments: Arguments, env_values: dict[str, str]) -> Opponents:
    """A world without a run: somebody must be named to play against."""
    if arguments.env is not None:
        raise ConfigError(
            f"--env {arguments.env} is for a run whose world has moved; {arguments.path} is a world itself"
        )
    if parse_search(arguments.search) is not None:
        raise ConfigError(
            f"--search {arguments.search} looks ahead with a network, and {arguments.path} is a world; give a RUN, or "
            f"--against RUN@{arguments.search}"
        )
    name = name_of(arguments.path)
    config = _seated(RunConfig(env=name, env_parameters=typed_parameters(name, env_values)), arguments)
    if arguments.against is None and _is_for_several(config):
        raise ConfigError(
            f"{arguments.path} is a world: say who plays against you, --against random, greedy, minimax:3, a run, or "
            f"person for two people"
        )
    return Opponents(config, None, _opponent(arguments.against or PERSON, config, arguments))


def _of_run(arguments: Arguments, env_values: dict[str, str]) -> Opponents:
    """A run: it advises, and plays unless somebody else is named."""
    policy, config, checkpoint = load_trained(
        arguments.path,
        runs_dir=arguments.runs_dir,
        env=arguments.env,
        choose_parameters=(lambda name: typed_parameters(name, env_values)) if env_values else None,
        trust=arguments.trust,
    )
    if not env_values and (note := note_on_played(config, checkpoint)):
        print(printable(note), file=sys.stderr, flush=True)
    config, _ = from_the_start(_seated(config, arguments), env_values)
    name = run_of(checkpoint).name
    print(f"{printable(name)}: trained for {checkpoint.step:,} steps, from {printable(short_path(checkpoint.path))}")
    adviser = Adviser(policy, name, reward_scale(checkpoint))
    search = search_settings(arguments.search, policy, config, checkpoint)
    if arguments.against is not None:
        if search is not None:
            raise ConfigError(
                f"--search {search.spec.text} is for the run, and {arguments.against} plays in its place; leave out "
                f"one of them, or search with another run: --against RUN@{search.spec.text}"
            )
        return Opponents(config, adviser, _opponent(arguments.against, config, arguments))
    return Opponents(config, adviser, network_player(policy, name, search, Temperature(arguments.temperature)))


def _seated(config: RunConfig, arguments: Arguments) -> RunConfig:
    """The config with a seat for each player; a world for one stays so where nobody is named to play against."""
    try:
        return for_several(config)[0]
    except ConfigError:
        if arguments.against is not None:
            raise
        return config


def _is_for_several(config: RunConfig) -> bool:
    world = config.make_env()
    return not isinstance(world, Env) or num_players(world) > 1


def _opponent(spec: str, config: RunConfig, arguments: Arguments) -> Player | None:
    if spec == PERSON:
        return None
    return load_player(spec, config, temperature=Temperature(arguments.temperature), runs_dir=arguments.runs_dir)
