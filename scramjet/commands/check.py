"""`scramjet check`: find the mistakes in a world before training finds them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import tyro

from scramjet.commands.command_line import parse
from scramjet.engine.check import check_world
from scramjet.engine.foreign_worlds import require_native
from scramjet.engine.hanging import CallWatch
from scramjet.errors import LAYOUT, printable
from scramjet.settings import require_counts, settle
from scramjet.training.trust import remember

CALL_SECONDS = 10.0
"""A step of a few envs that takes longer is taken for an endless loop."""

DESCRIPTION = """Run a world through its back-ends and say, in its author's terms, what is wrong.

  scramjet check my_world.py
  scramjet check cartpole
"""


@dataclass(frozen=True)
class Arguments:
    """What to check."""

    world: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")]
    """A file such as my_world.py or my_world.py:MyWorld, or a name from `scramjet list`."""
    steps: int = 500
    """Steps to play in each of a few envs."""

    def __post_init__(self) -> None:
        settle(self)
        require_counts(self, ("steps",))


def check_command(words: list[str]) -> int:
    """Run `scramjet check ...`; returns the exit code: 2 when something is wrong."""
    arguments = parse(Arguments, words, prog="scramjet check", description=DESCRIPTION)
    require_native(arguments.world, "scramjet check")
    remember(arguments.world, is_named=True)
    any_wrong = False
    with CallWatch(CALL_SECONDS, _give_up):
        for finding in check_world(arguments.world, steps=arguments.steps):
            print(f"{'ok   ' if finding.is_fine else 'WRONG'}  {printable(finding.text, keep=LAYOUT)}", flush=True)
            any_wrong |= not finding.is_fine
    return 2 if any_wrong else 0


def _give_up(problem: str) -> None:
    """A rule that never returns cannot be made to: the process ends with it."""
    print(f"WRONG  {printable(problem, keep=LAYOUT)} ({CALL_SECONDS:g} seconds in one call)", flush=True)
    os._exit(2)
