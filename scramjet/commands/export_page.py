"""`scramjet export-page`: one HTML file in which a visitor plays against a trained agent or watches it."""

from __future__ import annotations

import sys
from pathlib import Path

from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.commands.arguments.export_page import Arguments
from scramjet.errors import ConfigError, RunError, printable
from scramjet.runtime.files import notes_beside
from scramjet.runtime.runs import find_run
from scramjet.web.export_page.exported import written_page


def export_page_command(arguments: Arguments, env_values: dict[str, str]) -> int:
    """Run `scramjet export-page ...`; returns the exit code."""
    written = written_page(
        _path(arguments),
        arguments.out,
        arguments.env,
        env_values,
        lambda name: typed_parameters(name, env_values),
        runs_dir=arguments.runs_dir,
        trust=arguments.trust,
    )
    for note in written.notes:
        print(printable(f"note: {note}"), file=sys.stderr, flush=True)
    size, place = f"{written.num_bytes / 1e6:.2f} MB", printable(str(written.path))
    print(f"{place}: {size}; open it in any browser, or send it to a friend", file=notes_beside(written.path))
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
