"""Compiled functions on disk: one entry for each type and closure; damaged ones are compiled anew."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from scramjet.compile.cache_folder import cache_directory
from scramjet.compile.jit import compiled
from scramjet.compile.kernel_file import pack, unpack
from scramjet.engine import NativePool
from scramjet.envs import load_env


def make_square(power: int):
    """A fresh dispatcher over the same source each time, as in another start."""

    def square(x):
        return x**2 + power

    return compiled(square)


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(folder))
    return folder


def count(counter) -> int:
    return sum(counter.values())


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "a"))
    assert cache_directory() == tmp_path / "a" / "scramjet-kernels"
    monkeypatch.delenv("SCRAMJET_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_directory() == tmp_path / "b" / "scramjet-kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "home" / ".cache" / "scramjet-kernels"


def test_a_user_without_a_home_has_a_cache_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SCRAMJET_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a number that has no name
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_directory() == tmp_path / "scramjet-kernels"


def test_a_function_is_compiled_once_for_each_type_and_closure(cache_folder: Path) -> None:
    first = make_square(1)
    assert (first(3), first(0.5)) == (10, 1.25)
    assert count(first.stats.cache_misses) == 2
    second = make_square(1)
    assert (second(3), second(0.5)) == (10, 1.25)
    assert (count(second.stats.cache_hits), count(second.stats.cache_misses)) == (2, 0)
    other = make_square(5)
    assert other(3) == 14
    assert count(other.stats.cache_misses) == 1


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit flipped": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
    "other bytes": lambda content: b"not a kernel" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_compiled_anew_and_replaced(cache_folder: Path, damage: str) -> None:
    assert make_square(2)(3) == 11
    (file,) = cache_folder.rglob("*.kernel")
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    again = make_square(2)
    assert again(3) == 11
    assert count(again.stats.cache_misses) == 1
    mended = make_square(2)
    assert mended(3) == 11
    assert count(mended.stats.cache_hits) == 1


UNUSABLE = {
    "names no library": lambda header, parts: pack({**header, "library": None}, parts),
    "lacks a field": lambda header, parts: pack({}, parts),
    "lacks the code": lambda header, parts: pack(header, []),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_entry_that_is_whole_but_cannot_be_loaded_is_compiled_anew(cache_folder: Path, kind: str) -> None:
    """The hash is right, the content is of no use."""
    assert make_square(3)(3) == 12
    (file,) = cache_folder.rglob("*.kernel")
    file.write_bytes(UNUSABLE[kind](*unpack(file.read_bytes())))
    again = make_square(3)
    assert again(3) == 12
    assert count(again.stats.cache_misses) == 1


def test_a_cache_that_cannot_be_written_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="Not a directory; set SCRAMJET_CACHE_DIR") as told:
        assert [make_square(power)(3) for power in (4, 5)] == [13, 14]
    assert len(told) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache_folder_only_warns(cache_folder: Path) -> None:
    cache_folder.mkdir(mode=0o500)
    with pytest.warns(UserWarning, match="compiled kernels are not kept in"):
        assert make_square(4)(3) == 13


def test_a_world_works_where_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "file" / "cache"))
    pool = NativePool(load_env("probe_constant"), 2, num_threads=1)
    with pytest.warns(UserWarning, match="compiled kernels are not kept in"):
        out = pool.reset(0)
    assert out.obs.tolist() == [[0.0], [0.0]]


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


def test_a_helper_defined_below_its_caller_counts_for_the_fingerprint(cache_folder: Path) -> None:
    for number in (3, 4):
        scope: dict = {"__name__": "a_module", "NUMBER": number}
        exec(HELPER_BELOW, scope)
        out = np.zeros(1, np.int64)
        scope["count"](out.ctypes.data)
        assert (scope["twice_counted"](), out[0]) == (2 * number, number)
