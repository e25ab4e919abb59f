"""`scramjet play`: against a run, a scripted player or a person; mistakes are named; a real terminal is used once."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

from scramjet.arena.head_to_head import from_the_start
from scramjet.training.config.run_config import RunConfig
from tests.helpers import ROOT
from tests.helpers.command_calls import call, refusal
from tests.helpers.world_files import NIM


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Have a person type these lines, and then close the input."""
    typed = iter(lines)

    def ask(prompt: str) -> str:
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", ask)


def test_a_run_trained_against_random_moves_is_played_from_an_empty_board(
    trained_game: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_lines(monkeypatch, "hint", "1", "undo", "2", "quit")
    assert call("play", trained_game, "--seed", 1) == 0
    told = capsys.readouterr().out
    assert "Connect Four: you against tiny. You move first." in told
    first_board = told.split("You played")[0]
    assert first_board.count("X") == 1  # only in "X to move"
    assert "How likely tiny would play each move here:" in told
    assert "tiny played" in told
    assert told.endswith("Goodbye.\n")


def test_hints_come_from_the_run_while_somebody_else_plays(
    trained_game: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_lines(monkeypatch, "hint", "1")
    assert (
        call("play", "tiny", "--runs-dir", trained_game.parent, "--against", "greedy", "--seat", "second", "--seed", 1)
        == 0
    )
    told = capsys.readouterr().out
    assert "you against greedy. greedy moves first." in told
    assert "How likely tiny would play each move here:" in told


def test_a_person_begins_without_the_openings_of_training_unless_they_ask_for_them() -> None:
    config = RunConfig(env="connect_four", env_parameters={"opening_plies": 8, "rows": 5})
    changed, note = from_the_start(config, {})
    assert "--env.opening-plies" in note
    assert changed.env_parameters == {"opening_plies": 0, "rows": 5}
    assert from_the_start(config, {"opening_plies": "8"}) == (config, "")
    assert from_the_start(RunConfig(), {}) == (RunConfig(), "")


def test_a_world_of_the_users_own_is_played_by_the_names_of_its_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = tmp_path / "nim.py"
    world.write_text(NIM)
    type_lines(monkeypatch, "one", "two", "1", "TWO", "no")  # 7, 6, 4, 2, 0: the one who moves second wins
    assert call("play", world, "--against", "person") == 0
    told = capsys.readouterr().out
    assert "Nim: 2 people." in told
    assert "Player 1 played one." in told
    assert "Player 2 won." in told


def test_a_world_for_one_is_played_alone_with_the_run_to_ask(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (trained, "cartpole"):
        type_lines(monkeypatch, "hint", *30 * ["1"], "no")
        assert call("play", place, "--seed", 1) == 0
        told = capsys.readouterr().out
        assert "you alone." in told
        assert "The game is over. Return: " in told
        assert ("How likely tiny would play each move here:" in told) == (place == trained)


def test_the_same_seed_is_the_same_game(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for seed in (5, 5, 6):
        type_lines(monkeypatch, "4", "4", "3")
        assert call("play", "connect_four", "--against", "random", "--seat", "random", "--seed", seed) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != told[2]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("connect_four",), "connect_four is a world: say who plays against you, --against random"),
        (("connect_four", "--against", "nobody"), "there is no player 'nobody'"),
        (("connect_four", "--against", "random", "--seat", "third"), "seat='third': expected first, second, random"),
        (("connect_four", "--against", "random", "--seed", "-1"), "--seed -1 must be from 0"),
        (("connect_four", "--against", "random", "--temperature", "-1"), "temperature=-1.0 must be 0"),
        (("connect_four", "--against", "random", "--env", "x.py"), "connect_four is a world itself"),
        (("pendulum",), "Pendulum cannot be played by a person: its actions are"),
        (("cartpole", "--against", "random"), "cartpole is played by one, so there is nobody to play against"),
        (("gym:CartPole-v1", "--against", "random"), "cannot be played by a person: only worlds written for scramjet"),
        (("no-such-run",), "no-such-run"),
        ((), "scramjet play needs RUN, such as: scramjet play runs/connect_four-1"),
    ],
)
def test_mistakes_are_named_with_the_fix(
    words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in refusal(capsys, "play", *words)


def test_an_agent_of_another_world_is_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal(capsys, "play", "connect_four", "--against", trained)
    assert "was trained on 'cartpole', and this game is connect_four" in told


class Terminal:
    """A command in a pseudo-terminal of 80 x 24."""

    def __init__(self, *words: str) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", PYTHONPATH=str(ROOT), PYTHONUTF8="1")
            os.environ.pop("NO_COLOR", None)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever started the tests may ignore it
            os.execv(sys.executable, [sys.executable, "-m", "scramjet", *words])
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.screen = ""

    def wait_for(self, text: str, seconds: float = 180.0) -> None:
        """Read until the text shows after what was read before."""
        start, end = len(self.screen), time.monotonic() + seconds
        while text not in self.screen[start:]:
            assert time.monotonic() < end, self.screen
            if select.select([self._descriptor], [], [], 0.5)[0]:
                self.screen += os.read(self._descriptor, 65536).decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def exit_code(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._descriptor)
        return code


def test_a_session_in_a_terminal_is_drawn_in_colour_and_ctrl_c_leaves_politely() -> None:
    terminal = Terminal("play", "connect_four", "--against", "random", "--seed", "1")
    terminal.wait_for("Your move (1 2 3 4 5 6 7): ")
    terminal.type("4\n")
    terminal.wait_for("Your move (")
    time.sleep(0.5)  # a signal between the prompt and the read of Python's own input() waits for the next key
    terminal.type("\x03")
    terminal.wait_for("Goodbye.")
    assert terminal.exit_code() == 0
    assert "\x1b[1;33m●" in terminal.screen
    assert "\x1b[1;31m○" in terminal.screen
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.screen)
    assert "  │  ·  ·  · [○] ·  ·  ·  │" in plain
    assert "     1  2  3  4  5  6  7\r\n" in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "Traceback" not in plain
