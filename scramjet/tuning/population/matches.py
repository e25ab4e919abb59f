"""Ratings of a population's members by matches: everybody plays everybody, and the random player, who is rated 1000."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.arena.players import Temperature
from scramjet.arena.tournaments.entrants import RANDOM, entrants_of_run, gather_entrants
from scramjet.arena.tournaments.preparation import TournamentSettings, prepare_tournament
from scramjet.arena.tournaments.rating_table import rating_table
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig

GAMES = 100
"""Games of each pair."""


def check(base: RunConfig) -> None:
    """Raise a ConfigError where the world is played by one alone."""
    for_several(base)


def ratings(runs: Sequence[Path], base: RunConfig, out: Path, *, seed: int) -> list[float]:
    """The ratings of the newest checkpoints of these runs, after they have played each other and the random player.

    `base` has the world; games are kept in the file `out`, from which an interrupted tournament goes on. Networks draw
    their moves as in training.
    """
    entrants = gather_entrants([str(run) for run in runs], [RANDOM], runs_dir=runs[0].parent, limit_per_run=1)
    tournament = prepare_tournament(
        entrants, _world(base), TournamentSettings(Temperature(1.0), games=GAMES, seed=seed), out=out
    )
    with contextlib.closing(tournament.pool), contextlib.closing(tournament.log):
        tournament.play(max_steps=base.eval.max_steps)
        table = rating_table(entrants, tournament.log.batches, seed=seed)
    by_digest = {row.entrant.digest: row.rating for row in table.rows}
    return [by_digest[entrants_of_run(run, 1)[0].digest] for run in runs]


def _world(base: RunConfig) -> RunConfig:
    """The config with the world for several players, from the start of the game, on the CPU."""
    config, _ = for_several(resolve(replace(base, device="cpu", env_device="cpu", precision="auto")))
    return from_the_start(config, ())[0]
