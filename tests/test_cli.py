"""The command itself: `python -m scramjet`, and output that cannot be written."""

from __future__ import annotations

import subprocess
import sys

import scramjet


def test_python_dash_m_scramjet_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "scramjet", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"scramjet {scramjet.__version__}"


def test_output_that_finds_no_room_is_one_message_and_exit_code_2() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "scramjet", "list"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "space" in result.stderr
