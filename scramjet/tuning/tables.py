"""The trials of a study as tables: for the terminal, as Markdown, and as rows for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scramjet.errors import printable
from scramjet.reports.groups import value_text
from scramjet.telemetry.readable import human_count, human_duration, human_number
from scramjet.tuning.results import Spread, StudyResults, TrialResult

MOST_SHOWN = 10
"""Trials in the terminal's table; table.md has all."""
_MARKDOWN_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#"})


# --- all trials


def rows(results: StudyResults) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns, and the cells of all trials: best first, then those that have no score."""
    ranked = results.ranked()
    places = [(str(rank), trial) for rank, trial in enumerate(ranked, 1)]
    places += [("", trial) for trial in results.trials if trial not in ranked]
    repeated = ["repeated seeds"] if any(trial.repeats for trial in results.trials) else []
    heads = ["rank", "trial", *results.settings, "score", *repeated, "time", "steps", "state"]
    return heads, [[rank, *_cells(trial, results.settings, bool(repeated))] for rank, trial in places]


def _cells(trial: TrialResult, names: Sequence[str], has_repeats: bool) -> list[str]:
    return [
        str(trial.number),
        *(setting_text(trial.settings[name]) if name in trial.settings else "" for name in names),
        "" if trial.score is None else human_number(trial.score),
        *(["" if trial.repeated is None else spread_text(trial.repeated)] if has_repeats else []),
        human_duration(trial.seconds) if trial.seconds else "",
        human_count(trial.steps) if trial.steps else "",
        trial.state,
    ]


def markdown_table(results: StudyResults) -> str:
    """All trials as a Markdown page, with the winner above and failures with their reasons below."""
    heads, cells = rows(results)
    lines = [f"# {_escaped(results.name)}", "", _escaped(f"{results.world}; score: {results.objective}"), ""]
    if winner := results.winner():
        lines += [_escaped(winner_line(winner)), ""]
    lines += [_row(heads), "|" + "---|" * len(heads), *map(_row, cells)]
    reasons = [f"- {_escaped(line)}" for line in failures(results)]
    lines += ["", "## Failures", "", *reasons] if reasons else []
    lines += ["", *(f"- {_escaped(note)}" for note in results.notes)] if results.notes else []
    return "\n".join(lines) + "\n"


def failures(results: StudyResults) -> list[str]:
    """A line for each trial and repeated seed that failed, with its reason."""
    failed = [trial for trial in results.trials if trial.state == "failed"]
    texts = [f"trial {trial.number} failed: {trial.reason or 'no reason was kept'}" for trial in failed]
    repeats = [repeat for trial in results.trials for repeat in trial.repeats if repeat.reason]
    return [_one_line(text) for text in [*texts, *(f"{each.run} failed: {each.reason}" for each in repeats)]]


def winner_line(winner: TrialResult) -> str:
    """What won and how sure that is."""
    settings = ", ".join(f"{name} {setting_text(value)}" for name, value in winner.settings.items())
    if winner.repeated is None:
        return f"best so far, of one seed: trial {winner.number} with {human_number(winner.score)}: {settings}"
    searched = f"; {human_number(winner.score)} in the search" if winner.score is not None else ""
    return f"winner: trial {winner.number} with {spread_text(winner.repeated)}{searched}: {settings}"


def spread_text(spread: Spread) -> str:
    """A mean over seeds, from three on with its 95 % interval: `475.2 ± 8.1 (3 seeds)`."""
    seeds = "1 seed" if spread.count == 1 else f"{spread.count} seeds"
    half_width = "" if math.isnan(spread.half_width) else f" ± {human_number(spread.half_width)}"
    return f"{human_number(spread.mean)}{half_width} ({seeds})"


def setting_text(value: Any) -> str:
    """A setting's value in about four digits."""
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _one_line(text).translate(_MARKDOWN_SPECIAL)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


# --- the best, within the width of a terminal


def terminal_table(results: StudyResults, width: int = 80) -> RenderableType:
    """The best trials with a line for each that failed, for a terminal of this width."""
    ranked = results.ranked()
    # The best, and besides those with repeated seeds.
    shown = [trial for place, trial in enumerate(ranked) if place < MOST_SHOWN or trial.repeats]
    lines: list[RenderableType] = []
    for table in _tables(results, shown, width) if shown else []:
        lines += [*([Text()] if lines else []), table]
    if len(ranked) > len(shown):
        lines.append(Text(f"and {len(ranked) - len(shown)} more in report/table.md", style="dim"))
    failed, winner = failures(results), results.winner()
    lines += [Text(line) for line in failed[:MOST_SHOWN]]
    if len(failed) > MOST_SHOWN:
        lines.append(Text(f"and {len(failed) - MOST_SHOWN} more failures in report/table.md"))
    lines += [Text(winner_line(winner))] if winner is not None else []
    return Group(*lines) if lines else Text("no trial has a score yet")


def _tables(results: StudyResults, shown: Sequence[TrialResult], width: int) -> list[Table]:
    """The trials' numbers with as many settings beside them as there is room for; the others in tables of their own."""
    columns = _number_columns(results, shown)
    tables = [list(columns)]
    for name in results.settings:
        head = printable(name.rpartition(".")[2]).replace("_", "\n")  # broken between its words
        column = (head, [printable(_digits(trial.settings.get(name, "-"))) for trial in shown])
        if _width([*tables[-1], column]) > width:
            tables.append(columns[:2])
        tables[-1].append(column)
    return [_table(each) for each in tables]


def _width(columns: Sequence[tuple[str, list[str]]]) -> int:
    return sum(2 + max(map(len, [*head.split("\n"), *cells])) for head, cells in columns) - 2


def _table(columns: Sequence[tuple[str, list[str]]]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head, _ in columns:
        table.add_column(Text(head), justify="right", no_wrap=True, vertical="bottom")
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def _number_columns(results: StudyResults, shown: Sequence[TrialResult]) -> list[tuple[str, list[str]]]:
    """Rank, trial, score and cost; steps, state and repeated seeds only where they tell something."""
    ranks = {trial.number: rank for rank, trial in enumerate(results.ranked(), 1)}
    columns = {
        "": [str(ranks[trial.number]) for trial in shown],
        "trial": [str(trial.number) for trial in shown],
        "score": [human_number(trial.score) for trial in shown],
        "mean ± 95 %": ["" if trial.repeated is None else spread_text(trial.repeated) for trial in shown],
        "time": [human_duration(trial.seconds or None) for trial in shown],
        "steps": [human_count(trial.steps) if trial.steps else "-" for trial in shown],
        "state": [str(trial.state) for trial in shown],
    }
    if not any(columns["mean ± 95 %"]):
        del columns["mean ± 95 %"]
    if set(columns["state"]) == {"complete"}:
        del columns["state"]
    return list(columns.items())


def _digits(value: Any) -> str:
    """A setting's value in three digits."""
    return f"{value:.3g}" if isinstance(value, float) else value_text(value, 12)
