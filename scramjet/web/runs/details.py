"""What the view of one run shows beside its curves: config, checkpoints, forks, advice, log, videos."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scramjet.adapters.registry import is_foreign
from scramjet.errors import RunError, ScramjetError
from scramjet.reports.run_files import RunFiles
from scramjet.runtime.files import is_folder
from scramjet.runtime.logs import read_log
from scramjet.telemetry.metrics import METRICS, findings
from scramjet.web.runs.curves import RunCurves

VIDEO_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.(?:mp4|webm|gif)")
_MOST_VIDEOS = 200


def run_details(path: Path, curves: RunCurves) -> dict[str, Any]:
    """All of a run but its curves and forks. What cannot be read is left out, and `problems` says why."""
    files = RunFiles(path)
    problems: list[str] = []
    config: dict[str, Any] = {}
    checkpoints: list[dict[str, Any]] = []
    record: dict[str, Any] | None = None
    world = ""
    try:
        read = files.config()
        config, world = read.values, read.env
    except ScramjetError as error:
        problems.append(str(error))
    try:
        record = files.last_record()
        checkpoints = _checkpoints(files, curves.evaluations(path))
    except ScramjetError as error:
        problems.append(str(error))
    return {
        "config": config,
        "is_native": not is_foreign(world),
        "checkpoints": checkpoints,
        "findings": findings(record or {}),
        "log": read_log(path),
        "videos": list_videos(path),
        "problems": problems,
    }


def _checkpoints(files: RunFiles, evaluations: list[tuple[int, float]]) -> list[dict[str, Any]]:
    """The checkpoints, newest first, each with the last evaluation until then."""
    steps = [step for step, _ in evaluations]
    found = []
    for note in files.checkpoints():
        place = bisect_right(steps, note.step)
        step, value = evaluations[place - 1] if place > 0 else (None, None)
        found.append({**asdict(note), "evaluated_at": step, "evaluation": value})
    return found[::-1]


def metric_table() -> list[dict[str, Any]]:
    """What each metric means, and its healthy range with advice, as the terminal view has it."""
    names = ("name", "meaning", "low", "high", "advice_low", "advice_high", "first_update", "last_update", "healthy")
    return [{name: getattr(metric, name) for name in names} for metric in METRICS.values()]


def list_videos(run: Path) -> list[dict[str, Any]]:
    """The videos in a run's folder `videos`, newest first: plain files with plain names."""
    folder = run / "videos"
    if not is_folder(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            found: list[dict[str, Any]] = [
                {"name": entry.name, "bytes": entry.stat().st_size, "modified": entry.stat().st_mtime}
                for entry in entries
                if VIDEO_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(found, key=lambda video: (-video["modified"], video["name"]))[:_MOST_VIDEOS]


def video_path(run: Path, name: str) -> Path:
    """The path of a video of a run; a RunError for any other name, a link among them."""
    if not VIDEO_NAME.fullmatch(name) or name not in {video["name"] for video in list_videos(run)}:
        raise RunError(f"the run '{run.name}' has no video of this name")
    return run / "videos" / name
