"""Compiled functions on disk: one entry for each type and closure, among files of others that stay and are not run."""

import errno
import grp
import hashlib
import os
import pickle
import pwd
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numba import types

from scramjet.compile import cache_folder
from scramjet.compile.cache_folder import (
    cache_directory,
    entry_directory,
    entry_lock,
    make_entry,
    pack,
    read_kernel,
    unpack,
    write_kernel,
)
from scramjet.compile.jit import compiled
from scramjet.compile.numba_internals import compilation
from scramjet.runtime import private_files
from tests.helpers import ROOT
from tests.helpers.processes import run_python

SOMEBODY = 54321


def make_square(power: int):
    """A fresh dispatcher over the same source each time, as in another start."""

    def square(x):
        return x**2 + power

    return compiled(square)


def misses(function) -> int:
    return sum(function.stats.cache_misses.values())


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that SCRAMJET_CACHE_DIR names, in one of its own."""
    compilation._TOLD.clear()
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "above" / "chosen"))
    return tmp_path / "above" / "chosen"


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CACHE_HOME", "SCRAMJET_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, below in (("HOME", ".cache"), ("XDG_CACHE_HOME", "."), ("SCRAMJET_CACHE_DIR", ".")):  # the last wins
        monkeypatch.setenv(name, str(tmp_path / name))
        assert cache_directory() == tmp_path / name / below / "scramjet-kernels"
    for name in ("SCRAMJET_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user's number without a name and a home
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_directory() == tmp_path / "scramjet-kernels"


def test_a_function_is_compiled_once_for_each_type_and_closure(chosen: Path) -> None:
    for power, expected, compiles in ((1, (10, 1.25), 2), (1, (10, 1.25), 0), (5, (14, 5.25), 2)):
        square = make_square(power)
        assert (square(3), square(0.5)) == expected
        assert misses(square) == compiles, power


SPOILED = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit flipped": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    "other bytes": lambda content: b"not a kernel" * 100,
    "names no library": lambda content: pack({**unpack(content)[0], "library": None}, unpack(content)[1]),
    "lacks a field": lambda content: pack({}, unpack(content)[1]),
    "lacks the code": lambda content: pack(unpack(content)[0], []),
}
"""Damaged entries, and those whose hash is right and whose content is of no use."""


def test_a_spoiled_entry_is_compiled_anew_and_replaced(chosen: Path) -> None:
    assert make_square(2)(3) == 11
    (file,) = chosen.rglob("*.kernel")
    for kind, spoil in SPOILED.items():
        file.write_bytes(spoil(file.read_bytes()))
        for expected_misses in (1, 0):
            again = make_square(2)
            assert (again(3), misses(again)) == (11, expected_misses), kind


def test_a_cache_that_cannot_be_written_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="Not a directory; set SCRAMJET_CACHE_DIR") as told:
        assert [make_square(power)(3) for power in (4, 5)] == [13, 14]
    assert len(told) == 1
    with entry_lock(entry_directory("0" * 64)):  # without a lock each process compiles for itself
        assert (tmp_path / "file").read_text() == "in the way"


def test_of_two_who_want_one_kernel_the_second_waits(chosen: Path) -> None:
    entry, order, is_held = entry_directory("0" * 64), [], threading.Event()

    def first() -> None:
        with entry_lock(entry):
            is_held.set()
            time.sleep(0.2)
            order.append("first is done")

    thread = threading.Thread(target=first)
    thread.start()
    assert is_held.wait(60)
    with entry_lock(entry):
        order.append("second")
    thread.join(60)
    assert order == ["first is done", "second"]


HELPER_BELOW = """
from scramjet.compile.jit import callable_from_compiled, compiled
from scramjet.compile.addresses import AddressedFunction, words


@compiled
def twice_counted():
    return _counted() + _counted()


@AddressedFunction
def count(address):
    words(address, 1)[0] = _counted()


@callable_from_compiled
def _counted():
    return NUMBER
"""


def test_helpers_of_one_name_are_told_apart_when_compiled_and_when_loaded(chosen: Path) -> None:
    """Although they are defined below their callers."""
    for number in (3, 4, 3, 4):
        scope: dict = {"__name__": "a_module", "NUMBER": number}
        exec(HELPER_BELOW, scope)
        out = np.zeros(1, np.int64)
        scope["count"](out.ctypes.data)
        assert (scope["twice_counted"](), out[0]) == (2 * number, number)


TWO_WORLDS = """
import numpy as np
from scramjet.adapters.make import make
misses, pools = 0, [make("WORLD", 4, num_threads=2, length=length) for length in (2, 3)]
for pool in pools:
    pool.reset(0)
for pool in pools:
    for _ in range(6):
        pool.step(np.ones(4, np.int64))
    lengths, kernels = pool.episodes().lengths, (pool._kernels.reset, pool._kernels.step_threaded)
    print(lengths.min(), lengths.max())
    misses += sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels)
print(misses)
"""


@pytest.mark.rest
def test_two_worlds_of_one_shape_loaded_from_the_cache_do_not_mix() -> None:
    """Numba names symbols by function, not by what it closes over: one could call the other's code."""
    program = TWO_WORLDS.replace("WORLD", f"{ROOT}/examples/corridor.py")
    for is_later in (False, True):  # with the usual cache, which may have them the first time
        *lengths, compiled_anew = run_python(program, NUMBA_NUM_THREADS="2").split()
        assert lengths == ["2", "2", "3", "3"]  # all start at 0 and walk to the end
        assert compiled_anew == "0" or not is_later


# --- nobody else's files are removed


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_chosen_folder_full_of_a_users_own_loses_nothing(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "MAX_ENTRIES", 3)
    ours = chosen / "scramjet-kernels"
    for folder in (chosen, ours):  # even where ours would be, and named as ours are
        for name in [f"chapter {i}" for i in range(20)] + [f"{i:032x}" for i in range(20)]:
            (folder / name).mkdir(parents=True)
            for file in ("chapter.tex", "step-0123456789abcdef.kernel", "x.partial", "lock", "done"):
                (folder / name / file).write_text(f"{name} {file}")
                os.utime(folder / name / file, (1e9, 1e9))
            os.utime(folder / name, (1e9, 1e9))
    ours.chmod(0o700)
    (ours / "notes.partial").write_text("of the user")
    before = contents(chosen)
    for i in range(6):
        make_entry(entry_directory(f"{i}" * 64))
    square = make_square(1)
    assert square(3) == 10
    square.recompile()  # flushes
    after = contents(chosen)
    assert after | before == after
    assert len([path for path in after if path.name == "made-by-scramjet"]) == 3  # while ours come and go


def test_the_entries_that_nobody_read_for_longest_are_forgotten(chosen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "MAX_ENTRIES", 3)
    old = [entry_directory(f"{i:064x}"[::-1]) for i in range(4)]
    for age, entry in enumerate(old[:3]):
        write_kernel(entry / "a-0.kernel", b"code")
        with entry_lock(entry):
            os.utime(entry, (1e9 - age, 1e9 - age))
    assert read_kernel(old[2] / "a-0.kernel") == b"code"  # the oldest was needed again
    write_kernel(old[3] / "a-0.kernel", b"")
    assert [entry.exists() for entry in old] == [True, False, True, True]
    assert len(list(cache_directory().iterdir())) == 3


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
    entry = entry_directory("0" * 64)
    for left_over in (["notes.txt"], ["a-0.kernel", "notes.txt"]):  # the second time it has no mark of ours
        write_kernel(entry / "a-0.kernel", b"")
        (entry / "notes.txt").write_text("of the user")
        cache_folder.remove_entry(entry)
        assert sorted(path.name for path in entry.iterdir()) == left_over


# --- nobody else's code is run


class Harm:
    def __reduce__(self):
        return os.mkdir, (os.environ["SCRAMJET_CACHE_DIR"] + "/harm",)


def test_only_machine_code_that_nobody_else_could_write_is_run(chosen: Path) -> None:
    assert make_square(100)(3) == 109
    (wrong,) = chosen.rglob("*.kernel")
    square = make_square(0)
    planted = square._cache._path((types.int64,), square.targetctx.codegen())
    write_kernel(planted, wrong.read_bytes())
    assert make_square(0)(3) == 109  # it is good enough: below it is refused for its owner, mode or kind alone
    payload = pickle.dumps(Harm())
    for spoiled in (hashlib.sha256(payload).digest() + payload, payload):
        planted.write_bytes(spoiled)
        assert make_square(0)(3) == 9
    assert list(chosen.iterdir()) == [chosen / "scramjet-kernels"]  # no harm was done
    planted.write_bytes(wrong.read_bytes())
    planted.chmod(0o602)
    assert make_square(0)(3) == 9
    planted.unlink()
    os.mkfifo(planted)  # is not waited for
    assert make_square(0)(3) == 9
    assert planted.is_file()  # replaced


@pytest.fixture
def kept(chosen: Path) -> Path:
    path = entry_directory("0" * 64) / "a-0.kernel"
    write_kernel(path, b"code")
    return path


def is_read(path: Path) -> bool:
    try:
        return read_kernel(path) == b"code"
    except OSError:
        return False


LEVELS = ["the file", "the entry", "our folder", "the chosen folder", "a folder above"]


def as_if_of(user: int, place: Path, patch: pytest.MonkeyPatch) -> None:
    """Whoever asks is told that a file or a folder belongs to another user: only root could really give it away."""
    number = place.lstat().st_ino

    def told(real, *arguments, **named) -> os.stat_result:
        status = real(*arguments, **named)
        return os.stat_result([*status[:4], user, *status[5:]]) if status.st_ino == number else status

    patch.setattr(os, "lstat", partial(told, os.lstat))
    patch.setattr(os, "fstat", partial(told, os.fstat))


def test_what_belongs_to_another_user_is_not_read(kept: Path) -> None:
    assert is_read(kept)
    for level, place in zip(LEVELS, [kept, *kept.parents], strict=False):
        with pytest.MonkeyPatch.context() as patch:
            as_if_of(SOMEBODY, place, patch)
            assert not is_read(kept), level
    assert is_read(kept)


def test_what_others_can_write_is_not_read(kept: Path) -> None:
    for level, place in zip(LEVELS, [kept, *kept.parents], strict=False):
        before = place.stat().st_mode
        is_ours = level in LEVELS[:3]
        for mode in (0o702, 0o1777, *([0o720] if is_ours else [])):
            place.chmod(mode)
            # Above ours a sticky folder will do, like /tmp: who does not own a folder there cannot move it.
            assert is_read(kept) == (mode == 0o1777 and not is_ours), (level, mode)
        place.chmod(before)
    assert is_read(kept)


def test_links_are_not_followed_when_code_is_read_but_the_chosen_folder_may_be_one(kept: Path, tmp_path: Path) -> None:
    for level, place in zip(LEVELS[:4], [kept, *kept.parents], strict=False):
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
        again = entry_directory("0" * 64) / kept.name
        assert is_read(again) == (level == "the chosen folder"), level
        place.unlink()
        (tmp_path / "elsewhere").rename(place)


def test_a_lock_that_is_a_link_makes_and_opens_no_file_elsewhere(kept: Path, tmp_path: Path) -> None:
    (kept.parent / "lock").symlink_to(tmp_path / "elsewhere")
    with entry_lock(kept.parent):
        assert not (tmp_path / "elsewhere").exists()


def test_a_group_that_has_only_its_owner_may_write_above(
    kept: Path, chosen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many systems give each user such a group, and home folders that it can write to."""
    user, asked = pwd.getpwuid(os.geteuid()), []
    monkeypatch.setattr(private_files.grp, "getgrgid", lambda number: asked[-1])
    os.chown(chosen, -1, user.pw_gid)
    chosen.chmod(0o775)
    for name, members, is_safe in (
        (user.pw_name, [], True),
        (user.pw_name, [user.pw_name], True),
        (user.pw_name, [user.pw_name, "somebody"], False),
        ("staff", [], False),
    ):
        asked.append(grp.struct_group((name, "x", user.pw_gid, members)))
        assert is_read(kept) is is_safe, (name, members)
    asked.append(grp.struct_group((user.pw_name, "x", user.pw_gid, [])))
    monkeypatch.setattr(os, "listxattr", lambda _: ["system.posix_acl_access"], raising=False)  # users by name
    assert not is_read(kept)


def test_in_a_container_without_a_number_for_root_its_folders_are_still_roots(
    kept: Path, chosen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_if_of(int(Path("/proc/sys/kernel/overflowuid").read_text()), chosen, monkeypatch)
    for numbers, is_safe in (("0 0 4294967295", False), ("1000 1000 1", True)):
        (tmp_path / "uid_map").write_text(f"  {numbers}\n")
        monkeypatch.setattr(private_files, "_USER_NUMBERS", tmp_path / "uid_map")
        private_files._root_outside.cache_clear()
        assert is_read(kept) is is_safe, numbers
    private_files._root_outside.cache_clear()


# --- what it makes is its own, and it says why it keeps nothing


def test_all_that_it_makes_is_for_this_user_alone(chosen: Path) -> None:
    before = os.umask(0)
    try:
        write_kernel(entry_directory("0" * 64) / "a-0.kernel", b"code")
        with entry_lock(entry_directory("0" * 64)):
            made = [chosen.parent, *chosen.parent.rglob("*")]
    finally:
        os.umask(before)
    modes = [(path.is_dir(), path.stat().st_mode & 0o777) for path in made]
    assert set(modes) == {(True, 0o700), (False, 0o600)}
    assert len([path for path in made if path.is_file()]) == 3  # kernel, mark, lock


def test_one_warning_names_the_folder_its_mode_or_owner_and_the_fix(
    chosen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen.mkdir(parents=True)
    chosen.chmod(0o777)
    with pytest.warns(UserWarning, match="compiled kernels are not kept in") as told:
        assert [make_square(power)(3) for power in range(3)] == [9, 10, 11]
    (text,) = [str(one.message) for one in told]
    assert f"others can write to {chosen} (mode 0777)" in text
    assert f"run `chmod go-w {chosen}`, or set SCRAMJET_CACHE_DIR to a folder that you alone can write to" in text
    assert list(chosen.iterdir()) == []
    compilation._TOLD.clear()
    as_if_of(SOMEBODY, chosen, monkeypatch)
    with pytest.warns(UserWarning, match=f"{chosen} belongs to user {SOMEBODY}, who could put code of theirs there"):
        assert make_square(0)(3) == 9


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
import os
from scramjet.compile import cache_folder
os.replace = lambda *_: os.kill(os.getpid(), 9)
cache_folder.write_kernel(cache_folder.entry_directory("0" * 64) / "a-0.kernel", b"code")
"""


def test_what_a_killed_process_left_is_removed_after_a_time(chosen: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False, timeout=60)
    (left,) = chosen.rglob("*.partial")
    make_entry(entry_directory("1" * 64))
    assert left.exists()  # it may still be written
    cache_folder._remove_leftovers.cache_clear()  # as in a later process
    os.utime(left, (time.time() - 2 * cache_folder.LEFTOVER_SECONDS,) * 2)
    make_entry(entry_directory("2" * 64))
    assert not left.exists()
