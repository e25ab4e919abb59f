"""Makes the report of a study: reads its folder, writes table, page and winner into report/."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from scramjet.errors import RunError, ScramjetError
from scramjet.runtime.files import explain_disk_errors, is_folder, make_folder, write_atomic
from scramjet.runtime.trust import Approval
from scramjet.tuning.report.charts import charts
from scramjet.tuning.report.curves import best_curves
from scramjet.tuning.report.page import html_page
from scramjet.tuning.report.preset import preset_header, preset_text
from scramjet.tuning.report.reading import read_results, trial_config
from scramjet.tuning.report.results import StudyResults
from scramjet.tuning.report.table import markdown_table

TABLE, PAGE, WINNER = "table.md", "report.html", "winner.toml"


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a study, and the folder that tells of them."""

    results: StudyResults
    path: Path


def write_report(folder: Path, approval: Approval | None = None) -> Report:
    """Make the report of the study in a folder, in place of an earlier one.

    It may be made at any time, also while the study runs. `approval` lets the study name a world of code that this user
    has not named before; without it such a study has no winner.toml.
    """
    results = read_results(folder)
    preset, notes = _preset(folder, results, approval)
    results = replace(results, notes=(*results.notes, *notes))
    path = folder / "report"
    if os.path.lexists(path) and not is_folder(path):
        raise RunError(f"{path} is no folder; move it away, and make the report again")
    page = html_page(results, charts(results), best_curves(results, folder.resolve() / "runs"), preset)
    with explain_disk_errors(path):
        make_folder(path)
        write_atomic(path / TABLE, markdown_table(results).encode())
        write_atomic(path / PAGE, page)
        if preset:
            write_atomic(path / WINNER, preset.encode())
    return Report(results, path)


def _preset(folder: Path, results: StudyResults, approval: Approval | None) -> tuple[str, list[str]]:
    """The text of the winner's preset, empty where there is none, and a note that says why."""
    winner = results.winner()
    if winner is None:
        return "", []
    try:
        config = trial_config(folder, winner, approval)
        return preset_text(config, preset_header(results, winner, config)), []
    except ScramjetError as error:
        return "", [f"no winner.toml was written: {error}"]
