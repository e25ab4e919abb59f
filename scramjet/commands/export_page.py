"""`scramjet export-page`: one HTML file in which a visitor plays against a trained agent or watches it."""

from __future__ import annotations

import sys
from pathlib import Path

from scramjet.arena.play.thoughts import reward_scale
from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.commands.arguments.export_page import Arguments
from scramjet.errors import ConfigError, RunError, printable
from scramjet.runtime.outputs import check_output, notes_beside, write_output
from scramjet.runtime.runs import find_run
from scramjet.training.persistence.checkpoint_facts import run_of
from scramjet.training.playing import load_trained, note_on_played
from scramjet.web.export_page.page import Facts, shared_page
from scramjet.web.export_page.trial import can_try, try_page
from scramjet.web.export_page.visitors import visitors_world


def export_page_command(arguments: Arguments, env_values: dict[str, str]) -> int:
    """Run `scramjet export-page ...`; returns the exit code."""
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
