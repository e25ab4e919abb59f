"""Compiling on a second core while a first start goes on."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scramjet.accelerate.numba import compile_ahead as ahead
from scramjet.compile.cache_folder import cache_directory, entry_directory, entry_lock


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def started(monkeypatch):
    """The processes that would have been started; each is at work until `code` is set."""
    processes = []

    class Started:
        def __init__(self, command, **options):
            self.command, self.code = command, None
            processes.append(self)

        def poll(self):
            return self.code

    monkeypatch.setattr(ahead.subprocess, "Popen", Started)
    monkeypatch.setattr(ahead, "_STARTED", [])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return processes


def test_a_first_start_compiles_ahead_and_later_ones_do_not(cache, started):
    ahead.compile_ahead()
    assert [process.command[0] for process in started] == [sys.executable]
    started[0].code = 0
    with entry_lock(ahead._entry()):
        ahead._mark(ahead._entry()).touch()
    ahead.compile_ahead()
    assert len(started) == 1


def test_of_two_starts_in_one_process_the_second_compiles_ahead_only_if_that_of_the_first_has_ended(cache, started):
    for _ in range(2):
        ahead.compile_ahead()
    assert len(started) == 1
    started[0].code = 1  # killed, say
    ahead.compile_ahead()
    assert len(started) == 2


def test_a_cache_that_cannot_be_looked_into_costs_no_more_than_time(started, monkeypatch):
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", "x" * 300)
    ahead.compile_ahead()
    assert started == []


def test_where_others_could_put_code_into_the_cache_nothing_is_started(cache, started):
    cache.mkdir()
    cache.chmod(0o777)
    ahead.compile_ahead()
    assert started == []
    assert list(cache.iterdir()) == []


def test_on_one_core_nothing_is_started(cache, started, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    ahead.compile_ahead()
    assert started == []


def test_no_process_to_be_had_is_no_error(cache, monkeypatch):
    asked = []

    def refuse(*arguments, **options):
        asked.append(arguments)
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(ahead, "_STARTED", [])
    monkeypatch.setattr(ahead.subprocess, "Popen", refuse)
    ahead.compile_ahead()
    assert len(asked) == 1


def test_the_process_fills_the_cache_and_says_so():
    """The cache that all tests share, which has what it compiles once the code has not changed since."""
    source = (
        "from scramjet.accelerate.numba import compile_ahead as ahead; "
        "ahead._compile(); print(ahead._mark(ahead._entry()).exists())"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    kernels = {path.name.rpartition("-")[0] for path in cache_directory().rglob("*.kernel")}
    assert {"gradients_of_parts", "act_in_part", "loss_of_choices", "layer"} <= kernels


START = """
import os, time
os.cpu_count = lambda: 2
from scramjet.accelerate.numba import compile_ahead as ahead
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
    process.communicate()


def wait_until(is_so, seconds=60):
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_the_process_is_one_of_ours_and_ends_with_the_one_that_started_it(cache, parent, tmp_path):
    child = int(parent.stdout.readline())
    wait_until(lambda: len(list(cache.rglob("lock"))) == 2)  # it has begun to compile, with the right modules
    assert not (tmp_path / "ran").exists()  # and not with those of the folder that the user is in
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: has_ended(child), 10)
    assert not list(cache.rglob("done"))


def has_ended(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{process}/stat")
    return status.exists() and ") Z " in status.read_text()  # it has, and nobody has asked yet


def test_of_two_who_want_one_kernel_the_second_waits(cache):
    entry, order = entry_directory("0" * 64), []

    def first():
        with entry_lock(entry):
            order.append("first")
            time.sleep(0.2)
            order.append("first is done")

    thread = threading.Thread(target=first)
    thread.start()
    while not order:
        time.sleep(0.01)
    with entry_lock(entry):
        order.append("second")
    thread.join()
    assert order == ["first", "first is done", "second"]


def test_where_nothing_can_be_written_each_compiles_for_itself(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCRAMJET_CACHE_DIR", str(tmp_path / "file"))
    with entry_lock(entry_directory("0" * 64)):
        assert (tmp_path / "file").read_text() == "in the way"


def test_what_it_compiles_needs_no_torch():
    """It is at work while the main process still loads that."""
    modules = ", ".join(f"scramjet.accelerate.numba.{part}_kernels" for part in ("acting", "gradient", "loss", "step"))
    source = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_to_look_whether_it_is_done_needs_no_compiler():
    """The process starts while the main one still loads that."""
    source = "import sys, scramjet.accelerate.numba.compile_ahead; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
