"""The table of a study's trials: for the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from scramjet.errors import printable
from scramjet.reports.groups import value_text
from scramjet.telemetry.readable import human_count, human_duration, human_number
from scramjet.tuning.report.results import Spread, StudyResults, TrialState, TrialSummary

MOST_SHOWN = 10
"""Trials in the terminal's table; table.md has all."""
_MARKDOWN_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#"})
_STATES = {TrialState.STOPPED: "stopped", TrialState.FINISHED: "done"}


def terminal_table(results: StudyResults, width: int = 80, most: int = MOST_SHOWN) -> RenderableType:
    """The best trials with a line for each that failed, for a terminal of this width."""
    ranked = results.ranked()
    # The best, and besides those with repeated seeds.
    shown = [trial for place, trial in enumerate(ranked) if place < most or trial.repeats]
    rest = len(ranked) - len(shown)
    lines: list[RenderableType] = []
    for table in _tables(results, shown, width) if shown else []:
        lines += [*([Text()] if lines else []), table]
    if rest > 0:
        lines.append(Text(f"and {rest} more in report/table.md", style="dim"))
    lines += [Text(line) for line in _endings(results)]
    return Group(*lines) if lines else Text("no trial has a score yet")


def as_text(renderable: RenderableType, width: int = 80) -> str:
    """What a terminal of this width shows, without colours."""
    console = Console(width=width, color_system=None, highlight=False, file=None, record=True, quiet=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def markdown_table(results: StudyResults) -> str:
    """All trials as a Markdown page: best first, then those that run or wait, then failures with their reasons."""
    ranked = results.ranked()
    names = [setting.name for setting in results.settings]
    has_repeats = any(trial.repeats for trial in results.trials)
    header = ["rank", "trial", *names, "score", *(["repeated seeds"] if has_repeats else []), "time", "steps", "state"]
    others = [trial for trial in results.trials if trial not in ranked]
    rows = [[str(rank), *_cells(trial, names, has_repeats)] for rank, trial in enumerate(ranked, 1)]
    rows += [["", *_cells(trial, names, has_repeats)] for trial in others]
    lines = [f"# {_escaped(results.name)}", "", _escaped(f"{results.world}; score: {results.objective}"), ""]
    if winner := results.winner():
        lines += [_escaped(winner_line(results, winner)), ""]
    lines += [_row(header), "|" + "---|" * len(header), *map(_row, rows)]
    reasons = [f"- {_escaped(line)}" for line in failures(results)]
    lines += ["", "## Failures", "", *reasons] if reasons else []
    lines += ["", *(f"- {_escaped(note)}" for note in results.notes)] if results.notes else []
    return "\n".join(lines) + "\n"


def failures(results: StudyResults) -> list[str]:
    """A line for each trial and repeated seed that failed, with its reason."""
    trials = [f"trial {trial.number} failed: {trial.reason or 'no reason was kept'}" for trial in results.failed()]
    repeats = [repeat for trial in results.trials for repeat in trial.repeats]
    return [
        _one_line(text) for text in [*trials, *(f"{each.run} failed: {each.reason}" for each in repeats if each.reason)]
    ]


def winner_line(results: StudyResults, winner: TrialSummary) -> str:
    """What won and how sure that is."""
    settings = ", ".join(f"{name} {setting_text(value)}" for name, value in winner.settings.items())
    repeated = winner.repeated
    if repeated is None:
        return f"best so far, of one seed: trial {winner.number} with {human_number(winner.score)}: {settings}"
    searched = f"; {human_number(winner.score)} in the search" if winner.score is not None else ""
    return f"winner: trial {winner.number} with {spread_text(repeated)}{searched}: {settings}"


def spread_text(spread: Spread) -> str:
    """A mean with its 95 % interval over seeds, such as `475.2 ± 8.1 (3 seeds)`."""
    seeds = "1 seed" if spread.count == 1 else f"{spread.count} seeds"
    half_width = f" ± {human_number(spread.half_width)}" if spread.count > 1 else ""
    return f"{human_number(spread.mean)}{half_width} ({seeds})"


def setting_text(value: Any) -> str:
    """A setting's value in about four digits."""
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)


def _tables(results: StudyResults, shown: Sequence[TrialSummary], width: int) -> list[Table]:
    """The trials' numbers with as many settings beside them as there is room for; the others in tables of their own."""
    columns = _number_columns(results, shown)
    settings = [
        (_header(setting.name), [_digits(trial.settings.get(setting.name, "-")) for trial in shown])
        for setting in results.settings
    ]
    tables = [_Columns(columns, width)]
    for head, cells in settings:
        if not tables[-1].add(head, cells):
            numbers = _Columns(columns[:2], width)
            numbers.add(head, cells)
            tables.append(numbers)
    return [each.table() for each in tables]


class _Columns:
    """Columns side by side that fit the width of a terminal."""

    def __init__(self, columns: Sequence[tuple[str, list[str]]], width: int) -> None:
        self._columns, self._width = list(columns), width

    def add(self, head: str, cells: list[str]) -> bool:
        """Add a column if there is room; returns whether there was."""
        wider = [*self._columns, (head, cells)]
        needed = sum(2 + max(map(len, [*head.split("\n"), *cells])) for head, cells in wider) - 2
        if needed <= self._width:
            self._columns = wider
        return needed <= self._width

    def table(self) -> Table:
        """The columns for the terminal."""
        table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for head, _ in self._columns:
            table.add_column(Text(head), justify="right", no_wrap=True, vertical="bottom")
        for row in zip(*(cells for _, cells in self._columns), strict=True):
            table.add_row(*(Text(printable(cell)) for cell in row))
        return table


def _number_columns(results: StudyResults, shown: Sequence[TrialSummary]) -> list[tuple[str, list[str]]]:
    """Rank, trial, score and cost; steps, state and repeated seeds only where they tell something."""
    ranks = {trial.number: rank for rank, trial in enumerate(results.ranked(), 1)}
    columns = {
        "": [str(ranks[trial.number]) for trial in shown],
        "trial": [str(trial.number) for trial in shown],
        "score": [human_number(trial.score) for trial in shown],
        "mean ± 95 %": ["" if trial.repeated is None else spread_text(trial.repeated) for trial in shown],
        "time": [human_duration(trial.seconds) for trial in shown],
        "steps": ["-" if trial.steps is None else human_count(trial.steps) for trial in shown],
        "state": [_STATES.get(trial.state, str(trial.state)) for trial in shown],
    }
    if not any(columns["mean ± 95 %"]):
        del columns["mean ± 95 %"]
    if set(columns["state"]) == {"done"}:
        del columns["state"]
    return list(columns.items())


def _digits(value: Any) -> str:
    """A setting's value in three digits."""
    return f"{value:.3g}" if isinstance(value, float) else value_text(value, 12)


def _header(name: str) -> str:
    """A setting's name over a narrow column, broken between its words."""
    return printable(_short(name)).replace("_", "\n")


def _short(name: str) -> str:
    """`hidden` for `policy.hidden`."""
    return name.rpartition(".")[2]


def _endings(results: StudyResults) -> list[str]:
    lines = failures(results)
    if len(lines) > MOST_SHOWN:
        lines = [*lines[:MOST_SHOWN], f"and {len(lines) - MOST_SHOWN} more failures in report/table.md"]
    winner = results.winner()
    return lines if winner is None else [*lines, winner_line(results, winner)]


def _cells(trial: TrialSummary, names: Sequence[str], has_repeats: bool) -> list[str]:
    repeated = trial.repeated
    return [
        str(trial.number),
        *(setting_text(trial.settings[name]) if name in trial.settings else "" for name in names),
        "" if trial.score is None else human_number(trial.score),
        *(["" if repeated is None else spread_text(repeated)] if has_repeats else []),
        "" if trial.seconds is None else human_duration(trial.seconds),
        "" if trial.steps is None else human_count(trial.steps),
        str(trial.state),
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _one_line(text).translate(_MARKDOWN_SPECIAL)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))
