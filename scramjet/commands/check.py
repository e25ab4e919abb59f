"""`scramjet check`: find mistakes in a world before training it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from scramjet.commands.arguments.check import Arguments
from scramjet.commands.arguments.env_parameters import typed_parameters
from scramjet.engine.worlds.check import Finding
from scramjet.engine.worlds.hanging import CallWatch
from scramjet.errors import LAYOUT, printable
from scramjet.training.world_check import findings_on, line_of

CALL_SECONDS = 10.0
"""A step of a few envs that takes longer counts as an endless loop."""


def check_command(arguments: Arguments, env_values: dict[str, str]) -> int:
    """Run `scramjet check ...`; returns the exit code: 2 when something is wrong."""
    findings: list[Finding] = []
    with CallWatch(CALL_SECONDS, _give_up):
        parameters = (lambda name: typed_parameters(name, env_values)) if env_values else (lambda name: {})
        for finding in findings_on(arguments.world, arguments.steps, parameters):
            findings.append(finding)
            if not arguments.json:
                print(line_of(finding), flush=True)
    is_fine = all(finding.is_fine for finding in findings)
    if arguments.json:
        listed = [asdict(finding) for finding in findings]
        print(json.dumps({"world": arguments.world, "is_fine": is_fine, "findings": listed}))
    return 0 if is_fine else 2


def _give_up(problem: str) -> None:
    """Print the problem and end the process: a compiled rule that never returns cannot be interrupted."""
    print(f"WRONG  {printable(problem, keep=LAYOUT)} ({CALL_SECONDS:g} seconds in one call)", flush=True)
    os._exit(2)
