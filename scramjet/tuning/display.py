"""What a user sees of a study: a line for each trial that ended, and in a terminal a table of those that run."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scramjet.errors import printable
from scramjet.runtime.terminal import is_screen
from scramjet.telemetry.readable import human_count, human_duration, human_number, short_path
from scramjet.tuning.methods.interface import seconds_left
from scramjet.tuning.methods.searches import repeats, result_of_repeat
from scramjet.tuning.results import TrialResult, ranked, trial_results
from scramjet.tuning.storage import REASON, SCORE, SEED, Outcome
from scramjet.tuning.study import Study
from scramjet.tuning.trials import TrialRun

DisplayMode = Literal["auto", "live", "plain", "quiet"]
REDRAW_SECONDS = 0.5


class StudyDisplay:
    """Shows a study while it runs; this one shows nothing."""

    def begin(self, study: Study) -> None:
        """Called once, before anything runs."""

    def show(self, study: Study, runs: list[TrialRun], seconds: float) -> None:
        """Called often: what runs now, and the seconds that the study has run."""

    def told(self, study: Study, outcome: Outcome) -> None:
        """Called when a stretch has ended and is in study.db."""

    def event(self, text: str) -> None:
        """A line for the user; also from within a signal handler."""

    def close(self) -> None:
        """Called once, when nothing runs any more."""


class PlainDisplay(StudyDisplay):
    """Prints a line when the study begins and for each trial that ends."""

    def begin(self, study: Study) -> None:
        """Say what the study is about."""
        self.event(study_line(study))

    def told(self, study: Study, outcome: Outcome) -> None:
        """Print the trial's line."""
        repeat = result_of_repeat(study, outcome.assignment)
        if repeat is not None:
            self.event(repeat_line(outcome, repeat))
            return
        results = trial_results(study)
        best = next(iter(ranked(results, minimizes=study.objective.minimizes)), None)
        self.event(trial_line(results[outcome.assignment.trial], best))

    def event(self, text: str) -> None:
        """Print a line."""
        print(printable(text), flush=True)


class LiveDisplay(PlainDisplay):
    """Plain lines, and under them a table of the trials that run, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn_at = 0.0

    def begin(self, study: Study) -> None:
        """Say what the study is about, and begin to draw."""
        super().begin(study)
        self._live.start()

    def show(self, study: Study, runs: list[TrialRun], seconds: float) -> None:
        """Draw the table, a few times a second at most."""
        now = time.monotonic()
        if now - self._drawn_at >= REDRAW_SECONDS:
            self._drawn_at = now
            self._live.update(running_table(study, runs, seconds), refresh=True)

    def event(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(Text(printable(text)))

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()


def make_display(mode: DisplayMode) -> StudyDisplay:
    """The display for a mode; auto: live in a terminal, plain lines elsewhere."""
    if mode == "quiet":
        return StudyDisplay()
    if mode == "live" or (mode == "auto" and is_screen(sys.stdout)):
        screen = Console(force_terminal=True)
        if not screen.is_jupyter:  # a notebook's output cannot be drawn over
            return LiveDisplay(screen)
    return PlainDisplay()


def study_line(study: Study) -> str:
    """What a study is about, in one line."""
    settings, slots = study.settings, study.settings.slots(study.base)
    budget = [f"{settings.most_trials} trials" if settings.most_trials else ""]
    budget += [f"{human_count(settings.steps)} steps" if settings.steps else ""]
    budget += [f"{settings.hours:g} hours" if settings.hours else ""]
    threads = f"{study.threads} thread{'s' * (study.threads > 1)} each"
    return (
        f"{short_path(study.path)}: {settings.method} over {', '.join(study.space.as_table())}; objective "
        f"{settings.objective} ({'lower' if study.objective.minimizes else 'higher'} is better); "
        f"{', '.join(part for part in budget if part)}, {slots} at once, {threads}"
    )


def trial_line(trial: TrialResult, best: TrialResult | None) -> str:
    """How a trial ended, in one line."""
    settings = settings_text(trial.settings)
    if trial.state == "failed":
        return f"trial {trial.number}: failed  {settings}: {' '.join(trial.reason.split())}"
    used = f"{human_count(trial.steps)} steps in {human_duration(trial.seconds)}"
    if trial.state != "complete":
        return f"trial {trial.number}: {human_number(trial.score)} at {used}, {trial.state}  {settings}"
    cost = "" if trial.cost is None else f" at cost {human_number(trial.cost)}"
    mark = "  best so far" if best is not None and best.number == trial.number else ""
    return f"trial {trial.number}: {human_number(trial.score)}{cost}  {settings}  {used}{mark}"


def repeat_line(outcome: Outcome, result: Mapping[str, Any]) -> str:
    """How a repeated seed ended, in one line."""
    which = f"trial {outcome.assignment.trial}, seed {result[SEED]}"
    if result[SCORE] is None:
        return f"{which}: failed: {' '.join(str(result[REASON]).split())}"
    used = f"{human_count(outcome.step)} steps in {human_duration(outcome.seconds)}"
    return f"{which}: {human_number(result[SCORE])}  {used}"


def settings_text(settings: Mapping[str, Any]) -> str:
    """The settings of a trial: learning_rate=0.00312 num_envs=256."""
    return " ".join(f"{name}={_value_text(value)}" for name, value in settings.items())


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def running_table(study: Study, runs: list[TrialRun], seconds: float) -> Group:
    """The trials that run now, and where the study stands."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("trial", "step", "of", "score"):
        table.add_column(name, justify="right", style="bold" if name == "trial" else "")
    table.add_column("settings", overflow="ellipsis", no_wrap=True)
    for run in runs:
        progress, assignment = run.progress(), run.assignment
        settings = settings_text(study.space.settings(assignment.parameters))
        stop = assignment.stop_step or progress.total_steps
        numbers = human_count(progress.step), human_count(stop), human_number(progress.score)
        seed = "" if assignment.seed is None else f" seed {assignment.seed}"
        table.add_row(f"{assignment.trial}{seed}", *numbers, Text(printable(settings)))
    return Group(table, Text(standing(study, seconds), style="dim"))


def standing(study: Study, seconds: float) -> str:
    """Where a study stands: trials done, the best, time and what is left of it."""
    results, most = trial_results(study), study.settings.most_trials
    done = sum(trial.state in ("complete", "pruned", "failed") for trial in results)
    parts = [f"{done} of {most} trials done" if most else f"{done} trials done"]
    paused = sum(trial.state == "paused" for trial in results)
    parts += [f"{paused} paused"] if paused else []
    best = next(iter(ranked(results, minimizes=study.objective.minimizes)), None)
    parts += [f"best {human_number(best.score)} (trial {best.number})"] if best else []
    left = seconds_left(study, seconds)
    waiting = len(repeats(study)) if most and done >= most else 0
    if waiting:
        return ", ".join([*parts, f"{waiting} runs with fresh seeds to go", human_duration(seconds)])
    if most and done and study.settings.hours is None:
        left = seconds / done * (most - done)
    parts += [human_duration(seconds), f"about {human_duration(left)} left" if math.isfinite(left) else ""]
    return ", ".join(part for part in parts if part)
