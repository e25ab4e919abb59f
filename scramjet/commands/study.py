"""`scramjet tune`: runs a new or resumed study."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from scramjet.commands.arguments import train
from scramjet.commands.arguments.tune import Given, Place, read_space
from scramjet.commands.command_line import CommandLine
from scramjet.errors import ConfigError
from scramjet.runs.world_trust import Caller, name_of
from scramjet.runtime.trust import said
from scramjet.settings import flag
from scramjet.tuning.api import go_on, new_study, resumed_study
from scramjet.tuning.display import make_display
from scramjet.tuning.results import TuneResult
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.space import Space
from scramjet.tuning.study import BUDGET, Study
from scramjet.tuning.trials import TrialServer


def run_study(given: Given, find: Callable[[str, Path], Path], show: Callable[[Study, TuneResult], None]) -> int:
    """Run a new study, or the one that `find` finds, and show what came of it; returns the exit code."""
    place = given.place
    with contextlib.closing(TrialServer(may_fork=True)) as server:
        if place.resume is not None:
            study = _resumed(
                find, given.line, [*given.dimensions, *(f"env.{name}" for name in given.env_values)], place
            )
        else:
            study = _new(given.line, given.dimensions, given.env_values, place)
        with study:
            result = go_on(study, make_display(place.display), server, ray=place.ray)
            if place.display != "quiet":
                show(study, result)
    return result.exit_code


def _new(given: CommandLine, dimensions: dict[str, str], env_values: dict[str, str], place: Place) -> Study:
    named = given.values.get(("settings", "env"))
    if named is not None:
        named = given.values["settings", "env"] = name_of(named)
    beginning = train.Place(preset=place.preset, config=place.config, trust=place.trust)
    base = train.base_config(named, beginning, given.values.get(("settings", "algorithm")))
    base = train.with_flags(base, given, env_values)
    space = {} if place.space is None else read_space(place.space)
    if space:
        Space(space, base, Caller(said(place.trust)), str(place.space))
    for name in dimensions:
        if name in space:
            raise ConfigError(f"{flag(name)} and {place.space} both say how {name} varies; leave one out")
    settings = given.laid_over(StudySettings(), ("study",))
    return new_study(base, {**space, **dimensions}, settings, place.studies_dir, place.study_name)


def _resumed(find: Callable[[str, Path], Path], given: CommandLine, varied: list[str], place: Place) -> Study:
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
    return resumed_study(find(place.resume, place.studies_dir), changes, trust=place.trust)
