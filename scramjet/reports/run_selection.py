"""Finds the runs that a user names: by path, by name, by pattern, or a whole folder of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from scramjet.errors import RunError, shortened
from scramjet.reports.run_files import RunFiles, list_run_folders
from scramjet.runtime.runs import find_run

_MARKS = ("config.toml", "metrics.jsonl")


def find_runs(texts: Sequence[str], runs_dir: Path) -> list[RunFiles]:
    """The runs that `texts` name, each once, in the order given.

    A text is the path of a run, its name in `runs_dir`, a pattern such as `cartpole-*` for either, or a folder that
    holds runs. A RunError says what was not found.
    """
    found: dict[Path, RunFiles] = {}
    for text in texts:
        for path in _paths(text, runs_dir):
            run = RunFiles(path)
            found.setdefault(run.path, run)
    return list(found.values())


def _paths(text: str, runs_dir: Path) -> list[Path]:
    if glob.has_magic(text) and not os.path.lexists(text):
        return _matching(text, runs_dir)
    path = find_run(text, runs_dir)
    if _is_run(path):
        return [path]
    names = list_run_folders(path)
    if not names:
        raise RunError(f"{path} is no run and holds none; name a folder that `scramjet train` made")
    return [path / name for name in names]


def _matching(pattern: str, runs_dir: Path) -> list[Path]:
    # Runs here, else those in `runs_dir`; other files that match, such as cartpole-notes.txt, count for nothing.
    paths = _runs_at(pattern) or _runs_at(os.path.join(glob.escape(str(runs_dir)), pattern))
    if not paths:
        raise RunError(f"no run matches {shortened(pattern)}, neither here nor in {runs_dir}/; see `ls {runs_dir}`")
    return paths


def _runs_at(pattern: str) -> list[Path]:
    try:
        return [Path(text) for text in sorted(glob.glob(pattern)) if _is_run(Path(text))]
    except (OSError, ValueError):  # a NUL byte
        return []


def _is_run(path: Path) -> bool:
    return any(os.path.lexists(path / mark) for mark in _MARKS)
