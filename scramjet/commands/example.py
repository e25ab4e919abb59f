"""`scramjet example`: write an example program into the current folder."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from scramjet.commands.command_line import parse
from scramjet.errors import ConfigError, did_you_mean, shortened
from scramjet.runtime.files import write_output
from scramjet.runtime.shipped import shipped_file, shipped_names, shown_path
from scramjet.settings import Positional

DESCRIPTION = """Write an example into the current folder as a start; without a name, list the examples.

  scramjet example corridor
"""


@dataclass(frozen=True)
class Arguments:
    """Which example."""

    name: Annotated[str | None, Positional("NAME")] = None
    """A name from the list."""


def read(words: list[str]) -> tuple[Arguments]:
    """What the words of the command say."""
    return (parse(Arguments, words, prog="scramjet example", description=DESCRIPTION),)


def example_command(arguments: Arguments) -> int:
    """Run `scramjet example ...`; returns the exit code."""
    names = shipped_names("examples", ".py")
    if arguments.name is None:
        for name in names:
            print(f"{name:<16}{_about(name)}")
        print("\nwrite one into this folder with `scramjet example NAME`")
        return 0
    if arguments.name.removesuffix(".py") not in names:
        raise ConfigError(
            f"no example {shortened(arguments.name)}.{did_you_mean(arguments.name, names)} Examples: {', '.join(names)}"
        )
    path = _write(arguments.name.removesuffix(".py"))
    print(f"wrote {path}")
    for step in _next_steps(path):
        print(f"  {step}")
    return 0


def _source(name: str) -> str:
    path = shipped_file(f"examples/{name}.py")
    assert path is not None
    return path.read_text()


def _about(name: str) -> str:
    """The first sentence of an example's docstring."""
    return (ast.get_docstring(ast.parse(_source(name))) or "").split("\n")[0].partition(". ")[0].rstrip(".")


def _write(name: str) -> Path:
    """Write an example as NAME.py into the current folder; raises a ConfigError if there is such a file."""
    path = Path(f"{name}.py")
    if os.path.lexists(path):
        raise ConfigError(f"{path} is here already and stays as it is; rename it, or go to another folder")
    write_output(path, _source(name).replace(f"examples/{name}.py", f"{name}.py").encode())
    return path


def _next_steps(path: Path) -> list[str]:
    if "(Env)" not in path.read_text():  # a program, not a world
        return [f"python {path}"]
    page = shipped_file("docs/writing-environments.md")
    steps = [f"scramjet check {path}", f"scramjet train {path} --total-timesteps 100K"]
    return [*steps, f"read {shown_path(page)}"] if page else steps
