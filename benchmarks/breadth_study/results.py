"""The study's results: a file of JSON lines, one for each run, which a rerun goes on with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from breadth_study.systems import RANDOM, Case

Results = Mapping[Case, dict[str, Any]]


def budget_of(case: Case, steps: int) -> int:
    """The steps that a case is kept under; random play trains none."""
    return 0 if case.system == RANDOM else steps


def read_results(path: Path, budgets: Mapping[str, int]) -> dict[Case, dict[str, Any]]:
    """The runs in the file that had these budgets (by world) and no problem; a torn last line is left out."""
    found: dict[Case, dict[str, Any]] = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        case = Case(line["system"], line["world"], line["seed"])
        if "problem" not in line and line["budget"] == budget_of(case, budgets.get(case.world, -1)):
            found[case] = line
    return found


def append_result(path: Path, line: dict[str, Any]) -> None:
    """Add a line to the file and have it on disk; behind a torn line it begins a new one."""
    with path.open("a+b") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
