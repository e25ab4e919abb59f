"""Learning curves of the best trials, each with the band of its repeated seeds."""

from __future__ import annotations

from pathlib import Path

from scramjet.errors import RunError
from scramjet.reports.curves import CurveSettings, Panel, Tables, panels
from scramjet.reports.groups import Configured, Group, configured
from scramjet.reports.run_files import RunFiles
from scramjet.tuning.report.results import StudyResults, TrialSummary
from scramjet.tuning.report.table import setting_text

MOST_CURVES = 5
_MOST_SETTINGS = 3


def best_curves(results: StudyResults, runs_path: Path) -> list[Panel]:
    """Panels of the best trials' curves, over steps and over time; those with repeated seeds before the others."""
    repeated = results.with_repeats()
    best = [*repeated, *(trial for trial in results.ranked() if trial not in repeated)][:MOST_CURVES]
    groups, runs = [], []
    for trial in best:
        found = _runs_of(trial, runs_path)
        groups.append(Group([each.run for each in found], _label(trial)))
        runs += found
    return panels(groups, runs, Tables(), CurveSettings([results.metric]))


def _runs_of(trial: TrialSummary, runs_path: Path) -> list[Configured]:
    """The runs of a trial whose configs can be read; where seeds are repeated, those alone, as luck chose the first."""
    names = [repeat.run for repeat in trial.repeats if repeat.score is not None] or [trial.run]
    found = []
    for name in names:
        path = runs_path / name
        if name and path.parent == runs_path and not path.is_symlink():
            try:
                found.append(RunFiles(path))
            except RunError:
                continue
    return configured(found)[0]


def _label(trial: TrialSummary) -> str:
    settings = [f"{name.rpartition('.')[2]} {setting_text(value)}" for name, value in trial.settings.items()]
    more = ", ..." if len(settings) > _MOST_SETTINGS else ""
    return f"trial {trial.number}: {', '.join(settings[:_MOST_SETTINGS])}{more}"
