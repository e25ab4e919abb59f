"""The flags of `scramjet eval`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.arguments.env_parameters import split_env_parameters
from scramjet.commands.command_line import parse, require_run
from scramjet.settings import Positional

DESCRIPTION = """Play a trained agent: its most likely actions, or drawn ones where its run has eval.samples.

  scramjet eval runs/cartpole-1 --episodes 100
  scramjet eval runs/cartpole-1/checkpoints/best --json
  scramjet eval runs/cartpole-1 --render
  scramjet eval runs/cartpole-1 --video cartpole.mp4 --episodes 4
  scramjet eval runs/connect_four-1 --env.random-opponent  another parameter
  scramjet eval runs/cartpole-1 --samples        actions drawn as in training
  scramjet eval runs/my_world-1 --env elsewhere/my_world.py
  scramjet eval runs/maze-1 --search spo:16x4    16 particles, 4 steps ahead

Against another player it takes each seat in turn: against a run, a checkpoint,
random, greedy, minimax:N, perfect, or your own as FILE.py:Name or module:Name.

  scramjet eval runs/connect_four-1 --against minimax:3 --games 1000
  scramjet eval runs/connect_four-1 --against runs/connect_four-2
  scramjet eval runs/connect_four-1 --against greedy --render --step
  scramjet eval runs/four --search alphazero:64 --against runs/four
  scramjet eval runs/connect_four-1 --against runs/connect_four-2@alphazero:64
"""


@dataclass(frozen=True)
class Arguments:
    """What to play, and how."""

    path: Annotated[str, Positional("RUN")]
    """A run (its newest checkpoint is played) or a checkpoint."""
    episodes: int | None = None
    """Episodes to play; by default 100, or 1 where they are drawn. In a video several stand side by side."""
    seed: int | None = None
    """Decides the episodes; by default the run's own seed."""
    samples: bool = False
    """Draw actions as in training, instead of taking the most likely; as the run does where it has eval.samples."""
    max_steps: int | None = None
    """Steps after which an episode is cut, and its return so far counted; by default as in training."""
    search: str | None = None
    """Choose actions by search with the network: alphazero:SIMULATIONS or spo:PARTICLESxDEPTH; none: the network
    alone."""
    against: str | None = None
    """Play games against this player: a run, a checkpoint, RUN@SEARCH, random, greedy, minimax:N, perfect,
    FILE.py:Name."""
    games: int | None = None
    """Games to play against it; by default 1000, or 1 where they are shown."""
    temperature: float | None = None
    """Against another: how networks draw their moves, 0 the most likely (the default), 1 as in training."""
    temperature_final: float | None = None
    """Temperature after the first moves of a game."""
    temperature_cutoff: int | None = None
    """How many moves of a game, by all players together, are the first."""
    render: bool = False
    """Show the game as text while it is played."""
    video: Path | None = None
    """Write a video of it, .mp4, .gif or .webm; a file that is there is replaced."""
    fps: float | None = None
    """Steps that --video or --render shows a second; by default what suits the world: 30, 10 where things move by whole
    cells, and 2 for games of turns."""
    step: bool = False
    """Against another, with --render: wait for Enter after each move."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for a run given by its name."""
    json: bool = False
    """Print one JSON object instead of text."""
    env: str | None = None
    """A world in place of the one that the checkpoint names, such as the file it is in now."""
    trust: bool = False
    """Let the checkpoint name a world in a file or module that you have not named yourself: it is run."""


def read(words: list[str]) -> tuple[Arguments, dict[str, str]]:
    """What the words of the command say, and the values of `--env.NAME` flags."""
    words, env_values = split_env_parameters(words)
    given = parse(Arguments, words, prog="scramjet eval", description=DESCRIPTION)
    require_run(given.path, given.runs_dir)
    return given, env_values
