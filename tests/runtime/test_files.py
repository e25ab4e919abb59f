"""Files appear whole or not at all, and disk errors name what happened and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from scramjet.errors import RunError
from scramjet.runtime import files


def test_a_file_is_replaced_as_a_whole_also_in_parts_and_nothing_else_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "config.toml", os.write
    for data, most in ((b"old", 3), (b"new" * 100_000, 1 << 20), (b"0123456789", 3)):
        monkeypatch.setattr(os, "write", lambda descriptor, data, most=most: write(descriptor, data[:most]))
        files.write_atomic(path, data)
        assert path.read_bytes() == data
        assert os.listdir(tmp_path) == ["config.toml"]
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(RunError, match="the disk reported an error"):  # and not a loop
        files.write_atomic(path, b"new")


def test_content_reaches_the_disk_before_its_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("write", "fsync", "replace"):
        original = getattr(os, name)
        noted = lambda *args, name=name, original=original: (calls.append(name), original(*args))[1]  # noqa: E731
        monkeypatch.setattr(os, name, noted)
    files.write_atomic(tmp_path / "file", b"data")
    assert calls == ["write", "fsync", "replace", "fsync"]  # the last one is the folder's


def test_a_full_disk_leaves_the_old_file_and_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_is_full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path, outside = tmp_path / "run" / "config.toml", tmp_path / "file"
    path.parent.mkdir()
    files.write_atomic(path, b"old")
    monkeypatch.setattr(os, "write", disk_is_full)
    with pytest.raises(RunError) as caught:
        files.write_atomic(path, b"new")
    for words in (
        f"the disk is full while writing {path}",
        "nothing already saved was touched",
        f"continue with `scramjet train --resume {path.parent}`",
    ):
        assert words in str(caught.value)
    assert (path.read_bytes(), os.listdir(path.parent)) == (b"old", ["config.toml"])
    with pytest.raises(RunError, match=r"free some space and try again$"):  # no word of resuming outside a run
        files.write_atomic(outside, b"new")


def test_every_disk_error_is_told_in_words(tmp_path: Path) -> None:
    for number, words in {
        errno.EDQUOT: "quota",
        errno.EACCES: "permission was denied",
        errno.EROFS: "read-only",
        errno.EFBIG: "ulimit -f",
        errno.ENOENT: "is gone",
        errno.ELOOP: "symbolic links",  # one that has no words of its own here
    }.items():
        with pytest.raises(RunError, match=words), files.explain_disk_errors(tmp_path / "x"):
            raise OSError(number, os.strerror(number))


def test_a_link_is_replaced_and_read_back_as_text_where_symlinks_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(target: str, link: Path) -> None:
        raise OSError(errno.EPERM, "no symlinks here")

    latest, os_symlink = tmp_path / "latest", os.symlink
    for name in ("step_00000001", "step_00000002"):
        files.replace_symlink(latest, name)
        assert files.read_link(latest) == name
    assert latest.is_symlink()
    latest.unlink()
    monkeypatch.setattr(os, "symlink", refuse)
    files.replace_symlink(latest, "step_00000003")
    assert not latest.is_symlink()
    assert files.read_link(latest) == "step_00000003"
    assert os.listdir(tmp_path) == ["latest"]
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for no_link in (tmp_path / "missing", tmp_path, tmp_path / "bytes", Path("a\0b")):
        assert files.read_link(no_link) is None, no_link
    for target in ("..", ".", "/etc", "../run", "a/b"):  # a link leads to a sibling or nowhere
        (tmp_path / "link").unlink(missing_ok=True)
        os_symlink(target, tmp_path / "link")
        assert files.read_link(tmp_path / "link") is None, target


def test_two_folders_are_exchanged_or_left_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of_{name}").touch()
    exchanged = files.exchange_paths(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path / "a") == (["of_b"] if exchanged else ["of_a"])
    assert not files.exchange_paths(tmp_path / "a", tmp_path / "missing")
