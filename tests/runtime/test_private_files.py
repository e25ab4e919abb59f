"""What is kept for the user between commands: his alone, bounded, never in the way; and signatures made with it."""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path

import pytest

from scramjet.runtime import private_files
from scramjet.runtime.private_files import UserRecords, is_signed, sign

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners and modes")


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserRecords:
    """Of a user who has none yet."""
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "state"))
    return UserRecords("things", "you will be asked again")


def the_file(records: UserRecords) -> Path:
    (file,) = records.folder.iterdir()
    return file


def test_a_record_is_read_back_by_its_key(records: UserRecords) -> None:
    for key, number in (("a", 1), ("b", 2), ("a", 3)):
        records.write(key, {"number": number})
    assert [records.read(key) for key in "abc"] == [{"number": 3, "key": "a"}, {"number": 2, "key": "b"}, None]


def test_folder_and_files_are_the_users_alone_whatever_the_umask(records: UserRecords) -> None:
    before = os.umask(0)
    try:
        records.write("a", {})
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (records.folder, records.folder.parent)}
    assert set(modes.values()) == {0o700}, modes
    assert stat.S_IMODE(the_file(records).stat().st_mode) == 0o600


def test_what_others_could_have_written_is_not_believed(records: UserRecords) -> None:
    records.write("a", {})
    file = the_file(records)
    for mode in (0o720, 0o702):
        for path, private in ((file, 0o600), (records.folder, 0o700)):
            path.chmod(mode)
            assert records.read("a") is None, (path, mode)
            path.chmod(private)
    assert records.read("a") is not None
    records.folder.chmod(0o702)
    with pytest.warns(UserWarning, match="other users may write to it"):
        records.write("a", {})


def test_what_another_user_owns_is_not_believed(records: UserRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    records.write("a", {})
    assert records.read("a") is not None
    own = os.geteuid()
    for users in ((own + 1, own), (own, own + 1)):  # asked for once of the folder, and once of the file
        monkeypatch.setattr(os, "geteuid", iter(users).__next__)
        assert records.read("a") is None, users


def test_links_and_pipes_are_not_followed_or_waited_for(records: UserRecords, tmp_path: Path) -> None:
    records.write("a", {})
    file = the_file(records)
    file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(tmp_path / "elsewhere.json")
    assert records.read("a") is None
    records.write("a", {"number": 1})
    assert not file.is_symlink()
    assert json.loads((tmp_path / "elsewhere.json").read_text()) == {"key": "a"}
    file.rename(tmp_path / "record")
    os.mkfifo(file, 0o600)
    assert records.read("a") is None
    (tmp_path / "record").replace(file)
    assert records.read("a") is not None
    records.folder.rename(tmp_path / "things")
    records.folder.symlink_to(tmp_path / "things")
    assert records.read("a") is None


def test_a_file_that_is_no_record_is_none(records: UserRecords) -> None:
    records.write("a", {})
    large = b'{"key":"a","x":"' + b"y" * 2**18
    for content in (b"", b"{", b"[]", b'"a"', b'{"key": "b"}', b"\xff\xfe", b"[" * 50_000, large):
        the_file(records).write_bytes(content)
        assert records.read("a") is None, content[:20]


def test_where_nothing_can_be_kept_there_is_one_warning_that_says_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: UserRecords
) -> None:
    with pytest.warns(UserWarning, match="too large"):
        records.write("a", {"text": "x" * private_files.MAX_RECORD_BYTES})
    assert records.read("a") is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "file"))
    records = UserRecords("things", "you will be asked again")
    with pytest.warns(UserWarning, match=r"you will be asked again; set SCRAMJET_STATE_DIR"):
        records.write("a", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records.write("b", {})
        assert records.read("a") is None
    monkeypatch.setattr(private_files._KEYS, "_has_warned", False)
    with pytest.warns(UserWarning, match="checked as if somebody else had made them"):
        assert sign("digest") is None
    assert not is_signed("digest", None)


def test_only_so_many_are_kept_and_the_oldest_go(records: UserRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_files, "MAX_RECORDS", 3)
    for i, key in enumerate("abcde"):
        records.write(key, {})
        newest = max(records.folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, ns=(i, i))
    (records.folder / "notes.txt").write_text("not ours")
    records.write("f", {})
    assert [key for key in "abcdef" if records.read(key)] == ["d", "e", "f"]
    assert (records.folder / "notes.txt").exists()


def test_the_folder_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: UserRecords
) -> None:
    monkeypatch.delenv("SCRAMJET_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert records.folder == tmp_path / "xdg" / "scramjet" / "things"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert records.folder == tmp_path / ".local" / "state" / "scramjet" / "things"


def test_what_the_user_signed_is_recognized_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signature = sign("digest")
    assert signature is not None
    assert is_signed("digest", signature)
    assert not is_signed("another digest", signature)
    for forged in (None, "", "0" * 64, signature[:-1], signature.upper(), 5, "é", "\ud800", ["a"]):
        assert not is_signed("digest", forged), forged
    (key,) = (tmp_path / "state" / "keys").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key, key.parent)] == [0o600, 0o700]
    with monkeypatch.context() as another:
        another.setenv("SCRAMJET_STATE_DIR", str(tmp_path / "another"))
        assert not is_signed("digest", signature)
        assert sign("digest") != signature
    key.write_text(key.read_text().replace('"secret": "', '"secret": "zz'))  # a damaged key is none
    assert not is_signed("digest", signature)
