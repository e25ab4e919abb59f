"""The help of a command: its description wrapped to the width of the terminal, its flags as tyro prints them."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from contextlib import redirect_stdout
from typing import Any, NoReturn

import tyro

_PLACE = "(description)"


def show_help(cls: type, prog: str, description: str, default: Any = None) -> NoReturn:
    """Print the help of a command and end it; `default` is an instance with the values to show."""
    given = {} if default is None else {"default": default}
    output = _LikeStdout()
    try:
        with redirect_stdout(output):
            tyro.cli(
                cls,
                prog=prog,
                description=_PLACE,
                args=["--help"],
                config=(tyro.conf.FlagCreatePairsOff,) if default is None else (tyro.conf.ConsolidateSubcommandArgs,),
                **given,
            )
    finally:  # tyro ends the command
        print(output.getvalue().replace(_PLACE, _folded(description)), end="")
    raise SystemExit(0)


class _LikeStdout(io.StringIO):
    """Keeps what is printed; tyro formats for it as for the real output."""

    encoding = property(lambda self: sys.__stdout__.encoding if sys.__stdout__ else "ascii")

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _folded(description: str) -> str:
    """Text with its long lines wrapped; indented lines, which are examples, stay as they are."""
    width = min(100, shutil.get_terminal_size().columns)
    lines = description.strip().splitlines()
    return "\n".join(line if line.startswith(" ") else textwrap.fill(line, width) for line in lines)
