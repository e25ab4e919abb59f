"""What a command loads before it answers: nobody waits for torch who does not train or play."""

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scramjet.cli import _COMMANDS
from scramjet.commands.command_line import loading_shown
from tests.helpers.pages import make_run
from tests.helpers.written_trials import finish_trial, write_study

PROGRAM = """
import contextlib, io, json, os, pathlib, sys, threading, time, urllib.request
from scramjet.cli import main

def call(*words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(words)
        except SystemExit as ending:
            return ending.code

def ask(*addresses):
    from scramjet.web.server import make_app
    from scramjet.web.serving import make_server, open_socket
    listening = open_socket("127.0.0.1", 0)
    server = make_server(make_app(pathlib.Path("runs")))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    base = f"http://127.0.0.1:{listening.getsockname()[1]}"
    answers = [urllib.request.urlopen(base + address, timeout=30).status for address in addresses]
    server.should_exit = True
    thread.join()
    return 0 if set(answers) == {200} else 1

for step in json.loads(sys.argv[1]):
    code = ask(*step) if step[0].startswith("/") else call(*step)
    print(json.dumps([step, code, sorted({name.partition(".")[0] for name in sys.modules})]), flush=True)
os._exit(0)
"""
SLOW = {"torch", "numba", "matplotlib", "plotly", "optuna", "triton"}
OF_WORLDS = {"gymnasium"}
OF_SHOWING = {"rich", "starlette", "uvicorn"}
PAGES = "/ /main.js /api/runs /api/runs/a /api/runs/a/curves /api/metrics /api/compare?runs=a,b /api/play/worlds"


def test_help_mistakes_lists_reports_and_the_page_of_runs_come_without_torch(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / "runs", name)
    with write_study(tmp_path / "studies/s", seeds=0, trials=1) as study:
        finish_trial(study, 3.0, {"learning_rate": 1e-3}, has_run=True)
    without_worlds = ("plot", "compare", "sync", "serve", "list", "example", "grade")
    steps = {
        ("--version", "--help", "trian"): SLOW | OF_WORLDS | OF_SHOWING | {"numpy"},
        tuple(f"{name} --help" for name in without_worlds): SLOW | OF_WORLDS | OF_SHOWING,
        tuple(f"{name} --no-such-flag" for name in without_worlds): SLOW | OF_SHOWING,
        tuple(f"{name} --help" for name in _COMMANDS): SLOW | OF_SHOWING,
        tuple(f"{name} --no-such-flag" for name in _COMMANDS): SLOW | OF_SHOWING,
        ("train cartpole --num-envs 0", "train cartpole --gamma 2", "train nowhere"): SLOW | OF_SHOWING,
        ("list", "list maze", "example corridor"): SLOW | OF_SHOWING,
        tuple(f"{name} runs/nope" for name in ("eval", "play", "export-page", "grade")): SLOW | OF_SHOWING,
        ("plot runs", "compare a b", "tune --report studies/s"): SLOW - {"optuna", "plotly"},
        (PAGES,): SLOW - {"optuna", "plotly"},
    }
    expected = [(line.split(), too_slow) for lines, too_slow in steps.items() for line in lines]
    words = [sys.executable, "-c", PROGRAM, json.dumps([line for line, _ in expected])]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step for step, _, _ in told] == [line for line, _ in expected], done.stderr
    for (step, code, loaded), (_, too_slow) in zip(told, expected, strict=True):
        assert not too_slow & set(loaded), step
        is_mistake = step[0] in ("trian", "train") or step[-1] in ("--no-such-flag", "runs/nope")
        assert code == (2 if is_mistake and "--help" not in step else 0), step


def test_a_terminal_is_told_while_a_command_loads_and_a_file_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    for kind, expected in ((Terminal, "scramjet eval: loading"), (io.StringIO, "")):
        monkeypatch.setattr(sys, "stderr", shown := kind())
        with loading_shown("eval"):
            deadline = time.monotonic() + 30
            while expected not in shown.getvalue():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert shown.getvalue().endswith("\x1b[K" if expected else ""), "it is gone when the command begins"
        assert expected or not shown.getvalue()
