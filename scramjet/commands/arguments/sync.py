"""The flags of `scramjet sync`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.command_line import parse
from scramjet.settings import Positional
from scramjet.telemetry.tracking.tracker import TrackerName

DESCRIPTION = """Send runs to TensorBoard, Aim, Weights & Biases, MLflow or Trackio, from their metrics.jsonl.

What a tool has is remembered in the run's folder: the same command again sends what is new, and no step twice.

  scramjet sync runs/cartpole-1 --to tensorboard
  scramjet sync runs/* --to aim                     every run there is
  scramjet sync cartpole-1 --to wandb --follow      as it trains, until it ends
"""


@dataclass(frozen=True)
class Arguments:
    """Which runs to send, and where."""

    runs: Annotated[tuple[str, ...], Positional("RUN ...")] = ()
    """Runs: their folders, or their names in --runs-dir."""
    to: tuple[TrackerName, ...] = ()
    """The tools to send them to: tensorboard, aim, wandb, mlflow, trackio."""
    follow: bool = False
    """Go on with runs that are being trained until they end, or until Ctrl-C."""
    project: str | None = None
    """The project or experiment in the tool; none: the run's own track_project, else as for --track."""
    runs_dir: Path = Path("runs")
    """Folder that holds the runs, for runs given by name."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet sync", description=DESCRIPTION),)
