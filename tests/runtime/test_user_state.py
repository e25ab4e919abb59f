"""What is kept for the user between commands: his alone, bounded, and never in the way."""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path

import pytest

from scramjet.runtime import user_state
from scramjet.runtime.user_state import UserRecords

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes")


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserRecords:
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    return UserRecords("things", "you will be asked again")


def the_file(records: UserRecords) -> Path:
    (file,) = records.folder.iterdir()
    return file


def test_a_record_is_read_back_by_its_key(records: UserRecords) -> None:
    records.write("a", {"number": 1})
    records.write("b", {"number": 2})
    records.write("a", {"number": 3})
    assert records.read("a") == {"number": 3, "key": "a"}
    assert records.read("b") == {"number": 2, "key": "b"}
    assert records.read("c") is None


def test_folder_and_files_are_the_users_alone_whatever_the_umask(records: UserRecords) -> None:
    before = os.umask(0)
    try:
        records.write("a", {})
    finally:
        os.umask(before)
    for folder in (records.folder, records.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(the_file(records).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_what_others_could_have_written_is_not_believed(records: UserRecords, mode: int) -> None:
    records.write("a", {})
    the_file(records).chmod(mode)
    assert records.read("a") is None
    the_file(records).chmod(0o600)
    records.folder.chmod(mode)
    assert records.read("a") is None
    with pytest.warns(UserWarning, match="other users may write to it"):
        records.write("a", {})


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_owns_is_not_believed(records: UserRecords) -> None:
    records.write("a", {})
    os.chown(the_file(records), 12345, 12345)
    assert records.read("a") is None
    os.chown(the_file(records), 0, 0)
    assert records.read("a") is not None
    os.chown(records.folder, 12345, 12345)
    assert records.read("a") is None


def test_links_are_not_followed(records: UserRecords, tmp_path: Path) -> None:
    records.write("a", {})
    file = the_file(records)
    file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(tmp_path / "elsewhere.json")
    assert records.read("a") is None
    records.write("a", {"number": 1})
    assert not file.is_symlink()
    assert json.loads((tmp_path / "elsewhere.json").read_text()) == {"key": "a"}
    folder = records.folder
    folder.rename(tmp_path / "things")
    folder.symlink_to(tmp_path / "things")
    assert records.read("a") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"a"', b'{"key": "b"}', b"\xff\xfe", b"[" * 50_000, b'{"key":"a","x":"' + b"y" * 2**18],
)
def test_a_file_that_is_no_record_is_none(records: UserRecords, content: bytes) -> None:
    records.write("a", {})
    the_file(records).write_bytes(content)
    assert records.read("a") is None


def test_a_pipe_in_a_records_place_is_not_waited_for(records: UserRecords) -> None:
    records.write("a", {})
    file = the_file(records)
    file.unlink()
    os.mkfifo(file, 0o600)
    assert records.read("a") is None


def test_where_nothing_can_be_kept_there_is_one_warning_that_says_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "file"))
    records = UserRecords("things", "you will be asked again")
    with pytest.warns(UserWarning, match=r"you will be asked again; set SCRAMJET_STATE_DIR"):
        records.write("a", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records.write("b", {})
        assert records.read("a") is None


def test_a_record_that_is_too_large_is_not_kept(records: UserRecords) -> None:
    with pytest.warns(UserWarning, match="too large"):
        records.write("a", {"text": "x" * user_state.MAX_RECORD_BYTES})
    assert records.read("a") is None


def test_only_so_many_are_kept_and_the_oldest_go(records: UserRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_state, "MAX_RECORDS", 3)
    for i, key in enumerate("abcde"):
        records.write(key, {})
        newest = max(records.folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, ns=(i, i))
    (records.folder / "notes.txt").write_text("not ours")
    records.write("f", {})
    assert [key for key in "abcdef" if records.read(key)] == ["d", "e", "f"]
    assert (records.folder / "notes.txt").exists()


def test_the_folder_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = UserRecords("things", "")
    monkeypatch.delenv("SCRAMJET_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert records.folder == tmp_path / "xdg" / "scramjet" / "things"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert records.folder == tmp_path / ".local" / "state" / "scramjet" / "things"
