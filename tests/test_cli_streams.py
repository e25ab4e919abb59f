"""The command where its surroundings fail: closed streams, Ctrl-C while it starts and ends, paths too long."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scramjet.cli import main
from scramjet.runtime.metrics_log import read_metrics

pytestmark = pytest.mark.faults

TINY = "cartpole --num-envs 4 --num-steps 8 --num-threads 1 --total-timesteps 64 --eval.final-episodes 0"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    command = command.replace("scramjet ", f"{sys.executable} -m scramjet ", 1)
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_training_with_every_stream_closed_works_and_prints_into_no_file(tmp_path: Path) -> None:
    done = shell(f"scramjet train {TINY} --runs-dir {tmp_path} --run-name a <&- >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [record["step"] for record in read_metrics(tmp_path / "a" / "metrics.jsonl")] == [32, 64]
    assert len((tmp_path / "a" / ".lock").read_text().splitlines()) == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    assert "Traceback" not in shell(f"scramjet --version {closed}").stderr
    assert shell(f"scramjet --version {closed}").returncode == 0
    unknown = shell(f"scramjet trian {closed}")
    assert unknown.returncode == 2
    assert unknown.stdout == "", "errors are none of the output"


def test_output_that_cannot_be_written_is_one_message() -> None:
    done = shell("scramjet --help 1</dev/null")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("scramjet: Bad file descriptor: check where the output goes")


INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from scramjet.cli import main
class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
main()
"""

INTERRUPTED_AT_EXIT = """
import atexit, os, signal, sys, threading, time
from scramjet.cli import main
if sys.argv.pop(1) == "atexit":
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
else:  # while Python waits for a thread
    def interrupt():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    threading.Thread(target=interrupt).start()
main()
"""

INTERRUPTED_WHILE_BEGINNING = """
import os, signal, sys
import scramjet.training.start as start
from scramjet.cli import main
def interrupted(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
start.build_session = interrupted
main()
"""


@pytest.mark.parametrize("module", ["torch", "numba", "scramjet.commands.train"])
def test_ctrl_c_while_modules_load_ends_quietly(module: str, tmp_path: Path) -> None:
    done = python(INTERRUPTED_WHILE_LOADING, module, "train", "cartpole", "--runs-dir", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("moment", ["atexit", "thread"])
def test_ctrl_c_while_python_shuts_down_ends_quietly(moment: str) -> None:
    done = python(INTERRUPTED_AT_EXIT, moment, "--version")
    assert done.returncode == 130
    assert done.stdout.startswith("scramjet ")
    assert done.stderr == ""


def test_ctrl_c_while_a_run_is_being_made_leaves_no_run(tmp_path: Path) -> None:
    words = ["train", "cartpole", "--display", "quiet", "--runs-dir", tmp_path]
    done = python(INTERRUPTED_WHILE_BEGINNING, *words)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_command_whose_interrupts_are_ignored_goes_on_ignoring_them() -> None:
    code = "import os, signal, sys; from scramjet.cli import main; os.kill(os.getpid(), signal.SIGINT); main()"
    words = [sys.executable, "-c", code, "--version"]
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731 - as nohup and `&` do
    done = subprocess.run(words, capture_output=True, timeout=60, check=False, preexec_fn=ignore)
    assert done.returncode == 0


@pytest.mark.parametrize("command", ["train cartpole", "train --resume x", "eval x", "train --fork x"])
@pytest.mark.parametrize("folder", ["x" * 300, "x" * 6_000, "x/" * 3_000], ids=["long name", "longer", "deep"])
def test_a_runs_dir_too_long_is_told_and_leaves_nothing(
    folder: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        main([*command.split(), "--runs-dir", f"{tmp_path}/{folder}"])
    assert ending.value.code == 2
    output = capsys.readouterr().err
    assert output.startswith("scramjet: ")
    assert output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
