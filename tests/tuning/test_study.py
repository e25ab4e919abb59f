"""A study's folder: whole or not at all, frozen, locked, its damage told; and trials whose processes fail."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import struct
from pathlib import Path
from typing import Any

import optuna
import pytest

import scramjet
from scramjet.errors import ConfigError, RunError, TrustError
from scramjet.runtime.locks import FolderLock
from scramjet.runtime.trust import said
from scramjet.training.config.keywords import with_keywords
from scramjet.training.config.run_config import RunConfig
from scramjet.tuning.api import new_study
from scramjet.tuning.results import read_results
from scramjet.tuning.settings import StudySettings
from scramjet.tuning.storage import ASSIGNMENT, REASON, RUN, SECONDS, SPENT_SECONDS, STEPS, Assignment, Outcome
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


def test_a_misspelled_keyword_of_tune_is_answered_with_the_studys_own():
    with pytest.raises(ConfigError, match=r"scramjet\.tune has no setting 'trails'\. Did you mean 'trials'\?"):
        scramjet.tune("cartpole", {"gamma": "0.9..0.99"}, trails=3)  # type: ignore[call-arg]


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


CHANGES = {"seed": 3, "self_play.opponents": ["canary.py:choose"], "self_play.pool_fraction": 0.5}
FORGED: list[tuple[str, object]] = [
    *((ASSIGNMENT, wrong) for wrong in ([], "trial-0001", {}, {"trial": 1})),
    *((f"{ASSIGNMENT}.trial", wrong) for wrong in (99_999_999, -1, True, 0, "1", None)),
    *((f"{ASSIGNMENT}.run_name", wrong) for wrong in ("../../victim", "/tmp/victim", "trial-0001-g1", "a\0b", None, 1)),
    *((f"{ASSIGNMENT}.fork", wrong) for wrong in ("../victim", "runs/trial-0000/checkpoints/step_00000100", 1)),
    *((f"{ASSIGNMENT}.stop_step", wrong) for wrong in (-1, 1.5, 10**18, "1")),
    *((f"{ASSIGNMENT}.changes", wrong) for wrong in (CHANGES, {"env": "x.py"}, {"seed": -1}, {"seed": "1"}, None)),
    *((RUN, wrong) for wrong in ("../victim", "trial-0000", 7)),
    *((SECONDS, wrong) for wrong in (None, "1", -1, 1e18)),
    *((STEPS, wrong) for wrong in (None, 1.5, -1, 10**18)),
    *((REASON, wrong) for wrong in (None, "x" * 10**6)),
]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was killed while its second trial ran."""
    folder = tmp_path_factory.mktemp("studies") / "interrupted"
    with written_study(folder, SPACE, trials=2) as study:
        for number in range(2):
            study.add({"gamma": 0.9})
            study.begin(Assignment(number, f"trial-000{number}", {"gamma": 0.9}, stop_step=100, seed=4))
        study.complete(0, [1.0], Outcome(study.interrupted()[0], "finished", 1000, 1.0))
    return folder


def write_attribute(study: Path, name: str, value: object, trial: int = 2, *, of_study: bool = False) -> None:
    """Write into study.db what a stranger likes; `trial` is the row, which begins at 1."""
    table, column = ("study", "study_id") if of_study else ("trial", "trial_id")
    with contextlib.closing(sqlite3.connect(study / "study.db")) as database, database:
        is_part = name.startswith(f"{ASSIGNMENT}.")
        key = ASSIGNMENT if is_part else name
        where = (f"WHERE {column} = ? AND key = ?", (1 if of_study else trial, key))
        if is_part:
            found = database.execute(f"SELECT value_json FROM {table}_user_attributes {where[0]}", where[1]).fetchone()
            value = {**json.loads(found[0]), name.partition(".")[2]: value}
        database.execute(f"DELETE FROM {table}_user_attributes {where[0]}", where[1])
        row = (*where[1], json.dumps(value))
        database.execute(f"INSERT INTO {table}_user_attributes ({column}, key, value_json) VALUES (?, ?, ?)", row)


def test_what_a_stranger_writes_into_study_db_is_refused_before_any_of_it_is_used(interrupted, tmp_path):
    """Code that an assignment names, folders that it would empty, numbers that would loop or end in a traceback."""
    with Study.open(interrupted) as study:
        assert study.interrupted() == [Assignment(1, "trial-0001", {"gamma": 0.9}, stop_step=100, seed=4)]
    forged = [(name, value, False) for name, value in FORGED]
    repeat = {"trial": 0, "seed": 2, "score": 1.0, "reason": "", "steps": 1, "seconds": 1.0}
    forged += [(SPENT_SECONDS, wrong, True) for wrong in (None, "1", -1, 1e300)]
    forged += [("repeat ../victim-s2", repeat, True), ("repeat trial-0099-s2", {**repeat, "trial": 99}, True)]
    forged += [("repeat trial-0000-s2", {**repeat, name: [1]}, True) for name in repeat]
    for name, value, of_study in forged:
        copy = Path(shutil.copytree(interrupted, tmp_path / "copy"))
        write_attribute(copy, name, value, of_study=of_study)
        for read in (Study.open, read_results):
            with pytest.raises(RunError, match=r"study\.db says of"):
                read(copy)
        shutil.rmtree(copy)


def test_settings_outside_the_space_and_links_in_place_of_folders_are_refused(interrupted, tmp_path):
    copy = Path(shutil.copytree(interrupted, tmp_path / "copy"))
    other = '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.1, "high": 9.0, "log": false}}'
    for change in (f"distribution_json = '{other}'", "param_value = 7.0", "distribution_json = '[null]'"):
        with contextlib.closing(sqlite3.connect(copy / "study.db")) as database, database:
            database.execute(f"UPDATE trial_params SET {change}")
        with pytest.raises(RunError, match=r"study\.db"):
            Study.open(copy)
    linked = Path(shutil.copytree(interrupted, tmp_path / "linked"))
    (linked / "trials").rmdir()
    (linked / "trials").symlink_to(tmp_path)
    with pytest.raises(RunError, match="is no folder"):
        Study.open(linked)


def test_metrics_and_checkpoints_that_a_stranger_left_in_a_trials_run_are_numbers_or_nothing(interrupted, tmp_path):
    copy = Path(shutil.copytree(interrupted, tmp_path / "copy"))
    run = copy / "runs" / "trial-0001"
    for name in ("step_x", "step_-1", "step_" + "9" * 200):
        (run / "checkpoints" / name).mkdir(parents=True)
    with Study.open(copy) as study:
        [assignment] = study.interrupted()
        for step in (None, "x", [], {}, True, -1, 10**30, 1e300, 50):
            for seconds in (None, "x", 10**400, -1.0, 2.5):
                record = {"step": step, "time": {"elapsed_seconds": seconds}, "return_100": step}
                (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
                trial = TrialRun(study, assignment, FailingServer([]))  # type: ignore[arg-type]
                outcome = trial.poll()
                assert outcome is not None
                study.pause(1, outcome, None)
                study.begin(assignment)
                assert trial.progress().step == outcome.step
    with Study.open(copy) as study:
        assert (study.steps_of(study.trials()[1]), study.trials()[1].user_attrs[SECONDS]) == (50, 2.5)


def test_a_journal_beside_study_db_that_names_a_file_does_not_have_it_deleted(interrupted, tmp_path):
    """SQLite deletes the file that a journal names as its own superior; a study has no such journal."""
    copy, victim = Path(shutil.copytree(interrupted, tmp_path / "copy")), tmp_path / "victim"
    victim.write_text("precious")
    magic, name, page = bytes.fromhex("d9d505f920a163d7"), str(victim).encode(), 4096
    header = struct.pack(">8sIIIII", magic, 0, 0, (copy / "study.db").stat().st_size // page, 512, page).ljust(
        512, b"\0"
    )
    end = struct.pack(">I", 0x40000000 // page + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    (copy / "study.db-journal").write_bytes(header + end)
    for read in (Study.open, read_results):
        with pytest.raises(RunError, match="names another file"):
            read(copy)
    assert victim.read_text() == "precious"
    with contextlib.closing(sqlite3.connect(copy / "study.db")) as database:  # what it would have done
        database.execute("SELECT * FROM studies").fetchall()
    assert not victim.exists()


def test_a_study_db_that_computes_when_it_is_read_is_refused(interrupted, tmp_path):
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS trial_heartbeat_id FROM n"
    for change in (
        f"DROP TABLE trial_heartbeats; CREATE VIEW trial_heartbeats AS {endless}",
        "CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM studies; END",
        "PRAGMA journal_mode = WAL",
        "CREATE INDEX i ON trials (length(hex(zeroblob(400000000))))",
        "CREATE INDEX i ON trials (state) WHERE length(hex(zeroblob(400000000))) > 0",
        "CREATE TABLE t (x INTEGER CHECK (length(hex(zeroblob(400000000))) > x))",
        "CREATE TABLE t (x INTEGER DEFAULT (length(hex(zeroblob(400000000)))))",
        "CREATE TABLE t (x INTEGER DEFAULT /* */ (length(hex(zeroblob(400000000)))))",
    ):
        copy = Path(shutil.copytree(interrupted, tmp_path / "copy"))
        with contextlib.closing(sqlite3.connect(copy / "study.db")) as database, database:
            database.executescript(change)
        with pytest.raises(RunError, match=r"study\.db is damaged"):
            Study.open(copy)
        shutil.rmtree(copy)


def test_a_study_db_with_more_rows_or_bytes_than_a_study_has_is_refused_before_optuna_loads_them(interrupted, tmp_path):
    numbers = "WITH RECURSIVE n(x) AS (SELECT 2 UNION ALL SELECT x + 1 FROM n WHERE x < 200000)"
    copy = Path(shutil.copytree(interrupted, tmp_path / "copy"))
    with contextlib.closing(sqlite3.connect(copy / "study.db")) as database, database:
        database.execute(f"INSERT INTO trials (number, study_id, state) {numbers} SELECT x, 1, 'FAIL' FROM n")
    with pytest.raises(RunError, match="table trials has 200,"):
        read_results(copy)
    os.truncate(copy / "study.db", 1 << 40)
    with pytest.raises(RunError, match=r"at most .* are expected"):
        read_results(copy)


def test_a_study_of_a_stranger_may_offer_no_code_to_choose_from(interrupted, tmp_path, monkeypatch):
    """Neither in its base nor in its space; a user who trusts it is asked nothing."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "canary.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    code = f"{tmp_path / 'canary.py'}:choose"
    played = RunConfig(env="connect_four", total_timesteps=1000)
    played = with_keywords(played, {"self_play": {"pool_fraction": 0.5, "opponents": [code]}})
    lake = RunConfig(env="gym:FrozenLake-v1", total_timesteps=1000)
    for base, space in ((played, SPACE), (lake, {"env.map_name": ["4x4", "canary.py"]})):
        folder = tmp_path / "study"
        with new_study(base, space, StudySettings(parallel=1), tmp_path, "study"):
            pass
        with Study.open(folder):  # the user's own, and remembered
            pass
        monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "nothing remembered"))
        with pytest.raises(TrustError, match=r"canary\.py"):
            Study.open(folder)
        with Study.open(folder, said(True)):
            pass
        shutil.rmtree(tmp_path / "nothing remembered")
        shutil.rmtree(folder)
        monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    assert not (tmp_path / "ran").exists()


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


def test_a_study_that_waits_for_a_run_in_use_can_be_stopped_and_goes_on_when_it_is_free(copied):
    with Study.open(copied) as study:
        server = FailingServer([2], "its own end\n")
        run = TrialRun(study, Assignment(0, "busy", {"gamma": 0.9}), server)  # type: ignore[arg-type]
        stopped = TrialRun(study, Assignment(0, "busy", {"gamma": 0.9}), server)  # type: ignore[arg-type]
        (study.runs_path / "busy").mkdir()
        lock = FolderLock(study.runs_path / "busy")
        lock.acquire("the run")
        try:
            for each in (run, stopped):
                each.start()
                assert each.poll() is None
            stopped.stop()
            assert stopped.poll().ending == "stopped"
            assert not server.requests
        finally:
            lock.release()
        assert run.poll().reason == "its own end"


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
