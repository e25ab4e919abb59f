"""`scramjet check`: find mistakes in a world before training it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict

from scramjet.adapters.gymnasium.check import check_gym_world
from scramjet.adapters.registry import ForeignWorld, is_foreign, load_world, note_on_id
from scramjet.commands.arguments.check import Arguments
from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.engine.worlds.check import Finding, check_world
from scramjet.engine.worlds.hanging import CallWatch
from scramjet.errors import LAYOUT, WorldError, printable
from scramjet.training.worlds.user_worlds import name_of

CALL_SECONDS = 10.0
"""A step of a few envs that takes longer counts as an endless loop."""


def check_command(arguments: Arguments, env_values: dict[str, str]) -> int:
    """Run `scramjet check ...`; returns the exit code: 2 when something is wrong."""
    findings: list[Finding] = []
    with CallWatch(CALL_SECONDS, _give_up):
        for finding in _findings(arguments, env_values):
            findings.append(finding)
            if not arguments.json:
                print(f"{'ok   ' if finding.is_fine else 'WRONG'}  {printable(finding.text, keep=LAYOUT)}", flush=True)
    is_fine = all(finding.is_fine for finding in findings)
    if arguments.json:
        listed = [asdict(finding) for finding in findings]
        print(json.dumps({"world": arguments.world, "is_fine": is_fine, "findings": listed}))
    return 0 if is_fine else 2


def _findings(arguments: Arguments, env_values: dict[str, str]) -> Iterator[Finding]:
    """The findings about the world, a native or a Gymnasium one."""
    try:
        name = name_of(arguments.world)
    except WorldError as error:
        yield Finding(False, str(error))
        return
    if note := note_on_id(name):
        yield Finding(True, note)
    parameters = typed_parameters(name, env_values) if env_values else {}
    if not is_foreign(name):
        yield from check_world(name, steps=arguments.steps, parameters=parameters)
        return
    world = load_world(name, parameters)
    assert isinstance(world, ForeignWorld)
    yield from check_gym_world(world, steps=arguments.steps)


def _give_up(problem: str) -> None:
    """Print the problem and end the process: a compiled rule that never returns cannot be interrupted."""
    print(f"WRONG  {printable(problem, keep=LAYOUT)} ({CALL_SECONDS:g} seconds in one call)", flush=True)
    os._exit(2)
