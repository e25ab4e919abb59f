"""A trained agent against another player: `scramjet eval --against`, and `scramjet.play_match` from Python."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from scramjet.adapters.registry import is_foreign
from scramjet.arena.matches import GameResults, GamesReport, Score, play_games
from scramjet.arena.network_players import Temperature, load_player, network_player
from scramjet.engine.layout import num_players
from scramjet.envs.api import Env
from scramjet.envs.registry import stop_if_being_read
from scramjet.errors import ConfigError, ScramjetError
from scramjet.players.player import Player
from scramjet.runtime.checkpoints import Checkpoint
from scramjet.settings import MAX_COUNT, coerce
from scramjet.training.components import make_pool
from scramjet.training.config.run_config import RunConfig
from scramjet.training.evaluator import MAX_FOREIGN_ENVS
from scramjet.training.playing import checked_episodes, load_trained, note_on_played, search_settings
from scramjet.training.seeds import unseen_episodes

if TYPE_CHECKING:
    from scramjet.adapters.objects import World

MAX_ENVS = 512
"""Games that are played at the same time."""
OPENING = "opening_plies"
"""The parameter of worlds that begin games after random openings."""


@dataclass(frozen=True, slots=True)
class Match:
    """Two players that are ready to meet."""

    config: RunConfig
    """That of the agent's run, with the world as it is played here."""
    checkpoint: Checkpoint
    """The agent's."""
    agent: Player
    opponent: Player
    notes: tuple[str, ...]
    """What the user should know before it begins, one line each."""


@dataclass(frozen=True, slots=True)
class MatchResult:
    """How an agent did against an opponent that had all the other seats."""

    agent: str
    opponent: str
    total: Score
    by_seat: tuple[Score, ...]
    """The agent's score in each seat."""
    games: GameResults
    """Every single game; the agent is player 0, the opponent player 1."""

    def __repr__(self) -> str:
        """One line: who won how many games against whom."""
        score = self.total
        return (
            f"MatchResult({self.agent!r} against {self.opponent!r}: {score.wins:,} won, {score.draws:,} drawn, "
            f"{score.losses:,} lost)"
        )

    @property
    def mean_length(self) -> float:
        """Moves of a game, by all players together; with agents that act at once, steps."""
        return float(self.games.lengths.mean())

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name, as plain values for JSON."""
        results = self.games
        is_agent = results.seating == 0  # [G, S]
        return {
            "agent": self.agent,
            "opponent": self.opponent,
            **self.total.as_dict(),
            "by_seat": [score.as_dict() for score in self.by_seat],
            "distinct_games": results.num_distinct,
            "mean_length": self.mean_length,
            "mean_return": float(results.returns[is_agent].mean()),
            "cut_games": int(results.is_cut.sum()),
            "forfeits": int((results.forfeits & is_agent).any(1).sum()),
            "opponent_forfeits": int((results.forfeits & ~is_agent).any(1).sum()),
            "notes": list(results.notes),
        }


def play_match(
    run: str | PathLike[str],
    against: Any = "random",
    games: int = 1000,
    *,
    seed: int | None = None,
    temperature: float = 0.0,
    temperature_final: float | None = None,
    temperature_cutoff: int | None = None,
    network: nn.Module | None = None,
    env: World | None = None,
    env_parameters: Mapping[str, Any] | None = None,
    max_steps: int | None = None,
    search: str | None = None,
    trust: bool = False,
) -> MatchResult:
    """Have a run's or checkpoint's agent play another player; `scramjet eval RUN --against OTHER` from Python.

    `against` is another run or checkpoint, "random", "greedy", "minimax:3", "perfect", "FILE.py:Name", or a `Policy`, a
    `Player` or a function `choose(view)`. With `search`, "alphazero:64" or "spo:16x4", the agent looks ahead; so does
    another one called "RUN@alphazero:64". The agent takes every seat equally often. Networks take their most likely
    moves at temperature 0 and draw them as in training at 1; after `temperature_cutoff` moves of a game
    `temperature_final` holds. The other arguments are those of `scramjet.evaluate`.
    """
    stop_if_being_read()
    chosen = None if env_parameters is None else coerce("env_parameters", env_parameters, dict[str, Any])
    match = prepare_match(
        run,
        against,
        temperature=Temperature(temperature, temperature_final, temperature_cutoff),
        network=network,
        env=env,
        choose_parameters=None if chosen is None else lambda name: chosen,
        search=search,
        trust=trust,
    )
    for note in match.notes:
        warnings.warn(note, stacklevel=2)
    return play_prepared(match, games, seed=seed, max_steps=max_steps)


def prepare_match(
    run: str | PathLike[str],
    against: Any,
    *,
    temperature: Temperature | None = None,
    runs_dir: str | Path = "runs",
    network: nn.Module | None = None,
    env: World | None = None,
    choose_parameters: Callable[[str], Mapping[str, Any]] | None = None,
    search: str | None = None,
    trust: bool = False,
) -> Match:
    """Load both players; `load_trained` and `load_player` say what the arguments mean. `search` is the agent's."""
    policy, config, checkpoint = load_trained(
        run, network, runs_dir, env, choose_parameters=choose_parameters, trust=trust
    )
    rules_note = "" if choose_parameters else note_on_played(config, checkpoint)
    config, world_note = for_several(config)
    config, opening_note = from_the_start(config, choose_parameters(config.env) if choose_parameters else ())
    opponent = load_player(against, config, temperature=temperature, runs_dir=runs_dir)
    searching = search_settings(search, policy, config, checkpoint)
    agent = network_player(policy, fspath(run), searching, temperature)
    notes = rules_note, world_note, opening_note, "" if searching is None else searching.note
    return Match(config, checkpoint, agent, opponent, tuple(note for note in notes if note))


def play_prepared(
    match: Match,
    games: int,
    *,
    seed: int | None = None,
    max_steps: int | None = None,
    report: GamesReport | None = None,
) -> MatchResult:
    """Play a match; by default with the seed and `eval.max_steps` of the agent's run. `report` gets the progress."""
    games, max_steps = coerce("games", games, int), coerce("max_steps", max_steps, int | None)
    if not 1 <= games <= MAX_COUNT:
        raise ConfigError(f"games={games} must be from 1 to {MAX_COUNT}")
    if max_steps is not None and max_steps < 1:
        raise ConfigError(f"max_steps={max_steps} must be at least 1")
    _, seed = checked_episodes(1, seed)
    most = MAX_FOREIGN_ENVS if is_foreign(match.config.env) else MAX_ENVS
    pool = make_pool(match.config, num_envs=min(games, most), num_threads=1)
    with contextlib.closing(pool):
        seating = np.ones((games, pool.num_players), np.int64)
        seating[np.arange(games), np.arange(games) % pool.num_players] = 0
        results = play_games(
            pool,
            [match.agent, match.opponent],
            seating,
            seed=unseen_episodes(match.config.seed if seed is None else seed),
            report=report,
            max_steps=match.config.eval.max_steps if max_steps is None else max_steps,
        )
    by_seat = tuple(results.score(0, seat) for seat in range(seating.shape[1]))
    return MatchResult(match.agent.name, match.opponent.name, results.score(0), by_seat, results)


def for_several(config: RunConfig) -> tuple[RunConfig, str]:
    """The config with a world for two or more players, and one line that tells if a parameter was changed for it.

    A world for one is changed where switching one of its parameters gives it more seats and the same spaces: so an
    agent that was trained against built-in moves can play others. Else a ConfigError names what could be changed.
    """
    world = config.make_env()
    if not isinstance(world, Env) or num_players(world) > 1:
        return config, ""
    advice = "give a run of a game for two or more"
    for name, value in world.parameters.items():
        other = not value if isinstance(value, bool) else 2
        if other == value or not _plays_several(world, {**world.parameters, name: other}):
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            changed = replace(config, env_parameters={**config.env_parameters, name: other})
            return changed, f"{config.env} is played here with --env.{'' if other else 'no-'}{flag}, by several players"
        advice = f"add --env.{flag} {other}"
    raise ConfigError(f"{config.env} is played by one, so there is nobody to play against; {advice}")


def from_the_start(config: RunConfig, chosen: Iterable[str]) -> tuple[RunConfig, str]:
    """The config with games that begin at the beginning, and one line that tells if they did not in training.

    Training may begin games after random openings; matches do so only if the parameter is among those `chosen`.
    """
    plies = config.env_parameters.get(OPENING, 0)
    if not plies or OPENING in chosen:
        return config, ""
    changed = replace(config, env_parameters={**config.env_parameters, OPENING: 0})
    return changed, f"games begin at the beginning; --env.opening-plies {plies} begins them as in training"


def _plays_several(world: Env, parameters: Mapping[str, Any]) -> bool:
    """Whether the world with these parameters is for two or more players, and shows and takes the same."""
    try:
        changed = type(world)(**parameters)
    except (ScramjetError, ValueError, TypeError):
        return False
    spaces = ("observation_space", "critic_space", "action_space")
    return num_players(changed) > 1 and all(repr(getattr(changed, n)) == repr(getattr(world, n)) for n in spaces)
