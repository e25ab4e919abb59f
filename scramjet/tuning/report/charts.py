"""The plots of a study as data: points, bars and their axes, for whoever draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scramjet.reports.groups import value_text
from scramjet.telemetry.readable import human_duration, human_number
from scramjet.training.display.chart import ticks_within
from scramjet.tuning.report.importance import importances
from scramjet.tuning.report.results import Setting, StudyResults, TrialState, TrialSummary
from scramjet.tuning.report.table import setting_text

Role = Literal["trial", "stopped", "front", "winner", "searched", "repeat", "bar"]
"""What marks stand for; each has its own colour and shape."""
ROLE_LABELS: dict[Role, str] = {
    "trial": "trial",
    "stopped": "stopped early",
    "front": "Pareto front",
    "winner": "winner",
    "searched": "in the search",
    "repeat": "mean of fresh seeds",
}
MOST_TICKS = 6
"""Labels of a logarithmic axis."""
_MOST_SETTINGS = 12
"""Settings that have a plot of their own: the most important ones."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Points of one kind; joined by steps where they are a front."""

    role: Role
    x: tuple[float, ...]
    y: tuple[float, ...]
    texts: tuple[str, ...]
    """What each point says when pointed at."""
    errors: tuple[float, ...] = ()
    """Half the length of the bar through each point; none where it is empty."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One plot: marks over an axis, or bars beside names."""

    title: str
    x_title: str
    y_title: str
    marks: tuple[Marks, ...]
    x_is_log: bool = False
    categories: tuple[str, ...] = ()
    """Names at the places 0, 1, 2... of the x axis; of the y axis where there are bars."""
    has_legend: bool = False
    note: str = ""
    """A sentence below the plot."""

    @property
    def has_bars(self) -> bool:
        """Whether it shows bars beside names."""
        return any(marks.role == "bar" for marks in self.marks)

    @property
    def log_ticks(self) -> tuple[float, ...]:
        """The places of labels on a logarithmic x axis."""
        places = [x for marks in self.marks for x in marks.x]
        return log_ticks(min(places), max(places))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Round numbers for a logarithmic axis, about from `low` to `high`, with room for their labels.

    1, 2, 5, 10 where so many are few enough, or 1, 3, 10, or whole powers of ten; even steps where even 1, 2, 5 would
    be fewer than three.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 5), ((1,), 50)):
        powers = range(first - first % every, last + 1, every)
        ticks = tuple(float(f"{factor}e{power}") for power in powers for factor in factors)
        ticks = tuple(tick for tick in ticks if 0.9 * low <= tick <= 1.1 * high)
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) >= 3 or high <= low:
        return ticks or (low,)
    return tuple(float(f"{tick:.6g}") for tick in ticks_within(low, high, MOST_TICKS)[0])


def charts(results: StudyResults) -> list[Chart]:
    """The charts of a study that there are numbers for, in reading order."""
    found = [cost_chart(results), repeats_chart(results), importance_chart(results)]
    order = [each.setting for each in importances(results)] or [setting.name for setting in results.settings]
    by_name = {setting.name: setting for setting in results.settings}
    found += [slice_chart(results, by_name[name]) for name in order[:_MOST_SETTINGS]]
    return [chart for chart in found if chart is not None]


def cost_chart(results: StudyResults) -> Chart | None:
    """Score against time of training, with the Pareto front."""
    priced = [trial for trial in _drawn(results) if trial.seconds is not None]
    if not priced:
        return None
    front = [trial for trial in results.pareto_front() if trial in priced]
    seconds = [_seconds(trial) for trial in priced]
    marks = _by_role(results, priced, seconds)
    if len(front) > 1:
        x = tuple(_seconds(trial) for trial in front)
        marks = (Marks("front", x, tuple(map(_score, front)), tuple(map(trial_text, front))), *marks)
    is_log = min(seconds) > 0 and max(seconds) > 20 * min(seconds)
    note = "No trial is both better and faster than one on the Pareto front."
    return Chart("Score against cost", "training time (seconds)", "score", marks, is_log, has_legend=True, note=note)


def repeats_chart(results: StudyResults) -> Chart | None:
    """The score of the search beside the mean of the repeated seeds, for each of the best."""
    found = [(trial, spread) for trial in results.with_repeats() if (spread := trial.repeated) is not None]
    repeated = [(trial, spread) for trial, spread in found if trial.score is not None and math.isfinite(spread.mean)]
    if not repeated:
        return None
    places = tuple(float(place) for place in range(len(repeated)))
    searched = Marks(
        "searched",
        tuple(place - 0.12 for place in places),
        tuple(_score(trial) for trial, _ in repeated),
        tuple(f"trial {trial.number} in the search: {human_number(trial.score)}" for trial, _ in repeated),
    )
    again = Marks(
        "repeat",
        tuple(place + 0.12 for place in places),
        tuple(spread.mean for _, spread in repeated),
        tuple(
            f"trial {trial.number}: mean of {spread.count} fresh seeds {human_number(spread.mean)}"
            for trial, spread in repeated
        ),
        errors=tuple(spread.half_width if spread.count > 1 else 0.0 for _, spread in repeated),  # one seed has no bar
    )
    note = (
        "The best of many trials owes part of its score to luck; fresh seeds show how much. Bars: 95 % "
        "intervals over the seeds. The winner stands first."
    )
    names = tuple(f"trial {trial.number}" for trial, _ in repeated)
    return Chart(
        "Search and repeated seeds", "", "score", (searched, again), categories=names, has_legend=True, note=note
    )


def importance_chart(results: StudyResults) -> Chart | None:
    """How much each setting matters."""
    found = importances(results)
    if not found:
        return None
    texts = tuple(
        f"{each.share:.0%}{'' if math.isnan(each.trend) else f', rank correlation {each.trend:+.2f}'}" for each in found
    )
    bars = Marks("bar", tuple(each.share for each in found), tuple(map(float, range(len(found)))), texts)
    note = (
        f"Share of the variance of the scores' ranks that each setting explains by itself (epsilon squared over groups "
        f"of equal choices, or quarters of the numbers; {len(results.ranked())} trials). What settings do only "
        f"together is not seen."
    )
    names = tuple(each.setting for each in found)
    return Chart("Importance of settings", "variance explained", "", (bars,), categories=names, note=note)


def slice_chart(results: StudyResults, setting: Setting) -> Chart | None:
    """Score against one setting."""
    trials = [trial for trial in _drawn(results) if setting.name in trial.settings]
    values = [trial.settings[setting.name] for trial in trials]
    if not trials:
        return None
    if setting.scale != "choice":
        marks = _by_role(results, trials, [float(value) for value in values])
        return Chart("", setting.name, "score", marks, setting.scale == "log")
    texts = {repr(value): value for value in values}
    numbers = all(isinstance(value, int | float) for value in texts.values())
    order = sorted(texts, key=lambda text: (float(texts[text]), "") if numbers else (0.0, text))
    places = [order.index(repr(value)) + _jitter(trial) for value, trial in zip(values, trials, strict=True)]
    marks = _by_role(results, trials, places)
    names = tuple(value_text(texts[text], 20) for text in order)
    return Chart("", setting.name, "score", marks, categories=names)


def trial_text(trial: TrialSummary) -> str:
    """A trial in a few lines: what it says when pointed at."""
    settings = [f"{name} {setting_text(value)}" for name, value in trial.settings.items()]
    score = f"score {human_number(trial.score)}, {human_duration(trial.seconds)}"
    return "\n".join([f"trial {trial.number}", score, *settings])


def _drawn(results: StudyResults) -> list[TrialSummary]:
    """The trials that have a place in a plot: a return that is never reached has none."""
    return [trial for trial in results.ranked() if math.isfinite(_score(trial))]


def _by_role(results: StudyResults, trials: Sequence[TrialSummary], x: Sequence[float]) -> tuple[Marks, ...]:
    """Trials as marks: those that finished, those that were stopped early, and the winner on top."""
    winner = results.winner()
    roles: list[Role] = [
        "winner" if trial is winner else "stopped" if trial.state == TrialState.STOPPED else "trial" for trial in trials
    ]
    found = []
    order: tuple[Role, ...] = ("stopped", "trial", "winner")
    for role in order:
        chosen = [place for place, each in enumerate(roles) if each == role]
        points = [(x[place], _score(trials[place]), trial_text(trials[place])) for place in chosen]
        if points:
            found.append(Marks(role, *(tuple(column) for column in zip(*points, strict=True))))
    return tuple(found)


def _jitter(trial: TrialSummary) -> float:
    """A place beside its choice's, the same each time, so that equal trials do not hide each other."""
    return ((trial.number * 0.618034) % 1 - 0.5) * 0.3


def _score(trial: TrialSummary) -> float:
    assert trial.score is not None
    return trial.score


def _seconds(trial: TrialSummary) -> float:
    assert trial.seconds is not None
    return trial.seconds
