"""The flags of `scramjet tournament`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.arguments.env_parameters import split_env_parameters
from scramjet.commands.command_line import parse
from scramjet.settings import Positional

DESCRIPTION = """Have players meet and rate them: checkpoints of runs, and others by name.

  scramjet tournament runs/connect_four-1 --random
  scramjet tournament runs/a runs/b --limit-per-run 5 --plot ratings.svg
  scramjet tournament runs/a/checkpoints/best --players random greedy minimax:2
  scramjet tournament runs/a --players mine.py:choose --round-robin --games 400
  scramjet tournament runs/a runs/a@alphazero:64 --limit-per-run 1
  scramjet tournament --env connect_four --players random greedy minimax:2

Ctrl-C keeps what was played and shows the ratings so far; the same command goes on from there.
"""


@dataclass(frozen=True)
class Arguments:
    """Who meets, and how."""

    runs: Annotated[tuple[str, ...], Positional("RUN ...")] = ()
    """Runs, all of whose checkpoints take part, or checkpoints; RUN@alphazero:64 has them play by search."""
    players: tuple[str, ...] = ()
    """Other players: random, greedy, minimax:N, perfect, FILE.py:Name, module:Name, or a run's newest checkpoint."""
    search: str | None = None
    """Every RUN that does not say its own search plays by this one: alphazero:SIMULATIONS or spo:PARTICLESxDEPTH."""
    random: bool = False
    """Add the random player, whose rating is 1000."""
    limit_per_run: int | None = None
    """Checkpoints of each run that take part, spread evenly over training with the newest; by default all."""
    round_robin: bool = False
    """Everybody meets everybody; the default up to 50 matchups."""
    swiss: bool = False
    """Players of about equal success meet, round after round; the default beyond 50 matchups."""
    rounds: int | None = None
    """Swiss rounds (by default twice the logarithm of the players to base 2), or round robins (by default 1)."""
    games: int = 100
    """Games of each matchup, every player in every seat equally often."""
    temperature: float = 1.0
    """How networks draw their moves: 1 as in training, 0 the most likely, with which games may repeat themselves."""
    temperature_final: float | None = None
    """Temperature after the first moves of a game."""
    temperature_cutoff: int | None = None
    """How many moves of a game, by all players together, are the first."""
    seed: int = 0
    """Decides all that is random."""
    max_steps: int | None = None
    """Steps after which a game is cut; by default as in training."""
    out: Path | None = None
    """File (.jsonl) or folder for the games; by default the folder tournaments beside the runs."""
    plot: Path | None = None
    """Draw ratings against training steps into this SVG file."""
    json: bool = False
    """Print one JSON object instead of a table."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for runs given by their names."""
    env: str | None = None
    """A world in place of the one that the checkpoints name; needed where no run is given."""
    trust: bool = False
    """Let a checkpoint name a world in a file or module that you have not named yourself: it is run."""


def read(words: list[str]) -> tuple[Arguments, dict[str, str]]:
    """What the words of the command say, and the values of `--env.NAME` flags."""
    words, env_values = split_env_parameters(words)
    return parse(Arguments, words, prog="scramjet tournament", description=DESCRIPTION), env_values
