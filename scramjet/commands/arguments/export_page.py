"""The flags of `scramjet export-page`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.arguments.env_parameters import split_env_parameters
from scramjet.commands.command_line import parse, require_run
from scramjet.settings import Positional

DESCRIPTION = """Write one HTML file in which anyone can play against a trained agent or watch it.

  scramjet export-page runs/connect_four-1
  scramjet export-page runs/connect_four-1 -o game.html --checkpoint best
  scramjet export-page runs/my_game-1 --env elsewhere/my_game.py

Rules and network run in the file itself: no server, nothing is loaded. For
native worlds; docs/share.md says which worlds and networks it takes.
"""


@dataclass(frozen=True)
class Arguments:
    """What to share, and where to write it."""

    path: Annotated[str, Positional("RUN")]
    """A run or a checkpoint."""
    out: Path | None = None
    """The file to write, also -o; by default the run's name with .html in the folder you are in."""
    checkpoint: str | None = None
    """Which of the run's checkpoints: latest, best or step_00010000; by default the newest."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for a run given by its name."""
    env: str | None = None
    """A world in place of the one that the checkpoint names, such as the file it is in now."""
    trust: bool = False
    """Let the checkpoint name a world in a file or module that you have not named yourself: it is run."""


def read(words: list[str]) -> tuple[Arguments, dict[str, str]]:
    """What the words of the command say, and the values of `--env.NAME` flags."""
    words, env_values = split_env_parameters(["--out" if word == "-o" else word for word in words])
    given = parse(Arguments, words, prog="scramjet export-page", description=DESCRIPTION)
    require_run(given.path, given.runs_dir)
    return given, env_values
