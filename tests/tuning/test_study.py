"""A study's folder: whole or not at all, frozen, locked, and damage is told in one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.tuning.study import Study
from tests.helpers.written_trials import WritingServer, run_written, written_study

optuna = pytest.importorskip("optuna")

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
    import shutil

    return Path(shutil.copytree(finished, tmp_path / "copied"))


def test_optuna_itself_reads_the_trials(finished: Path) -> None:
    study = optuna.load_study(study_name="scramjet", storage=f"sqlite:///{finished / 'study.db'}")
    assert [trial.value for trial in study.trials] == [trial.params["gamma"] for trial in study.trials]
    assert study.best_trial.user_attrs["run"] == f"trial-{study.best_trial.number:04}"


def test_a_folder_that_exists_is_not_taken(finished: Path) -> None:
    with pytest.raises(RunError, match="--resume"):
        written_study(finished, SPACE)


def test_a_study_that_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        written_study(tmp_path / "studies" / "bad", {"gamma": "2..3"})
    assert not (tmp_path / "studies").exists()


def test_two_processes_cannot_run_one_study(copied: Path) -> None:
    with Study.open(copied), pytest.raises(RunError, match="in use by process"):
        Study.open(copied)


def test_more_trials_may_be_asked_for(copied: Path) -> None:
    with Study.open(copied) as study:
        study.change_budget({"trials": 3})
        run_written(study, WritingServer(lambda settings, step: settings["gamma"]))
    with Study.open(copied) as study:
        assert (len(study.trials()), study.settings.trials) == (3, 3)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"0.5..0.99"', '"0.1..0.99"'), ("total_timesteps = 1000", "total_timesteps = 2000"), ("tpe", "random")],
)
def test_a_study_toml_that_was_changed_is_refused(copied: Path, old: str, new: str) -> None:
    text = (copied / "study.toml").read_text()
    assert old in text
    (copied / "study.toml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match="was changed since the study began"):
        Study.open(copied)


@pytest.mark.parametrize("text", ["", "study_version = 7", "study_version = 1\nthreads = 1", "x = [", "threads = 'a'"])
def test_a_study_toml_that_is_none_is_told(copied: Path, text: str) -> None:
    (copied / "study.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"study\.toml"):
        Study.open(copied)


def test_a_damaged_study_db_is_told(copied: Path) -> None:
    whole = (copied / "study.db").read_bytes()
    (copied / "study.db").write_bytes(b"no database at all")
    with pytest.raises(RunError, match="it is no SQLite file"):
        Study.open(copied)
    (copied / "study.db").write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(RunError, match=r"study\.db is damaged"), Study.open(copied) as study:
        study.trials()
    (copied / "study.db").unlink()
    with pytest.raises(RunError, match="is missing"):
        Study.open(copied)


def test_a_link_in_place_of_study_db_is_not_followed(copied: Path, finished: Path) -> None:
    (copied / "study.db").unlink()
    (copied / "study.db").symlink_to(finished / "study.db")
    with pytest.raises(RunError, match="symbolic link"):
        Study.open(copied)
