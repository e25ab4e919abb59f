"""The flags of `scramjet serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scramjet.commands.command_line import parse

DESCRIPTION = """Show the runs of a folder in the browser, live: curves, configs, checkpoints, games to watch and play.

  scramjet serve
  scramjet serve --runs-dir /data/runs --port 8080
  scramjet serve --host 0.0.0.0             for others on the network, with a token

Only this machine can open the page, unless --host says otherwise; then it needs a token, which is part of the URL.
"""


@dataclass(frozen=True)
class Arguments:
    """What to show, and to whom."""

    runs_dir: Path = Path("runs")
    """Folder that holds the runs."""
    port: int = 8000
    """Port to listen on; 0: any that is free."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0: all of this machine's, with a token."""
    token: str | None = None
    """What a visitor must know; none: nothing on this machine, a new random one with --host."""
    trust: bool = False
    """Let runs name worlds in files or modules that you have not named yourself: they are run when watched or
    played."""
    open: bool = False
    """Open the page in the browser."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet serve", description=DESCRIPTION),)
