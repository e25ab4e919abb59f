"""`scramjet tune`: reads the command line, runs the study, shows what it found."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from scramjet.commands.arguments.tune import Given, Place
from scramjet.commands.command_line import CommandLine, loading_shown
from scramjet.errors import ConfigError, RunError, printable
from scramjet.reports.plots import draw
from scramjet.runtime.files import check_output, is_stream, write_output
from scramjet.runtime.trust import said
from scramjet.settings import flag
from scramjet.telemetry.readable import short_path
from scramjet.tuning.methods.searches import repeats
from scramjet.tuning.report import PAGE, WINNER, charts, write_report
from scramjet.tuning.results import StudyResults, TuneResult, read_results
from scramjet.tuning.study import Study
from scramjet.tuning.tables import terminal_table


def tune_command(given: Given) -> int:
    """Run `scramjet tune ...`; returns the exit code."""
    if given.place.report is not None or given.place.out is not None:
        return _report(given.line, given.place)
    with loading_shown("tune"):
        from scramjet.commands.study import run_study
    return run_study(given, find_study, show_ended)


def _report(given: CommandLine, place: Place) -> int:
    """Make and show the report of --report; refuses all flags that are not for it."""
    if place.report is None:
        raise ConfigError(f"--out {place.out} is for the plots of a report; add --report STUDY")
    allowed = {("place", name) for name in ("report", "out", "studies_dir", "trust")}
    refused = [flag(path[-1]) for path in given.values if path not in allowed]
    if refused:
        raise ConfigError(f"{refused[0]} has no use with --report, which runs nothing; leave it out")
    show_report(find_study(place.report, place.studies_dir), place.out, trust=place.trust)
    return 0


# --- what is shown of a study


def find_study(text: str, studies_dir: Path) -> Path:
    """The folder of a study that the user named by its path or by its name in `studies_dir`."""
    for folder in (Path(text), studies_dir / text):
        if "\0" not in text and (folder / "study.toml").is_file():
            return folder
    raise RunError(f"there is no study at {text!r} nor in {studies_dir}/; name a folder that `scramjet tune` made")


def show_ended(study: Study, result: TuneResult) -> None:
    """Print the best trials of a study that has ended or was stopped, and what to type next."""
    is_unfinished = any(trial.state in ("running", "paused") for trial in result.trials) or bool(repeats(study))
    settings = study.settings
    further = f" --hours {2 * settings.hours:g}" if settings.hours is not None and result.exit_code == 0 else ""
    if not is_unfinished and settings.most_trials is not None:
        further = f" --trials {2 * settings.most_trials}"
    lines = [f"go on            scramjet tune --resume {short_path(study.path)}{further}"]
    if result.winner is not None and result.winner.run_path is not None:
        lines += [f"play the winner  scramjet eval {short_path(result.winner.run_path)}"]
    print()
    _show(read_results(study.path), study.path / "report", lines)


def show_report(folder: Path, out: Path | None, *, trust: bool) -> None:
    """Make the report of a study anew, with its plots in the file `out` where one is given, and print its table."""
    kind = "" if out is None else out.suffix.lower() or (".svg" if is_stream(out) else "")
    if out is not None:
        if kind not in (".svg", ".png"):
            raise ConfigError(f"out={out}: give a name that ends in .svg or .png: {out.stem}.svg")
        check_output(out)
    report = write_report(folder, said(trust))
    figures = [] if out is None else [chart.figure("light") for chart in charts(report.results)]
    if out is not None and not figures:
        raise RunError(f"no trial of {folder} has a score yet, and there is nothing to draw; try again later")
    if out is not None:
        write_output(out, draw(figures, kind.removeprefix("."), title=report.results.name))
    _show(report.results, report.path, [f"plots            {out}"] if out is not None else [])


def _show(results: StudyResults, path: Path, lines: list[str]) -> None:
    console = Console()
    console.print(terminal_table(results, console.width))
    lines = [f"report           {short_path(path / PAGE)}", *lines]
    if (path / WINNER).is_file() and results.winner() is not None:
        lines += [f"train with it    scramjet train --config {short_path(path / WINNER)}"]
    print("\n".join(printable(line) for line in ["", *lines, *(f"note: {note}" for note in results.notes)]), flush=True)
