"""Gets a tournament ready: its world, its players, its plan and its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scramjet.adapters.registry import is_foreign
from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.arena.player_names import split_search
from scramjet.arena.players import Temperature, load_player
from scramjet.arena.tournaments.entrants import Entrant
from scramjet.arena.tournaments.log import TournamentLog, header_hash
from scramjet.arena.tournaments.tournament import GAMES_PER_BATCH, Plan, Style, Tournament, make_plan
from scramjet.errors import ConfigError
from scramjet.players.player import Player
from scramjet.training.components import make_pool
from scramjet.training.config.files import starting_config
from scramjet.training.config.run_config import MAX_SEED, RunConfig
from scramjet.training.evaluation.evaluator import MAX_FOREIGN_ENVS
from scramjet.training.playing import load_trained
from scramjet.training.worlds.trust import name_of

ChooseParameters = Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TournamentSettings:
    """How a tournament is played; None leaves a choice to the number of players."""

    temperature: Temperature
    """How networks draw their moves."""
    style: Style | None = None
    num_rounds: int | None = None
    games: int = 100
    """Games of each matchup; rounded up so that everybody has every seat equally often."""
    seed: int = 0
    max_steps: int | None = None
    """Steps after which a game is cut."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"seed={self.seed} must be from 0 to 2**62 - 1")
        if self.max_steps is not None and self.max_steps < 1:
            raise ConfigError(f"max_steps={self.max_steps} must be at least 1")


def tournament_world(
    entrants: Sequence[Entrant], *, env: str | None, choose_parameters: ChooseParameters | None, trust: bool
) -> tuple[RunConfig, str]:
    """The config whose world all entrants play, and one line on what was changed in it for the games, or "".

    It is that of the first checkpoint; without checkpoints, the world `env` with its preset. `env`, parameters and
    `trust` are as for `load_trained`.
    """
    trained = next((entrant for entrant in entrants if entrant.run is not None), None)
    if trained is not None:
        config = load_trained(
            split_search(trained.player)[0], env=env, choose_parameters=choose_parameters, trust=trust
        )[1]
    elif env is None:
        raise ConfigError("no run is given, so the players need a world: add --env connect_four")
    else:
        config = starting_config(name_of(env))
        if choose_parameters is not None:
            config = replace(config, env_parameters={**config.env_parameters, **choose_parameters(config.env)})
    config, several_note = for_several(config)
    config, opening_note = from_the_start(config, choose_parameters(config.env) if choose_parameters else ())
    return config, "; ".join(note for note in (several_note, opening_note) if note)


def load_players(entrants: Sequence[Entrant], config: RunConfig, temperature: Temperature) -> list[Player]:
    """The players of all entrants, called as the entrants are."""
    players = [load_player(entrant.player, config, temperature=temperature) for entrant in entrants]
    for player, entrant in zip(players, entrants, strict=True):
        player.name = entrant.name
    return players


def prepare_tournament(
    entrants: Sequence[Entrant],
    config: RunConfig,
    settings: TournamentSettings,
    *,
    out: Path,
) -> Tournament:
    """A tournament of these entrants, ready to play or to go on; close its pool and its log in the end.

    `out` is its file (ending in .jsonl), or the folder in which the file gets a name of its own.
    """
    players = load_players(entrants, config, settings.temperature)
    most = MAX_FOREIGN_ENVS if is_foreign(config.env) else GAMES_PER_BATCH // 2
    pool = make_pool(config, num_envs=max(1, min(settings.games, most)), num_threads=1)
    try:
        plan = make_plan(
            len(entrants),
            pool.num_players,
            style=settings.style,
            num_rounds=settings.num_rounds,
            games=settings.games,
            seed=settings.seed,
        )
        header = _header(entrants, config, plan, settings)
        path = out if out.suffix == ".jsonl" else out / f"{header_hash(header)}.jsonl"
        return Tournament(plan, players, pool, TournamentLog(path, header))
    except BaseException:
        pool.close()
        raise


def _header(entrants: Sequence[Entrant], config: RunConfig, plan: Plan, settings: TournamentSettings) -> dict[str, Any]:
    """All that decides the games, as plain values."""
    temperature = settings.temperature
    return {
        "world": config.env,
        "parameters": {name: repr(value) for name, value in sorted(config.env_parameters.items())},
        "entrants": [{"name": entrant.name, "digest": entrant.digest} for entrant in entrants],
        "num_seats": plan.num_seats,
        "style": plan.style,
        "rounds": plan.num_rounds,
        "games": plan.games_per_matchup,
        "temperature": [temperature.start, temperature.final, temperature.cutoff],
        "max_steps": settings.max_steps,
        "seed": plan.seed,
    }
