"""`scramjet tune`: reads the command line, runs the study, shows what it found."""

from __future__ import annotations

from scramjet.commands.arguments.tune import Given, Place
from scramjet.commands.command_line import CommandLine
from scramjet.commands.output.loading import loading_shown
from scramjet.commands.tune.showing import find_study, show_report
from scramjet.errors import ConfigError
from scramjet.settings import flag


def tune_command(given: Given) -> int:
    """Run `scramjet tune ...`; returns the exit code."""
    if given.place.report is not None or given.place.out is not None:
        return _report(given.line, given.place)
    with loading_shown("tune"):
        from scramjet.commands.tune.running import run_study
    return run_study(given)


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
