"""Files appear whole or not at all, and disk errors name what happened and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from scramjet.errors import RunError
from scramjet.runtime import files


def disk_is_full(descriptor: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    files.write_atomic(path, b"old")
    files.write_atomic(path, b"new" * 100_000)
    assert path.read_bytes() == b"new" * 100_000
    assert os.listdir(tmp_path) == ["config.toml"]


def test_a_write_the_system_takes_in_parts_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    files.write_atomic(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_write_that_makes_no_progress_is_an_error_and_not_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(RunError, match="the disk reported an error"):
        files.write_atomic(tmp_path / "file", b"0123456789")


def test_content_reaches_the_disk_before_its_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("write", "fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, original=original: (calls.append(name), original(*args))[1]
        )
    files.write_atomic(tmp_path / "file", b"data")
    assert calls == ["write", "fsync", "replace", "fsync"]  # the last one is the folder's


def test_a_full_disk_leaves_the_old_file_and_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    files.write_atomic(path, b"old")
    monkeypatch.setattr(os, "write", disk_is_full)
    with pytest.raises(RunError) as caught:
        files.write_atomic(path, b"new")
    message = str(caught.value)
    assert f"the disk is full while writing {path}" in message
    assert "nothing already saved was touched" in message
    assert f"continue with `scramjet train --resume {tmp_path}`" in message
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["config.toml"]


def test_a_full_disk_outside_a_run_does_not_speak_of_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", disk_is_full)
    with pytest.raises(RunError, match=r"free some space and try again$"):
        files.write_atomic(tmp_path / "file", b"new")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "permission was denied"),
        (errno.EROFS, "read-only"),
        (errno.EFBIG, "ulimit -f"),
        (errno.ENOENT, "is gone"),
        (errno.ELOOP, "symbolic links"),  # one that has no words of its own here
    ],
)
def test_every_disk_error_is_told_in_words(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(RunError, match=words), files.explain_disk_errors(tmp_path / "x"):
        raise OSError(number, os.strerror(number))


def test_a_link_is_replaced_and_read_back(tmp_path: Path) -> None:
    for name in ("step_00000001", "step_00000002"):
        files.replace_symlink(tmp_path / "latest", name)
        assert files.read_link(tmp_path / "latest") == name
    assert (tmp_path / "latest").is_symlink()
    assert os.listdir(tmp_path) == ["latest"]


def test_a_link_is_a_text_file_where_symlinks_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: str, link: Path) -> None:
        raise OSError(errno.EPERM, "no symlinks here")

    monkeypatch.setattr(os, "symlink", refuse)
    files.replace_symlink(tmp_path / "latest", "step_00000001")
    assert not (tmp_path / "latest").is_symlink()
    assert files.read_link(tmp_path / "latest") == "step_00000001"


def test_there_is_no_link_to_read_in_a_missing_file_a_folder_or_bytes(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert files.read_link(tmp_path / "missing") is None
    assert files.read_link(tmp_path) is None
    assert files.read_link(tmp_path / "bytes") is None
    assert files.read_link(Path("a\0b")) is None


def test_two_folders_are_exchanged_or_left_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of_{name}").touch()
    exchanged = files.exchange_paths(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == (["of_b"] if exchanged else ["of_a"])
    assert not files.exchange_paths(tmp_path / "a", tmp_path / "missing")
