"""The command where its surroundings fail: closed streams, a full disk, Ctrl-C, long paths; and what errors show."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scramjet
from scramjet import cli
from scramjet.errors import LAYOUT, ConfigError, ScramjetError, printable, shortened
from scramjet.reports.plots import load_matplotlib
from scramjet.runtime.logs import read_metrics
from tests.helpers.command_calls import call, refusal

pytestmark = [pytest.mark.faults]


def shell(command: str) -> subprocess.CompletedProcess[str]:
    command = command.replace("scramjet ", f"{sys.executable} -m scramjet ", 1)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as users have it
    return subprocess.run(["sh", "-c", command], env=buffered, capture_output=True, text=True, timeout=120, check=False)


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def test_output_that_cannot_be_written_is_one_message_and_exit_code_2():
    assert shell("scramjet --version").stdout.strip() == f"scramjet {scramjet.__version__}"
    for command, problem in (
        ("--version >/dev/full", "No space left"),
        ("--help 1</dev/null", "Bad file descriptor: check"),
    ):
        done = shell(f"scramjet {command}")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), command
        assert done.stderr.startswith(f"scramjet: {problem}"), command


def test_names_that_the_package_does_not_have_say_what_to_write():
    for name, said in {"PPO": "scramjet.train(", "load": "scramjet.load_policy(", "serve": "scramjet serve"}.items():
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(scramjet, name)
    assert not hasattr(scramjet, "nothing_of_the_kind")


def test_a_module_run_by_its_name_is_the_command_or_says_so():
    for module, code, words in (
        ("scramjet.cli --version", 0, f"scramjet {scramjet.__version__}"),
        ("scramjet.cli trian", 2, "Did you mean 'train'?"),
        ("scramjet.cli bread", 2, "unknown command 'bread'. Commands: train"),
        ("scramjet.commands.train cartpole", 2, "type `python -m scramjet COMMAND`"),
    ):
        done = shell(f"{sys.executable} -m {module} 2>&1")
        assert (done.returncode, words in done.stdout, done.stdout.count("\n")) == (code, True, 1), module


WARNING = """
import warnings
from scramjet.runtime import private_files as user_state
from scramjet.cli import main
def run(words):
    exec(compile("import warnings; warnings.warn('kept in \\x1b[2J nothing')", user_state.__file__, "exec"))
    warnings.warn("of somebody else")
    return 0
main.__globals__["run"] = run
main([])
"""


def test_a_warning_of_ours_is_one_line_without_our_source_and_without_control_characters():
    done = python(WARNING)
    first, second, *_ = done.stderr.splitlines()
    assert first == r"scramjet: kept in \x1b[2J nothing"
    assert "UserWarning: of somebody else" in second


def test_a_strangers_settings_for_libraries_are_not_obeyed(tmp_path, monkeypatch):
    """From the folder that one is in, Numba reads which CUDA driver to load, and matplotlib whether to run LaTeX."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".numba_config.yaml").write_text("cuda_driver: ./evil.so\n")
    with pytest.raises(ScramjetError, match=r"\.numba_config\.yaml in the folder"):
        cli.run(["list"])
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    os.mkfifo(tmp_path / "matplotlibrc")
    with pytest.raises(ScramjetError, match="matplotlibrc in the folder"):
        load_matplotlib()


def test_a_folder_that_is_gone_is_one_message(tmp_path):
    done = shell(f"cd {tmp_path}; mkdir gone; cd gone; rmdir ../gone; scramjet list")
    assert (done.returncode, done.stderr) == (
        2,
        "scramjet: the folder that you are in is gone; go to another one: cd\n",
    )


UNUSUAL = """
import scramjet.cli
def run(words):
    if words:
        raise RuntimeError("can't start new thread")
    print("1 \\u00b1 2")
    return 0
scramjet.cli.run = run
scramjet.cli.main()
"""


def test_characters_that_a_terminal_lacks_and_a_want_of_threads_are_no_tracebacks():
    words = [sys.executable, "-c", UNUSUAL]
    for ascii_only in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = subprocess.run(words, env={**os.environ, **ascii_only}, capture_output=True, check=True)
        assert done.stdout == rb"1 \xb1 2" + b"\n"
    done = subprocess.run([*words, "train"], capture_output=True, text=True, check=False)
    assert (done.returncode, "`ulimit -u`" in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_closed_streams_are_no_error():
    for closed in (">&-", "2>&-", "<&-", ">&- 2>&-"):
        known, unknown = shell(f"scramjet --version {closed}"), shell(f"scramjet trian {closed}")
        assert (known.returncode, unknown.returncode) == (0, 2), closed
        assert "Traceback" not in known.stderr, closed
        assert unknown.stdout == "", f"{closed}: errors are none of the output"


@pytest.mark.rest
def test_training_with_every_stream_closed_works_and_prints_into_no_file(tmp_path):
    words = "cartpole --num-envs 4 --num-steps 8 --num-threads 1 --total-timesteps 64 --eval.final-episodes 0"
    done = shell(f"scramjet train {words} --runs-dir {tmp_path} --run-name a <&- >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [record["step"] for record in read_metrics(tmp_path / "a" / "metrics.jsonl")] == [32, 64]
    assert len((tmp_path / "a" / ".lock").read_text().splitlines()) == 1


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


@pytest.mark.parametrize(
    "module", ["torch", *(pytest.param(name, marks=pytest.mark.rest) for name in ("numba", "scramjet.commands.train"))]
)
def test_ctrl_c_while_modules_load_ends_quietly(module, tmp_path):
    done = python(INTERRUPTED_WHILE_LOADING, module, "train", "cartpole", "--runs-dir", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_python_shuts_down_ends_quietly():
    for moment in ("atexit", "thread"):
        done = python(INTERRUPTED_AT_EXIT, moment, "--version")
        assert (done.returncode, done.stderr) == (130, ""), moment
        assert done.stdout.startswith("scramjet "), moment


def test_ctrl_c_while_a_run_is_being_made_leaves_no_run(tmp_path, monkeypatch, capsys):
    def interrupted(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("scramjet.training.start.build_session", interrupted)
    assert call("train", "cartpole", "--display", "quiet", "--runs-dir", tmp_path) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_command_whose_interrupts_are_ignored_goes_on_ignoring_them():
    code = "import os, signal, sys; from scramjet.cli import main; os.kill(os.getpid(), signal.SIGINT); main()"
    words = [sys.executable, "-c", code, "--version"]
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731 - as nohup and `&` do
    done = subprocess.run(words, capture_output=True, timeout=60, check=False, preexec_fn=ignore)
    assert done.returncode == 0


def test_a_runs_dir_too_long_is_told_and_leaves_nothing(tmp_path, capsys):
    for folder in ("x" * 300, "x" * 6_000, "x/" * 3_000):
        for command in ("train cartpole", "train --resume x", "eval x", "train --fork x"):
            told = refusal(capsys, *command.split(), "--runs-dir", f"{tmp_path}/{folder}")
            assert told.startswith("scramjet: "), (command, len(folder))
            assert list(tmp_path.iterdir()) == [], (command, len(folder))


HOSTILE = "a\x1b]0;pwned\x07\x1b[2J\r\x9b31m\u202e\u2028\ud800\x00b"


def test_control_characters_are_written_as_escapes_and_all_else_stays():
    assert printable(HOSTILE) == r"a\x1b]0;pwned\x07\x1b[2J\r\x9b31m\u202e\u2028\ud800\x00b"
    assert printable("Zwölf × 日本 [red] \\x1b") == "Zwölf × 日本 [red] \\x1b"
    assert printable("a\n\tb\r", keep=LAYOUT) == "a\n\tb\\r"
    error = ConfigError(f"unknown key '{HOSTILE}'")
    assert str(error) == f"{error}" == f"unknown key '{printable(HOSTILE)}'"


@given(st.text(st.characters()))
def test_what_is_printable_can_be_encoded_and_stays_as_it_is_when_done_twice(text: str) -> None:
    once = printable(text)
    once.encode()
    assert printable(once) == once
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in once)


def test_large_values_and_long_texts_are_shown_in_part_and_ordinary_ones_whole():
    endless: list = ["lol"]
    for _ in range(50):  # its text has no end that anyone would see
        endless = [endless] * 9
    large = ["x" * 10**6, b"x" * 10**6, list(range(10**6)), {i: i for i in range(10**5)}, 1 << 10**6, endless]
    assert all(len(shortened(value)) <= 303 for value in large)
    assert len(str(ScramjetError("x" * 10**7))) < 5_000
    for value in (1.5, "text", None, [64, 64], {"a": (1, 2)}, 2**63):
        assert shortened(value) == repr(value)
