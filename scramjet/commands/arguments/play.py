"""The flags of `scramjet play`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.arguments.env_parameters import split_env_parameters
from scramjet.commands.command_line import parse, require_run
from scramjet.settings import Positional

DESCRIPTION = """Play a game yourself, against a trained agent or another player.

  scramjet play runs/connect_four-1
  scramjet play runs/connect_four-1 --seat second --temperature 0.5
  scramjet play runs/connect_four-1/checkpoints/best --against greedy   hints by the run, moves by greedy
  scramjet play runs/connect_four-1 --search alphazero:64               it looks ahead before it moves
  scramjet play connect_four --against minimax:4
  scramjet play my_game.py --against person         two people at one keyboard

In the game: a move by its name, hint, undo, new, help, quit.
"""


@dataclass(frozen=True)
class Arguments:
    """What to play, and against whom."""

    path: Annotated[str, Positional("RUN")]
    """A run or a checkpoint, or a world's name or file; with a world say --against whom."""
    seat: str = "first"
    """Your seat: first, second, random, or a number from 1."""
    against: str | None = None
    """Who plays the other seats: a run or checkpoint, RUN@SEARCH, random, greedy, minimax:N, perfect, FILE.py:NAME of
    your own, or person; by default the run itself."""
    search: str | None = None
    """The run chooses its moves by search: alphazero:SIMULATIONS or spo:PARTICLESxDEPTH; none: by its network alone."""
    temperature: float = 0.0
    """How freely a network draws its moves: 0 takes the most likely one, 1 draws as in training."""
    seed: int | None = None
    """Decides what is random in the games; by default other games each time."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for a run given by its name."""
    env: str | None = None
    """A world in place of the one that the checkpoint names, such as the file it is in now."""
    trust: bool = False
    """Let the checkpoint name a world in a file or module that you have not named yourself: it is run."""
    color: bool = True
    """Draw the board in colours, where the terminal has them."""


def read(words: list[str]) -> tuple[Arguments, dict[str, str]]:
    """What the words of the command say, and the values of `--env.NAME` flags."""
    words, env_values = split_env_parameters(words)
    given = parse(Arguments, words, prog="scramjet play", description=DESCRIPTION)
    require_run(given.path, given.runs_dir)
    return given, env_values
