"""Compiling on a second core while a first start goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from scramjet.compile.cache_folder import cache_directory, entry_lock
from scramjet.executors import compile_ahead as ahead
from tests.helpers.processes import run_python


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def started(monkeypatch):
    """The processes that would have been started; each is at work until `code` is set."""
    processes = []

    def start(command, **options):
        processes.append(process := SimpleNamespace(command=command, code=None))
        process.poll = lambda: process.code
        return process

    monkeypatch.setattr(ahead.subprocess, "Popen", start)
    monkeypatch.setattr(ahead, "_STARTED", [])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return processes


def test_one_process_at_a_time_compiles_ahead_until_all_is_compiled(cache, started):
    for _ in range(2):
        ahead.compile_ahead()
    assert [process.command[0] for process in started] == [sys.executable]
    started[0].code = 1  # killed, say
    ahead.compile_ahead()
    assert len(started) == 2
    started[1].code = 0
    with entry_lock(ahead._entry()):
        ahead._mark(ahead._entry()).touch()
    ahead.compile_ahead()
    assert len(started) == 2


def test_where_it_cannot_help_or_must_not_nothing_is_started(cache, started, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        ahead.compile_ahead()
    with monkeypatch.context() as patch:
        patch.setenv("SCRAMJET_CACHE_DIR", "x" * 300)  # cannot be looked into
        ahead.compile_ahead()
    cache.mkdir()
    cache.chmod(0o777)  # others could put code there
    ahead.compile_ahead()
    assert (started, list(cache.iterdir())) == ([], [])
    cache.chmod(0o700)

    def refuse(*arguments, **options):
        started.append(arguments)
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(ahead.subprocess, "Popen", refuse)
    ahead.compile_ahead()  # no error
    assert len(started) == 1


@pytest.mark.rest
def test_the_process_fills_the_cache_and_says_so():
    """The cache that all tests share, which has what it compiles once the code has not changed since."""
    ahead._compile()
    assert ahead._mark(ahead._entry()).exists()
    kernels = {path.name.rpartition("-")[0] for path in cache_directory().rglob("*.kernel")}
    assert {"gradients_of_parts", "act_in_part", "loss_of_choices", "layer"} <= kernels


START = """
import os, time
os.cpu_count = lambda: 2
from scramjet.executors import compile_ahead as ahead
ahead.compile_ahead()
print(ahead._STARTED[0].pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def parent(cache, tmp_path):
    """A process that has started one, in a folder with a module of somebody else's."""
    (tmp_path / "numba.py").write_text("open('ran', 'w')")
    command = [sys.executable, "-P", "-c", START]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate(timeout=60)


def wait_until(is_so):
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_the_process_is_one_of_ours_and_ends_with_the_one_that_started_it(cache, parent, tmp_path):
    child = int(parent.stdout.readline())
    wait_until(lambda: len(list(cache.rglob("lock"))) == 2)  # it has begun to compile, with the right modules
    assert not (tmp_path / "ran").exists()  # and not with those of the folder that the user is in
    parent.send_signal(signal.SIGKILL)
    parent.wait(60)
    wait_until(lambda: has_ended(child))
    assert not list(cache.rglob("done"))


def has_ended(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{process}/stat")
    return status.exists() and ") Z " in status.read_text()  # it has, and nobody has asked yet


LOADED = """
import sys
import scramjet.executors.compile_ahead
print("numba" in sys.modules)
from scramjet.kernels.cpu import acting as acting_kernels
from scramjet.kernels.cpu import steps as step_kernels
from scramjet.kernels.cpu import steps as gradient_kernels
from scramjet.kernels.cpu import losses as loss_kernels
print("torch" in sys.modules)
"""


def test_to_look_whether_all_is_compiled_needs_no_compiler_and_what_it_compiles_needs_no_torch():
    """The process starts while the main one still loads Numba, and is at work while that loads torch."""
    assert run_python(LOADED).split() == ["False", "False"]
