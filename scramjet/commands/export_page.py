"""`scramjet export-page`: one HTML file in which a visitor plays against a trained agent or watches it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.arena.play.thoughts import reward_scale
from scramjet.commands.arguments.env_parameters import split_env_parameters, typed_parameters
from scramjet.commands.command_line import parse
from scramjet.errors import ConfigError, RunError, printable
from scramjet.runtime.outputs import check_output, notes_beside, write_output
from scramjet.runtime.runs import find_run
from scramjet.settings import Positional
from scramjet.training.persistence.checkpoint_facts import run_of
from scramjet.training.playing import load_trained, note_on_played
from scramjet.web.export_page.page import Facts, shared_page
from scramjet.web.export_page.trial import can_try, try_page
from scramjet.web.sharing import visitors_world

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


def export_page_command(words: list[str]) -> int:
    """Run `scramjet export-page ...`; returns the exit code."""
    words, env_values = split_env_parameters(["--out" if word == "-o" else word for word in words])
    arguments = parse(Arguments, words, prog="scramjet export-page", description=DESCRIPTION)
    if arguments.out is not None:
        check_output(arguments.out)
    policy, config, checkpoint = load_trained(
        _path(arguments),
        runs_dir=arguments.runs_dir,
        env=arguments.env,
        choose_parameters=(lambda name: typed_parameters(name, env_values)) if env_values else None,
        trust=arguments.trust,
    )
    if not env_values and (note := note_on_played(config, checkpoint)):
        print(printable(note), file=sys.stderr, flush=True)
    run = run_of(checkpoint).name
    env = visitors_world(config, env_values)
    page = shared_page(env, policy, Facts(run, checkpoint.step, reward_scale(checkpoint)))
    for note in page.notes:
        print(printable(f"note: {note}; the page goes without it"), file=sys.stderr, flush=True)
    if can_try():
        try_page(page, type(env).__name__)
    out = arguments.out or Path(f"{run}.html")
    data = page.html.encode()
    write_output(out, data)
    size = f"{len(data) / 1e6:.2f} MB"
    print(f"{printable(str(out))}: {size}; open it in any browser, or send it to a friend", file=notes_beside(out))
    return 0


def _path(arguments: Arguments) -> str | Path:
    """The run or checkpoint that is asked for."""
    if arguments.checkpoint is None:
        return arguments.path
    if Path(arguments.checkpoint).name != arguments.checkpoint:
        raise ConfigError(f"--checkpoint {arguments.checkpoint} is a name: latest, best or step_00010000")
    folder = find_run(arguments.path, arguments.runs_dir) / "checkpoints"
    if not (folder / arguments.checkpoint).exists():
        names = sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []
        raise RunError(
            f"'{arguments.path}' has no checkpoint {arguments.checkpoint}; it has {', '.join(names) or 'none'}"
        )
    return folder / arguments.checkpoint
