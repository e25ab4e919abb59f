"""Gets a tournament ready: who takes part, its world, its players, its plan and its file."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scramjet.adapters.registry import is_foreign
from scramjet.adapters.world_code import NamedCode, source_fingerprint
from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.arena.network_players import Temperature, load_player, named_checkpoint
from scramjet.arena.tournaments.log import TournamentLog, header_hash
from scramjet.arena.tournaments.tournament import GAMES_PER_BATCH, Plan, Style, Tournament, make_plan
from scramjet.errors import CheckpointError, ConfigError
from scramjet.players.player import Player
from scramjet.players.scripted import PERFECT, runs_code, scripted_player, split_search
from scramjet.runs.metadata import run_of
from scramjet.runs.world_trust import name_of
from scramjet.runtime.checkpoints import Checkpoint, checkpoints_of, load_checkpoint
from scramjet.runtime.runs import find_run
from scramjet.search.specs import SearchSpec
from scramjet.selfplay.members import FOLDER as OPPONENTS
from scramjet.training.components import make_pool
from scramjet.training.config.files import starting_config
from scramjet.training.config.run_config import MAX_SEED, RunConfig
from scramjet.training.evaluator import MAX_FOREIGN_ENVS
from scramjet.training.playing import load_trained

# --- who takes part

RANDOM = "random"
"""The player whose rating is 1000 where it takes part."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """One player of a tournament."""

    name: str
    """What tables call it, `connect_four-1@40960`; no two are the same."""
    player: str
    """What `load_player` makes it from: a checkpoint's path, perhaps with a search, or a scripted player's name."""
    digest: str
    """A hash of the checkpoint or of the player's code: with another one, it is another player."""
    run: str | None = None
    """The path of its run; None for scripted players."""
    step: int | None = None
    """The training step of its checkpoint."""
    search: SearchSpec | None = None
    """How it searches; None: it plays without."""

    def searching(self, spec: SearchSpec | None) -> Entrant:
        """This entrant with a search, which makes it another player; itself where `spec` is None."""
        if spec is None or self.run is None:
            return self
        digest = hashlib.sha256(f"{self.digest}@{spec.text}".encode()).hexdigest()
        name, player = f"{self.name}@{spec.text}", f"{self.player}@{spec.text}"
        return replace(self, name=name, player=player, digest=digest, search=spec)


def gather_entrants(
    runs: Sequence[str],
    players: Sequence[str],
    *,
    runs_dir: Path,
    limit_per_run: int | None = None,
    search: SearchSpec | None = None,
) -> list[Entrant]:
    """All entrants of a tournament: every checkpoint of each run, single checkpoints, and players by name.

    Those of `RUN@alphazero:64` play by search; `search` is for the `runs` that do not say theirs. A checkpoint or
    player that is given twice takes part once. Raises a ConfigError for fewer than two.
    """
    if limit_per_run is not None and limit_per_run < 1:
        raise ConfigError(f"limit_per_run={limit_per_run} would leave no checkpoint; use 1 or more")
    found = [entrant for text in runs for entrant in _entrants_of(text, runs_dir, limit_per_run, search)]
    found += [_entrant_by_name(text, runs_dir) for text in players]
    entrants = list({entrant.digest: entrant for entrant in found}.values())
    if len(entrants) < 2:
        given = f"only {entrants[0].name}" if entrants else "nobody"
        raise ConfigError(
            f"a tournament needs two players or more, and {given} takes part; give more runs or checkpoints, add "
            f"--random, or name others: --players greedy minimax:2"
        )
    return _with_names_of_their_own(entrants)


def entrants_of_run(run: Path, limit: int | None = None) -> list[Entrant]:
    """The players that a run has to offer, oldest first: its checkpoints, and earlier selves that are its opponents.

    At most `limit` of them, spread over training.
    """
    by_step = {path.name: path for path in (*checkpoints_of(run / OPPONENTS), *checkpoints_of(run))}
    paths = sorted(by_step.values(), key=_step_of)
    if not paths:
        raise CheckpointError(f"{run} has no checkpoint yet; wait until it has saved one, or give another run")
    if limit is not None and len(paths) > limit:
        paths = [paths[number] for number in spread([_step_of(path) for path in paths], limit)]
    return [_entrant_of(_loaded(path), run) for path in paths if os.path.isdir(path)]  # a writer may have removed one


def _step_of(path: Path) -> int:
    return int(path.name.rpartition("_")[2])


def spread(steps: Sequence[int], limit: int) -> list[int]:
    """The numbers of `limit` of the growing `steps`, as evenly over training as they can be; the newest always."""
    if limit == 1:
        return [len(steps) - 1]
    left, chosen = set(range(len(steps))), []
    for number in reversed(range(limit)):
        wanted = steps[0] + (steps[-1] - steps[0]) * number / (limit - 1)
        chosen.append(min(left, key=lambda index: (abs(steps[index] - wanted), index)))
        left.discard(chosen[-1])
    return sorted(chosen)


def _entrants_of(text: str, runs_dir: Path, limit: int | None, usual: SearchSpec | None) -> list[Entrant]:
    """The entrants that one RUN of the command line stands for; they search as it says, else as usual."""
    place, search = split_search(text, runs_dir)
    search = usual if place == text else search
    return [entrant.searching(search) for entrant in _checkpoints_of(place, runs_dir, limit)]


def _checkpoints_of(text: str, runs_dir: Path, limit: int | None) -> list[Entrant]:
    """The checkpoints that a RUN stands for: all of a run, or one."""
    is_run = os.path.isfile(os.path.join(text, "config.toml"))
    is_name = not os.path.exists(text) and os.path.basename(text) == text
    if is_run or is_name:
        return entrants_of_run(find_run(text, runs_dir), limit)
    checkpoint = _loaded(Path(text))
    return [_entrant_of(checkpoint, run_of(checkpoint))]


def _entrant_by_name(text: str, runs_dir: Path) -> Entrant:
    """The entrant that one of `--players` stands for: a scripted player, or the newest checkpoint of a run."""
    place, search = split_search(text, runs_dir)
    if place == PERFECT or scripted_player(place) is not None:
        return Entrant(place, place, hashlib.sha256(f"{place}/{_code_digest(place)}".encode()).hexdigest())
    checkpoint = named_checkpoint(place, runs_dir)
    return _entrant_of(checkpoint, run_of(checkpoint)).searching(search)


def _code_digest(text: str) -> str:
    """A hash of the source of a player of the user's own; empty for others."""
    if not runs_code(text):
        return ""
    place = text if text.endswith(".py") else text.rpartition(":")[0]
    path = NamedCode(place, is_file=place.endswith(".py")).path()
    return (source_fingerprint(path) if path is not None else None) or ""


def _loaded(path: Path) -> Checkpoint:
    try:
        return load_checkpoint(path)
    except CheckpointError as error:
        if not path.exists():  # there is nothing to play without
            raise
        raise CheckpointError(
            f"{str(error).rstrip('.')}. To play without it, remove it, or name the checkpoints that shall play: "
            f"RUN/checkpoints/step_..."
        ) from error


def _entrant_of(checkpoint: Checkpoint, run: Path) -> Entrant:
    run = run.resolve()
    return Entrant(f"{run.name}@{checkpoint.step}", str(checkpoint.path), checkpoint.digest, str(run), checkpoint.step)


def _with_names_of_their_own(entrants: Sequence[Entrant]) -> list[Entrant]:
    """The entrants with the path of their run in the name, where runs in two folders are called the same."""
    counts = Counter(entrant.name for entrant in entrants)
    return [replace(entrant, name=_long_name(entrant)) if counts[entrant.name] > 1 else entrant for entrant in entrants]


def _long_name(entrant: Entrant) -> str:
    return f"{entrant.run}@{entrant.step}" + (f"@{entrant.search.text}" if entrant.search is not None else "")


# --- the tournament

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
