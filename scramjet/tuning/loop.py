"""A study, from start to end. Read `run_study` first: its body is the loop, every call in it one stage.

ask     the method decides what to run next, from study.db      methods/
start   each stretch of a run gets a process of its own         trials.py
watch   processes end, are killed and started again             trials.py
tell    scores go into study.db                                 methods/, study.py
"""

from __future__ import annotations

import time

from scramjet.errors import ConfigError
from scramjet.runtime.signals import StopSignal
from scramjet.tuning.display import StudyDisplay
from scramjet.tuning.methods.interface import Method, seconds_left
from scramjet.tuning.storage import REASON, Assignment, Outcome
from scramjet.tuning.study import Study
from scramjet.tuning.trials import TrialRun, TrialServer

POLL_SECONDS = 0.05
HOPELESS_TRIALS = 3
"""If so many trials have failed and none has not, the study ends: the next would fail too."""


def run_study(study: Study, method: Method, display: StudyDisplay, server: TrialServer) -> int:
    """Run a study until its budget is spent, or until a signal stops it; what ran then is resumed the next time.

    `server` starts the trials. Returns the exit code: 0, or 128 and the number of the signal.
    """
    clock, slots = StudyClock(study), server.slots(study)
    crew = Crew(study, server)
    with StopSignal(notify=display.event) as stop, crew:
        waiting, has_news = _left_over(study, method), True
        while True:
            is_over = stop.was_requested() or clock.is_over()
            if is_over:
                crew.stop()
            elif has_news:
                free = slots - len(crew)
                waiting = waiting or method.next(study, free)
                for assignment in waiting[:free]:
                    crew.start(assignment)
                waiting = waiting[free:]
            display.show(study, crew.runs, clock.seconds)
            if not crew:
                break
            has_news = False
            for outcome in crew.ended():
                has_news = True
                if outcome.ending != "stopped":
                    method.told(study, outcome)
                    clock.note()
                    display.told(study, outcome)
                    _refuse_hopeless(study, HOPELESS_TRIALS)
            time.sleep(POLL_SECONDS)
        clock.note()
        if not is_over:
            _refuse_hopeless(study, 1)
            method.finish(study)
        return stop.exit_code


def _left_over(study: Study, method: Method) -> list[Assignment]:
    """What a study that was stopped or killed has still to run before anything new."""
    unbegun = [method.first(study, trial) for trial in study.unbegun()]
    for assignment in unbegun:
        study.begin(assignment)
    return study.interrupted()


class Crew:
    """The runs that are under way; when left, their processes are ended."""

    def __init__(self, study: Study, server: TrialServer) -> None:
        self.runs: list[TrialRun] = []
        self._study, self._server = study, server
        self._failed: list[Outcome] = []

    def __len__(self) -> int:
        return len(self.runs) + len(self._failed)

    def start(self, assignment: Assignment) -> None:
        """Start a stretch; one whose settings do not fit each other has failed, and `ended` tells."""
        try:
            run = TrialRun(self._study, assignment, self._server)
        except ConfigError as error:
            self._failed.append(Outcome(assignment, "failed", reason=str(error)))
            return
        self.runs.append(run)
        run.start()

    def ended(self) -> list[Outcome]:
        """The stretches that have ended since the last call."""
        outcomes, self._failed = self._failed, []
        for run in list(self.runs):
            outcome = run.poll()
            if outcome is not None:
                self.runs.remove(run)
                outcomes.append(outcome)
        return outcomes

    def stop(self) -> None:
        """Ask all runs to stop with a checkpoint."""
        for run in self.runs:
            run.stop()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self.runs:
            run.kill()


class StudyClock:
    """The seconds that a study has run, in this process and earlier ones."""

    def __init__(self, study: Study) -> None:
        self._study, self._before, self._started = study, study.spent_seconds, time.monotonic()

    @property
    def seconds(self) -> float:
        """All seconds so far."""
        return self._before + time.monotonic() - self._started

    def is_over(self) -> bool:
        """Whether the study's hours are spent."""
        return seconds_left(self._study, self.seconds) <= 0

    def note(self) -> None:
        """Keep the seconds in study.db."""
        self._study.note_seconds(self.seconds)


def _refuse_hopeless(study: Study, least: int) -> None:
    """End a study of which so many trials have failed and none has a score, with the reason of the last."""
    trials = study.trials()
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    is_any_good = any(trial.state.name in ("COMPLETE", "PRUNED") or trial.intermediate_values for trial in trials)
    if len(failed) >= least and not is_any_good:
        reason = failed[-1].user_attrs.get(REASON, "it is not known why")
        raise ConfigError(f"the first {len(failed)} trials of {study.path} have failed, and the study ends: {reason}")
