"""The comparison as Markdown: what was measured, as medians with their spread and their ratio to scramjet."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

TITLES = {
    "env": "Env steps per second, {num_envs} envs, random actions",
    "training": "Steps trained per second",
    "solve": "Seconds from the start of the process to a solved CartPole",
    "gae": "GAE of [128, 1024] float32, steps per second",
}


@dataclass
class Figure:
    """One library's repeats of one measurement."""

    peer: str
    work: str
    num_envs: int
    values: list[float] = field(default_factory=list)
    """Steps per second, or seconds."""
    failure: str | None = None
    """Why there are fewer values than repeats, if so."""
    settings: str = ""
    others: list[float] = field(default_factory=list)
    """Cores that other programs kept busy meanwhile, in each repeat."""
    env_steps: list[int] = field(default_factory=list)
    """Solve: steps that it took."""

    @property
    def median(self) -> float | None:
        """The middle value, if there is any."""
        return statistics.median(self.values) if self.values else None


def markdown(
    figures: list[Figure], titles: dict[str, str], absent: dict[tuple[str, str], str], facts: dict[str, Any]
) -> str:
    """The whole report; `titles` names each peer, `absent` says why (peer, work) was not measured."""
    parts = ["\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for work in TITLES:
        chosen = [figure for figure in figures if figure.work == work]
        if not chosen:
            continue
        heading = TITLES[work].format(num_envs=chosen[0].num_envs)
        sizes = sorted({figure.num_envs for figure in chosen})
        parts.append(f"### {heading}\n\n{_table(chosen, titles, sizes, work)}")
        notes = [f"- {titles[peer]}: {why}" for (peer, of), why in absent.items() if of == work and peer in titles]
        if notes:
            parts.append("\n".join(["Not measured:", "", *notes]))
    return "\n\n".join(parts) + "\n"


def _table(figures: list[Figure], titles: dict[str, str], sizes: list[int], work: str) -> str:
    """A row a library, two columns a size: the median with its spread, and scramjet's lead."""
    heads = [f"{size} envs" if work == "training" else "median (lowest to highest)" for size in sizes]
    lines = [_row(["library", *(cell for head in heads for cell in (head, "ratio")), "settings"])]
    lines.append(_row(["---"] * (2 + 2 * len(sizes))))
    found = {(figure.peer, figure.num_envs): figure for figure in figures}
    for peer in (name for name in titles if any(figure.peer == name for figure in figures)):
        cells: list[str] = [titles[peer]]
        for size in sizes:
            figure, ours = found.get((peer, size)), found.get(("scramjet", size))
            cells += [_cell(figure), _lead(figure, ours, work)]
        cells.append(next((f.settings for f in figures if f.peer == peer and f.settings), ""))
        lines.append(_row(cells))
    return "\n".join(lines)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    if figure.median is None:
        return figure.failure or "-"
    show = seconds if figure.work == "solve" else human
    text = f"{show(figure.median)} ({show(min(figure.values))} to {show(max(figure.values))})"
    return f"{text}; {figure.failure}" if figure.failure else text


def _lead(figure: Figure | None, ours: Figure | None, work: str) -> str:
    """How many times as fast scramjet is; under 1 it loses."""
    if figure is None or ours is None or figure.median is None or ours.median is None:
        return "-"
    ratio = figure.median / ours.median
    lead = ratio if work == "solve" else 1 / ratio
    return f"{lead:.0f}" if lead >= 10 else f"{lead:.2f}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def seconds(value: float) -> str:
    """Seconds with a tenth."""
    return f"{value:.1f}"


def human(rate: float) -> str:
    """Three digits and a K or an M."""
    for size, letter in ((1e6, "M"), (1e3, "K")):
        if rate >= size:
            scaled = rate / size
            return f"{scaled:.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {letter}"
    return f"{rate:.0f}"
