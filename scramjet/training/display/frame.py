"""Composes a frame of the live view: the parts that fit the terminal's height, and the chart of returns in the rest."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from scramjet.training.display import view
from scramjet.training.display.view import Scene

MAX_HEIGHT = 60
MIN_CHART = 4
"""Lines of the smallest chart, its axis included."""
SMALL = 16
"""Below this height there are no diagnostics, and one line of notes."""
TALL = 34
"""From this height on there are small charts below the large one, and blank lines between the parts."""


@dataclass(frozen=True, slots=True, eq=False)  # two parts may have the same lines
class Part:
    """Lines of the view, and their rank: if there is too little room, parts of lowest rank are left out first."""

    lines: list[Text]
    rank: int
    gap_before: bool = False
    """Whether a blank line before it makes it easier to read."""


def compose(scene: Scene) -> list[Text]:
    """The lines of a frame, at most as many as the terminal has, none of them wrapped."""
    height = min(scene.height, MAX_HEIGHT)
    is_tall = height >= TALL
    notes = view.notes(scene, 5 if is_tall else 3 if height >= SMALL else 1)
    above = [Part(view.title(scene), 8), Part(view.size(scene), 1), Part(view.progress(scene), 10)]
    above.append(Part(view.headline(scene), 11, gap_before=True))
    below = [Part(view.evaluation(scene), 7)]
    if is_tall:
        below.append(Part(view.panels(scene, max(6, height // 6)), 4, gap_before=True))
    else:
        below.append(Part(view.statistics(scene), 5))
    below += [Part(view.load(scene), 3, gap_before=True), Part(view.phases(scene), 2)]
    if height >= SMALL:
        below += [Part([line], 6, gap_before=i == 0) for i, line in enumerate(view.diagnostics(scene))]
    below.append(Part(notes, 9, gap_before=True))
    kept = _kept([*above, *below], height - MIN_CHART)
    gaps = is_tall
    room = height - sum(len(part.lines) + (gaps and part.gap_before) for part in kept)
    chart = view.return_chart(scene, room) if room >= MIN_CHART else []
    lines = _joined([part for part in above if part in kept], gaps)
    lines += chart
    lines += _joined([part for part in below if part in kept], gaps)
    lines = lines[:height]
    for line in lines:
        line.no_wrap, line.overflow = True, "crop"
    return lines


def _kept(parts: list[Part], height: int) -> list[Part]:
    """The parts that fit, in their order; of equal rank the last is left out first. The two highest always stay."""
    kept = [part for part in parts if part.lines]
    while sum(len(part.lines) for part in kept) > height and len(kept) > 2:
        lowest = min(part.rank for part in kept)
        last = max(i for i, part in enumerate(kept) if part.rank == lowest)
        del kept[last]
    return kept


def _joined(parts: list[Part], gaps: bool) -> list[Text]:
    lines: list[Text] = []
    for part in parts:
        if gaps and part.gap_before:
            lines.append(Text())
        lines.extend(part.lines)
    return lines
