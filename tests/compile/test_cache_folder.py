"""The compile cache among other people: it runs nobody else's code and removes nobody else's files."""

from __future__ import annotations

import errno
import grp
import hashlib
import os
import pickle
import pwd
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from numba import types

from scramjet.compile import cache_folder
from scramjet.compile.cache_folder import cache_directory, entry_directory, held, make_entry, write_kernel
from scramjet.compile.jit import compiled
from scramjet.compile.numba_internals import kernel_cache
from scramjet.runtime import private_folder

SOMEBODY = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def make_square(power: int):
    """A fresh dispatcher over the same source each time, as in another start."""

    def square(x):
        return x**2 + power

    return compiled(square)


def misses(function) -> int:
    return sum(function.stats.cache_misses.values())


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that SCRAMJET_CACHE_DIR names."""
    kernel_cache._TOLD.clear()
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "chosen"))
    return tmp_path / "chosen"


@pytest.fixture
def umask_000() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def contents(folder: Path) -> dict[str, bytes]:
    """All that is in a folder, its folders with a slash."""
    return {
        str(path.relative_to(folder)) + "/" * path.is_dir(): b"" if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


# --- nobody else's files are removed


def fill(folder: Path, names: list[str]) -> None:
    for i, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for file in ("chapter.tex", "step-0123456789abcdef.kernel", "x.partial", "lock", "done"):
            (folder / name / file).write_text(f"{name} {file}")
            os.utime(folder / name / file, (1e9, 1e9))
        os.utime(folder / name, (1e9 - i, 1e9 - i))


def test_a_chosen_folder_full_of_a_users_own_loses_nothing(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "MAX_ENTRIES", 3)
    names = [f"chapter {i}" for i in range(20)] + [f"{i:032x}" for i in range(20)]
    fill(chosen, names)
    fill(chosen / "scramjet-kernels", names)  # even where ours would be
    (chosen / "scramjet-kernels").chmod(0o700)
    (chosen / "scramjet-kernels" / "notes.partial").write_text("of the user")
    before = contents(chosen)
    for i in range(6):
        make_entry(entry_directory(f"{i}" * 64))
    square = make_square(1)
    assert square(3) == 10
    square.recompile()  # flushes
    after = contents(chosen)
    assert {name: after.get(name) for name in before} == before
    ours = {Path(name).parent.name for name in after if name.endswith("made-by-scramjet")}
    assert len(ours) == 3  # while ours come and go
    assert len(after) > len(before)


def test_the_entries_unused_for_longest_are_forgotten(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "MAX_ENTRIES", 3)
    old = [entry_directory(f"{i:064x}"[::-1]) for i in range(3)]
    for age, entry in enumerate(old):
        write_kernel(entry / "a-0.kernel", b"")
        with held(entry):
            os.utime(entry, (1e9 - age, 1e9 - age))
    assert make_square(6)(3) == 15
    assert [entry.exists() for entry in old] == [True, True, False]
    assert len(list(cache_directory().iterdir())) == 3


def test_an_entry_that_is_read_again_is_kept_longest(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "MAX_ENTRIES", 2)
    for power in (1, 2):
        assert make_square(power)(3) == 9 + power
    for age, power in ((2, 1), (1, 2)):
        os.utime(make_square(power)._cache.directory, (1e9 - age, 1e9 - age))
    assert make_square(1)(3) == 10
    assert make_square(3)(3) == 12
    kept = [make_square(power)._cache.directory.exists() for power in (1, 2, 3)]
    assert kept == [True, False, True]


def test_links_are_not_followed_when_entries_are_removed(
    chosen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("made-by-scramjet", "step-0.kernel", "x.partial"):
        (theirs / name).write_text("of the user")
        os.utime(theirs / name, (1e9, 1e9))
    make_entry(linked := entry_directory("1" * 64))
    os.symlink(theirs, cache_directory() / ("0" * 32))
    for name in ("a.kernel", "b.partial", "folder"):
        os.symlink(theirs / "step-0.kernel" if name != "folder" else theirs, linked / name)
    monkeypatch.setattr(cache_folder, "MAX_ENTRIES", 0)
    make_entry(entry_directory("2" * 64))
    assert {path.name for path in theirs.iterdir()} == {"made-by-scramjet", "step-0.kernel", "x.partial"}
    assert linked.exists()  # there is something in it that is not ours


def test_a_users_file_in_an_entry_of_ours_stays(chosen: Path) -> None:
    square = make_square(1)
    assert square(3) == 10
    entry = square._cache.directory
    (entry / "notes.txt").write_text("of the user")
    square._cache.flush()
    assert [path.name for path in entry.iterdir()] == ["notes.txt"]
    again = make_square(1)
    assert again(3) == 10
    again._cache.flush()  # it has no mark now
    assert {path.suffix for path in entry.iterdir()} == {".txt", ".kernel"}


# --- nobody else's code is run


@pytest.fixture(scope="module")
def wrong_code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Machine code that gives 100 more than `make_square(0)` should."""
    with pytest.MonkeyPatch.context() as context:
        context.setenv("SCRAMJET_CACHE_DIR", str(tmp_path_factory.mktemp("wrong")))
        assert make_square(100)(3) == 109
        (path,) = cache_directory().rglob("*.kernel")
        return path.read_bytes()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_code: bytes) -> Path:
    """The file that `make_square(0)` loads, with that in it."""
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "above" / "chosen"))
    square = make_square(0)
    path = square._cache._path((types.int64,), square.targetctx.codegen())
    write_kernel(path, wrong_code)
    return path


def run_quietly() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_square(0)(3)


def test_code_that_this_user_put_there_is_run(planted: Path) -> None:
    """What the tests below plant is good enough: it is refused for its owner and mode alone."""
    assert make_square(0)(3) == 109


LEVELS = {
    "the file": lambda path: path,
    "the entry": lambda path: path.parent,
    "our folder": lambda path: path.parent.parent,
    "the chosen folder": lambda path: path.parent.parent.parent,
    "a folder above": lambda path: path.parent.parent.parent.parent,
}


@needs_root
@pytest.mark.parametrize("level", LEVELS)
def test_what_belongs_to_another_user_is_not_run(level: str, planted: Path) -> None:
    os.chown(LEVELS[level](planted), SOMEBODY, SOMEBODY)
    assert run_quietly() == 9


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
@pytest.mark.parametrize("level", ["the file", "the entry", "our folder"])
def test_what_others_can_write_is_not_run(level: str, mode: int, planted: Path) -> None:
    LEVELS[level](planted).chmod(mode)
    assert run_quietly() == 9


@pytest.mark.parametrize("level", ["the chosen folder", "a folder above"])
def test_where_others_can_put_another_folder_in_its_place_nothing_is_run(level: str, planted: Path) -> None:
    folder = LEVELS[level](planted)
    folder.chmod(0o777)
    assert run_quietly() == 9
    folder.chmod(0o1777)  # sticky, like /tmp: who does not own a folder cannot move it
    assert run_quietly() == 109


@pytest.mark.parametrize("level", ["the file", "the entry", "our folder"])
def test_links_are_not_followed_when_code_is_read(level: str, planted: Path, tmp_path: Path) -> None:
    place = LEVELS[level](planted)
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert run_quietly() == 9


def test_a_chosen_folder_may_be_a_link(chosen: Path, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    chosen.symlink_to(tmp_path / "large disk")
    assert make_square(0)(3) == 9
    assert len(list((tmp_path / "large disk").rglob("*.kernel"))) == 1
    again = make_square(0)
    assert again(3) == 9
    assert misses(again) == 0


def test_a_pipe_in_the_place_of_a_kernel_is_not_waited_for(planted: Path) -> None:
    planted.unlink()
    os.mkfifo(planted)
    assert make_square(0)(3) == 9
    assert planted.is_file()  # replaced


class Harm:
    def __reduce__(self):
        return os.mkdir, (os.environ["SCRAMJET_CACHE_DIR"] + "/harm",)


def test_a_pickle_in_the_place_of_a_kernel_runs_nothing(planted: Path) -> None:
    payload = pickle.dumps(Harm())
    for content in (hashlib.sha256(payload).digest() + payload, payload):
        planted.write_bytes(content)
        again = make_square(0)
        assert again(3) == 9
        assert misses(again) == 1
    assert list(planted.parents[2].iterdir()) == [planted.parents[1]]


def test_a_lock_that_is_a_link_makes_and_opens_no_file_elsewhere(chosen: Path, tmp_path: Path) -> None:
    entry = entry_directory("0" * 64)
    make_entry(entry)
    (entry / "lock").symlink_to(tmp_path / "elsewhere")
    with held(entry):
        assert not (tmp_path / "elsewhere").exists()


# --- what it makes is its own, and it says why it keeps nothing


def test_all_that_it_makes_is_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask_000) -> None:
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert make_square(0)(3) == 9
    with held(make_square(0)._cache.directory):
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "a").rglob("*") if path.is_dir()}
        assert modes | {(tmp_path / "a").stat().st_mode & 0o777} == {0o700}
        files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert len(files) == 3  # kernel, mark, lock


def test_one_warning_names_the_folder_its_mode_and_the_fix(chosen: Path) -> None:
    chosen.mkdir()
    chosen.chmod(0o777)
    with pytest.warns(UserWarning, match="compiled kernels are not kept in") as told:
        assert [make_square(power)(3) for power in range(3)] == [9, 10, 11]
    (text,) = [str(one.message) for one in told]
    assert f"others can write to {chosen} (mode 0777)" in text
    assert f"run `chmod go-w {chosen}`, or set SCRAMJET_CACHE_DIR to a folder that you alone can write to" in text
    assert list(chosen.iterdir()) == []


@needs_root
def test_the_warning_names_the_owner(chosen: Path) -> None:
    chosen.mkdir()
    os.chown(chosen, SOMEBODY, SOMEBODY)
    with pytest.warns(UserWarning, match=f"{chosen} belongs to user {SOMEBODY}, who could put code of theirs there"):
        assert make_square(0)(3) == 9


def group(name: str, members: list[str]) -> grp.struct_group:
    return grp.struct_group((name, "x", pwd.getpwuid(os.geteuid()).pw_gid, members))


def test_a_group_that_has_only_its_owner_may_write_above(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems give each user such a group, and home folders that it can write to."""
    user = pwd.getpwuid(os.geteuid())
    chosen.mkdir()
    os.chown(chosen, -1, user.pw_gid)
    chosen.chmod(0o775)
    for its_group, is_kept in (
        (group(user.pw_name, []), True),
        (group(user.pw_name, [user.pw_name]), True),
        (group(user.pw_name, [user.pw_name, "somebody"]), False),
        (group("staff", []), False),
    ):
        monkeypatch.setattr(private_folder.grp, "getgrgid", lambda _, its_group=its_group: its_group)
        assert run_quietly() == 9
        assert bool(list(chosen.rglob("*.kernel"))) is is_kept
        make_square(0)._cache.flush()
    monkeypatch.setattr(private_folder.grp, "getgrgid", lambda _: group(user.pw_name, []))
    monkeypatch.setattr(os, "listxattr", lambda _: ["system.posix_acl_access"], raising=False)  # users by name
    assert run_quietly() == 9
    assert list(chosen.rglob("*.kernel")) == []


@needs_root
def test_in_a_container_without_a_number_for_root_its_folders_are_still_roots(
    chosen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = int(Path("/proc/sys/kernel/overflowuid").read_text())
    chosen.mkdir()
    os.chown(chosen, nobody, nobody)
    for numbers, is_kept in (("0 0 4294967295", False), ("1000 1000 1", True)):
        (tmp_path / "uid_map").write_text(f"  {numbers}\n")
        monkeypatch.setattr(private_folder, "_USER_NUMBERS", tmp_path / "uid_map")
        private_folder._root_outside.cache_clear()
        assert run_quietly() == 9
        assert bool(list(chosen.rglob("*.kernel"))) is is_kept
    private_folder._root_outside.cache_clear()


# --- disks that are full, processes that are killed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
def test_a_full_disk_leaves_nothing_half_written(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tempfile.mkstemp

    def full(**options):
        descriptor, path = real(**options)
        os.close(descriptor)
        return os.open("/dev/full", os.O_WRONLY), path

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.warns(UserWarning, match=os.strerror(errno.ENOSPC)):
        assert make_square(0)(3) == 9
    assert [path.name for path in chosen.rglob("*") if path.is_file()] == ["made-by-scramjet"]


KILLED = """
import os, sys
from pathlib import Path
from scramjet.compile import cache_folder
os.replace = lambda *_: os.kill(os.getpid(), 9)
cache_folder.write_kernel(cache_folder.entry_directory("0" * 64) / "a-0.kernel", b"code")
"""


def test_what_a_killed_process_left_is_removed_after_a_time(chosen: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    (left,) = chosen.rglob("*.partial")
    make_entry(entry_directory("1" * 64))
    assert left.exists()  # it may still be written
    cache_folder._remove_leftovers.cache_clear()  # as in a later process
    os.utime(left, (time.time() - 2 * cache_folder.LEFTOVER_SECONDS,) * 2)
    make_entry(entry_directory("2" * 64))
    assert not left.exists()
