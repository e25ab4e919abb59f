"""The flags of `scramjet grade`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.command_line import parse, require_run
from scramjet.settings import Positional

DESCRIPTION = """Grade the moves of a player of Connect Four (6 x 7) by perfect play, with or without search.

In 6,000 positions of six classes: the share of moves that keep the value of the game, and the share that also win as
soon or lose as late as can be, beside what random legal moves would reach.

  scramjet grade runs/connect_four-1
  scramjet grade runs/connect_four-1/checkpoints/best --json
  scramjet grade runs/connect_four-1 --markdown grades.md
  scramjet grade runs/connect_four-1 --search alphazero:64
  scramjet grade minimax:3                       or random, greedy, perfect, FILE.py:Name
"""


@dataclass(frozen=True)
class Arguments:
    """Whom to grade, and how to show it."""

    player: Annotated[str, Positional("RUN")]
    """A run (its newest checkpoint is graded), a checkpoint, random, greedy, minimax:N, perfect, or FILE.py:Name."""
    search: str | None = None
    """Choose moves by search with the network: alphazero:SIMULATIONS or spo:PARTICLESxDEPTH; none: the network
    alone."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for a run given by its name."""
    json: bool = False
    """Print one JSON object instead of a table."""
    markdown: Path | None = None
    """Write the table to this file, too."""
    seed: int = 0
    """Decides what is random in the moves of searches and of players that are no network."""
    env: str | None = None
    """A world in place of the one that the checkpoint names, such as the file it is in now."""
    trust: bool = False
    """Let the checkpoint name a world in a file or module that you have not named yourself: it is run."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    given = parse(Arguments, words, prog="scramjet grade", description=DESCRIPTION)
    require_run(given.player, given.runs_dir)
    return (given,)
