"""Answers about runs: the list, one run with its config, checkpoints, forks, log and videos, and its curves."""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from scramjet.adapters.registry import is_foreign
from scramjet.errors import RunError, ScramjetError
from scramjet.reports.metrics_table import MetricsTable, json_numbers
from scramjet.reports.run_files import Lineage, RunFiles, read_lineage
from scramjet.runtime.files import is_folder
from scramjet.runtime.logs import read_log
from scramjet.telemetry.metrics import METRICS, findings
from scramjet.web.context import PageContext, why_not_played
from scramjet.web.run_list import RunFacts, RunIndex

# --- answers

FIRST_ANSWER_SECONDS = 0.05
"""How long the first list waits for the runs to be read; what is not read by then is pushed."""


def routes(context: PageContext, index: RunIndex) -> list[BaseRoute]:
    """`/api/runs` and what lies below it, and `/api/metrics`."""
    curves = RunCurves()

    def answer_list(request: Request) -> Response:
        rows = index.rows(FIRST_ANSWER_SECONDS)
        return JSONResponse({"runs_dir": str(context.runs_dir), "problem": index.problem, "runs": rows})

    def answer_run(request: Request) -> Response:
        path = context.run_folder(request.path_params["name"])
        facts = index.facts()
        tree = fork_tree(context.runs_dir, path.name, facts)
        return JSONResponse(
            {"row": index.row(path.name), "forks": tree, **run_details(path, curves, trust=context.trust)}
        )

    def answer_curves(request: Request) -> Response:
        return JSONResponse(curves.columns(context.run_folder(request.path_params["name"])))

    def answer_video(request: Request) -> Response:
        path = context.run_folder(request.path_params["name"])
        try:
            return FileResponse(video_path(path, request.path_params["video"]))
        except RunError as error:
            raise HTTPException(404, str(error)) from error

    def answer_metrics(request: Request) -> Response:
        table: list[dict[str, Any]] = metric_table()
        return JSONResponse({"metrics": table})

    return [
        Route("/api/runs", answer_list),
        Route("/api/runs/{name}", answer_run),
        Route("/api/runs/{name}/curves", answer_curves),
        Route("/api/runs/{name}/videos/{video}", answer_video),
        Route("/api/metrics", answer_metrics),
    ]


# --- curves

MOST_ROWS = 1_200
_TABLES_KEPT = 16


class RunCurves:
    """Tables of metrics by run, brought up to date whenever they are asked for. Any thread may ask."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Path, tuple[MetricsTable, threading.Lock]] = OrderedDict()
        self._lock = threading.Lock()

    def columns(self, run: Path) -> dict[str, Any]:
        """The numbers of a run by metric, each [rows], None where a row has none; all share the column `step`."""
        table, lock = self._table(run)
        with lock:
            table.update()
            columns = {name: json_numbers(table.column(name)) for name in table.names}
            return {"columns": columns, "unreadable": table.unreadable}

    def evaluations(self, run: Path) -> list[tuple[int, float]]:
        """(step, mean return) of the evaluations of a run, in order."""
        table, lock = self._table(run)
        with lock:
            table.update()
            curve = table.curve("eval/mean_return")
        return [(int(step), float(value)) for step, value in zip(curve.x, curve.y, strict=True)]

    def _table(self, run: Path) -> tuple[MetricsTable, threading.Lock]:
        with self._lock:
            if run not in self._tables:
                self._tables[run] = MetricsTable(run / "metrics.jsonl", MOST_ROWS), threading.Lock()
            self._tables.move_to_end(run)
            if len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
            return self._tables[run]


# --- details

VIDEO_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.(?:mp4|webm|gif)")
_MOST_VIDEOS = 200


def run_details(path: Path, curves: RunCurves, *, trust: bool = False) -> dict[str, Any]:
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
        "why_not_played": why_not_played(path, trust=trust),
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


# --- forks

MOST_NODES = 200


def fork_tree(runs_dir: Path, name: str, facts: list[RunFacts]) -> dict[str, Any] | None:
    """The tree that a run stands in, from its oldest ancestor on; None for a run without forks.

    Ancestors that are no longer in the folder are known by the run's own lineage.
    """
    known = {each.name: each for each in facts}
    children: dict[str, list[str]] = {}
    for each in facts:
        if each.parent:
            children.setdefault(each.parent, []).append(each.name)
    lineages = _chain(_lineage(runs_dir / name))
    for lineage, child in zip(lineages, [name, *(each.parent_run for each in lineages)], strict=False):
        own = children.setdefault(lineage.parent_run, [])
        if child not in own:
            own.append(child)
    root = lineages[-1].parent_run if lineages else name
    if not children.get(root):
        return None
    past = {child: lineage for lineage, child in zip(lineages, [name, *(e.parent_run for e in lineages)], strict=False)}
    seen: set[str] = set()

    def node(here: str) -> dict[str, Any]:
        seen.add(here)
        lineage = past.get(here) or (_lineage(runs_dir / here) if here in known else None)
        grown = [
            node(child) for child in sorted(children.get(here, ())) if child not in seen and len(seen) < MOST_NODES
        ]
        found = known.get(here)
        return {
            "name": here,
            "is_here": found is not None,
            "value": None if found is None else found.value,
            "state": "" if found is None else found.state,
            "step": None if lineage is None else lineage.parent_step,
            "changed": {} if lineage is None else lineage.changed,
            "children": grown,
        }

    return node(root)


def _lineage(run: Path) -> Lineage | None:
    try:
        return read_lineage(run / "lineage.json")
    except ScramjetError:
        return None


def _chain(lineage: Lineage | None) -> list[Lineage]:
    """A lineage and those of its ancestors, the youngest first."""
    found = []
    while lineage is not None and lineage.parent_run:
        found.append(lineage)
        lineage = lineage.parent
    return found
