"""`scramjet tune`: reads the command line, runs the study, shows what it found."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from scramjet.commands import train
from scramjet.commands.arguments.env_parameters import split_env_parameters
from scramjet.commands.arguments.help_text import show_help
from scramjet.commands.arguments.search import refuse_search
from scramjet.commands.command_line import CommandLine, read_words
from scramjet.commands.tune.showing import find_study, show_ended, show_report
from scramjet.commands.tune.spaces import read_space, split_dimensions
from scramjet.errors import ConfigError
from scramjet.settings import Flat, flag
from scramjet.training.config.run_config import RunConfig
from scramjet.training.worlds.user_worlds import name_of
from scramjet.tuning.api import go_on, new_study, resumed_study
from scramjet.tuning.display import make_display
from scramjet.tuning.processes.client import TrialServer
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.study import Study
from scramjet.tuning.study_file import BUDGET

DESCRIPTION = """Search for good settings: try many in runs of their own, and keep them all.

A flag of `scramjet train` with a range or a choice as its value varies; with a plain value it is the same in all runs.

  scramjet tune cartpole --learning-rate log:1e-4..1e-2 --trials 40
  scramjet tune cartpole --gamma 0.9..0.999 --num-epochs int:1..8
  scramjet tune cartpole --num-envs choice:64,256 --total-timesteps 200K
  scramjet tune cartpole --space space.toml --method halving --parallel 4
  scramjet tune cartpole --space space.toml --objective steps_to:475
  scramjet tune cartpole --learning-rate log:1e-4..1e-2 --method pbt
  scramjet tune --resume studies/cartpole-1          go on where it stopped
  scramjet tune --resume studies/cartpole-1 --trials 80
  scramjet tune --report studies/cartpole-1          its report, at any time
"""


@dataclass(frozen=True)
class Place:
    """What the study begins from and where it is kept."""

    space: Path | None = None
    """A TOML or YAML file with a table [space] of the settings that vary."""
    preset: str | None = None
    """A preset that comes with scramjet, in place of the world's own; alone it names the world too."""
    config: Path | None = None
    """A TOML or YAML file with settings that all runs share."""
    resume: str | None = None
    """Go on with this study (its folder or name); only its budget may change: --trials, --steps, --hours, --parallel,
    --best and --seeds."""
    report: str | None = None
    """Make the report of this study (its folder or name) anew, and run nothing; it may be running."""
    out: Path | None = None
    """With --report: a file for its plots besides, .svg or .png, drawn by matplotlib."""
    study_name: str | None = None
    """Name of the study's folder; by default the world's name and a number."""
    studies_dir: Path = Path("studies")
    """Folder that holds the studies."""
    ray: str | None = None
    """Hand the trials to Ray Tune on the cluster at this address (auto, HOST:PORT), or on this machine: local."""
    display: Literal["auto", "live", "plain", "quiet"] = "auto"
    """What to show; auto: a live table in a terminal, plain lines elsewhere."""
    trust: bool = False
    """Let a study or file name a world in a file or module that you have not named yourself: it is run."""


@dataclass(frozen=True)
class Arguments:
    """All of the command line."""

    place: Annotated[Place, Flat()] = field(default_factory=Place)
    study: Annotated[StudySettings, Flat()] = field(default_factory=StudySettings)
    settings: Annotated[RunConfig, Flat()] = field(default_factory=RunConfig)


def tune_command(words: list[str]) -> int:
    """Run `scramjet tune ...`; returns the exit code."""
    words, dimensions = split_dimensions(words)
    words, env_values = split_env_parameters(words)
    refuse_search(words)
    given = read_words(Arguments, words, prog="scramjet tune")
    if given.wants_help:
        show_help(Arguments, "scramjet tune", DESCRIPTION)
    place = given.laid_over(Place(), ("place",))
    if place.report is not None or place.out is not None:
        return _report(given, place)
    with contextlib.closing(TrialServer(may_fork=True)) as server:
        if place.resume is not None:
            study = _resumed(given, [*dimensions, *(f"env.{name}" for name in env_values)], place)
        else:
            study = _new(given, dimensions, env_values, place)
        with study:
            result = go_on(study, make_display(place.display), server, trust=place.trust, ray=place.ray)
            if place.display != "quiet":
                show_ended(study, result)
    return result.exit_code


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


def _new(given: CommandLine, dimensions: dict[str, str], env_values: dict[str, str], place: Place) -> Study:
    named = given.values.get(("settings", "env"))
    if named is not None:
        named = given.values["settings", "env"] = name_of(named)
    beginning = train.Place(preset=place.preset, config=place.config, trust=place.trust)
    base = train.base_config(named, beginning, given.values.get(("settings", "algorithm")))
    base = train.with_flags(base, given, env_values)
    space = {} if place.space is None else read_space(place.space)
    for name in dimensions:
        if name in space:
            raise ConfigError(f"{flag(name)} and {place.space} both say how {name} varies; leave one out")
    settings = given.laid_over(StudySettings(), ("study",))
    return new_study(base, {**space, **dimensions}, settings, place.studies_dir, place.study_name)


def _resumed(given: CommandLine, varied: list[str], place: Place) -> Study:
    """Open the study of --resume, with a new budget if one is given; refuses everything else."""
    assert place.resume is not None
    allowed = {("place", name) for name in ("resume", "studies_dir", "display", "trust", "ray")}
    allowed |= {("study", name) for name in BUDGET}
    refused = [flag(name) for name in varied] + [flag(path[-1]) for path in given.values if path not in allowed]
    if refused:
        raise ConfigError(
            f"{refused[0]} cannot change when a study is resumed: it is frozen in study.toml. Only "
            f"{', '.join(flag(name) for name in BUDGET)} may; to change more, begin a new study"
        )
    changes = {path[-1]: value for path, value in given.values.items() if path[0] == "study"}
    return resumed_study(find_study(place.resume, place.studies_dir), changes, trust=place.trust)
