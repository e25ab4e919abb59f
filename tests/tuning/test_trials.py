"""A trial's process: one that fails for a reason of its own has failed, one that is killed from outside goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scramjet.errors import RunError
from scramjet.tuning.assignments import Assignment, Outcome
from scramjet.tuning.study import Study
from scramjet.tuning.trials import MAX_ATTEMPTS, TrialRun
from tests.helpers.written_trials import WritingServer, WrittenProcess, written_study

pytest.importorskip("optuna")


class Process(WrittenProcess):
    """A process that has ended with a code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code


class FailingServer(WritingServer):
    """Its processes end with these codes, and the one after them well."""

    def __init__(self, codes: list[int], message: str = "") -> None:
        super().__init__(lambda settings, step: 1.0)
        self.codes, self.message = codes, message

    def start(self, request: dict[str, Any]) -> WrittenProcess:
        if not self.codes:
            return super().start(request)
        self.requests.append(request)
        Path(request["errors"]).write_text(self.message)
        return Process(self.codes.pop(0))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    with written_study(tmp_path_factory.mktemp("studies") / "study", {"gamma": "0.5..0.99"}) as made:
        yield made


def outcome_of(study: Study, run_name: str, server: FailingServer) -> Outcome:
    run = TrialRun(study, Assignment(0, run_name, {"gamma": 0.9}), server)  # type: ignore[arg-type]
    run.start()
    for _ in range(10):
        if (outcome := run.poll()) is not None:
            return outcome
    raise AssertionError("the trial never ends")


def test_a_message_of_the_run_is_the_reason_that_is_kept(study: Study) -> None:
    outcome = outcome_of(study, "message", FailingServer([2], "value_loss is NaN at step 300; lower --learning-rate\n"))
    assert (outcome.ending, outcome.reason) == ("failed", "value_loss is NaN at step 300; lower --learning-rate")


def test_of_a_traceback_its_last_line_is_kept(study: Study) -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nZeroDivisionError: division by zero\n'
    outcome = outcome_of(study, "trace", FailingServer([1], trace))
    assert (outcome.ending, outcome.reason) == ("failed", "ZeroDivisionError: division by zero")


def test_a_trial_that_is_killed_or_stopped_from_outside_is_started_again(study: Study) -> None:
    server = FailingServer([-signal.SIGKILL, 128 + signal.SIGTERM])
    outcome = outcome_of(study, "killed", server)
    assert (outcome.ending, outcome.step, len(server.requests)) == ("finished", 1000, 3)


def test_a_trial_that_is_killed_again_and_again_fails(study: Study) -> None:
    server = FailingServer([-signal.SIGKILL] * 99)
    outcome = outcome_of(study, "hunted", server)
    assert (outcome.ending, len(server.requests)) == ("failed", MAX_ATTEMPTS)
    assert outcome.reason == f"its process was killed by signal 9 {MAX_ATTEMPTS} times"


def test_an_assignment_in_study_db_that_is_none_is_refused() -> None:
    whole = Assignment(3, "trial-0003", {"gamma": 0.9}, stop_step=100).as_dict()
    assert Assignment.from_dict(whole).as_dict() == whole
    for damaged in (None, [], {**whole, "trial": "3"}, {**whole, "more": 1}, {**whole, "run_name": None}):
        with pytest.raises(RunError, match=r"study\.db"):
            Assignment.from_dict(damaged)
