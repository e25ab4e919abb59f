"""A study's folder: whole or not at all, frozen, locked, its damage told; and trials whose processes fail."""

import shutil
import signal
from pathlib import Path
from typing import Any

import optuna
import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.tuning.assignments import Assignment, Outcome
from scramjet.tuning.study import Study
from scramjet.tuning.trials import MAX_ATTEMPTS, TrialRun
from tests.helpers.written_trials import WritingServer, WrittenProcess, run_written, written_study

SPACE = {"gamma": "0.5..0.99"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with two finished trials."""
    folder = tmp_path_factory.mktemp("studies") / "two"
    with written_study(folder, SPACE, trials=2) as study:
        run_written(study, WritingServer(lambda settings, step: settings["gamma"]))
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copied"))


def test_optuna_itself_reads_the_trials(finished):
    study = optuna.load_study(study_name="scramjet", storage=f"sqlite:///{finished / 'study.db'}")
    assert [trial.value for trial in study.trials] == [trial.params["gamma"] for trial in study.trials]
    assert study.best_trial.user_attrs["run"] == f"trial-{study.best_trial.number:04}"


def test_a_folder_that_exists_is_not_taken_and_a_study_that_could_not_be_made_leaves_nothing(finished, tmp_path):
    with pytest.raises(RunError, match="--resume"):
        written_study(finished, SPACE)
    with pytest.raises(ConfigError):
        written_study(tmp_path / "studies" / "bad", {"gamma": "2..3"})
    assert not (tmp_path / "studies").exists()


def test_two_processes_cannot_run_one_study_and_more_trials_may_be_asked_for(copied):
    with Study.open(copied) as study:
        with pytest.raises(RunError, match="in use by process"):
            Study.open(copied)
        study.change_budget({"trials": 3})
        run_written(study, WritingServer(lambda settings, step: settings["gamma"]))
    with Study.open(copied) as study:
        assert (len(study.trials()), study.settings.trials) == (3, 3)


def test_a_study_toml_that_was_changed_or_is_none_is_refused(copied):
    path, text = copied / "study.toml", (copied / "study.toml").read_text()
    for old, new in (
        ('"0.5..0.99"', '"0.1..0.99"'),
        ("total_timesteps = 1000", "total_timesteps = 2000"),
        ("tpe", "random"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(ConfigError, match="was changed since the study began"):
            Study.open(copied)
    for none in ("", "study_version = 7", "study_version = 1\nthreads = 1", "x = [", "threads = 'a'"):
        path.write_text(none)
        with pytest.raises(ConfigError, match=r"study\.toml"):
            Study.open(copied)


def test_a_study_db_that_is_damaged_missing_or_a_link_is_told(copied, finished):
    path, whole = copied / "study.db", (copied / "study.db").read_bytes()
    path.write_bytes(b"no database at all")
    with pytest.raises(RunError, match="it is no SQLite file"):
        Study.open(copied)
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(RunError, match=r"study\.db is damaged"), Study.open(copied) as study:
        study.trials()
    path.unlink()
    with pytest.raises(RunError, match="is missing"):
        Study.open(copied)
    path.symlink_to(finished / "study.db")
    with pytest.raises(RunError, match="symbolic link"):
        Study.open(copied)


def test_an_assignment_in_study_db_that_is_none_is_refused():
    whole = Assignment(3, "trial-0003", {"gamma": 0.9}, stop_step=100).as_dict()
    assert Assignment.from_dict(whole).as_dict() == whole
    for damaged in (None, [], {**whole, "trial": "3"}, {**whole, "more": 1}, {**whole, "run_name": None}):
        with pytest.raises(RunError, match=r"study\.db"):
            Assignment.from_dict(damaged)


class Ended(WrittenProcess):
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
        return Ended(self.codes.pop(0))


def outcome_of(study: Study, run_name: str, server: FailingServer) -> Outcome:
    run = TrialRun(study, Assignment(0, run_name, {"gamma": 0.9}), server)  # type: ignore[arg-type]
    run.start()
    for _ in range(10):
        if (outcome := run.poll()) is not None:
            return outcome
    raise AssertionError("the trial never ends")


def test_a_trial_that_fails_keeps_its_reason_and_one_that_is_killed_is_started_again(copied):
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nZeroDivisionError: division by zero\n'
    told = "value_loss is NaN at step 300; lower --learning-rate"
    with Study.open(copied) as study:
        for name, code, message, reason in (
            ("message", 2, f"{told}\n", told),
            ("trace", 1, trace, "ZeroDivisionError: division by zero"),  # its last line
        ):
            outcome = outcome_of(study, name, FailingServer([code], message))
            assert (outcome.ending, outcome.reason) == ("failed", reason)
        server = FailingServer([-signal.SIGKILL, 128 + signal.SIGTERM])  # from outside
        outcome = outcome_of(study, "killed", server)
        assert (outcome.ending, outcome.step, len(server.requests)) == ("finished", 1000, 3)
        server = FailingServer([-signal.SIGKILL] * 99)
        outcome = outcome_of(study, "hunted", server)
        assert (outcome.ending, len(server.requests)) == ("failed", MAX_ATTEMPTS)
        assert outcome.reason == f"its process was killed by signal 9 {MAX_ATTEMPTS} times"
