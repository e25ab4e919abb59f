"""Commands called as a shell calls them, and settings of a run that takes a second."""

import json
from typing import Any

import pytest

from scramjet.cli import main

TINY = ["--num-envs", "8", "--num-steps", "16", "--total-timesteps", "512"]
TINY += ["--eval.final-episodes", "2", "--eval.every", "2", "--eval.episodes", "2"]


def call(*words: object) -> int:
    """Run a command as the shell would; returns its exit code."""
    with pytest.raises(SystemExit) as ending:
        main([str(word) for word in words])
    code = ending.value.code
    assert isinstance(code, int)
    return code


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The message of a command that must fail with exit code 2, in one line and without a traceback."""
    assert call(*words) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return " ".join(captured.err.replace("│", " ").split())


def answer(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """What a command prints as JSON."""
    capsys.readouterr()
    assert call(*words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Have a person type these lines, and then close the input."""
    typed = iter(lines)

    def ask(prompt: str) -> str:
        if (line := next(typed, None)) is None:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", ask)
