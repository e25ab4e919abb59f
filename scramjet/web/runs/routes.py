"""Answers about runs: the list of them, one of them, its curves and its videos."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from scramjet.errors import RunError
from scramjet.web.context import PageContext
from scramjet.web.runs.curves import RunCurves
from scramjet.web.runs.details import metric_table, run_details, video_path
from scramjet.web.runs.forks import fork_tree
from scramjet.web.runs.index import RunIndex

FIRST_ANSWER_SECONDS = 0.05
"""How long the first list waits for the runs to be read; what is not read by then is pushed."""


def routes(context: PageContext, index: RunIndex) -> list[BaseRoute]:
    """`/api/runs` and what lies below it, and `/api/metrics`."""
    curves = RunCurves()

    def answer_list(request: Request) -> Response:
        rows = index.rows(FIRST_ANSWER_SECONDS)
        return JSONResponse({"runs_dir": str(context.runs_dir), "problem": index.problem, "runs": rows})

    def answer_run(request: Request) -> Response:
        path = context.run_path(request.path_params["name"])
        facts = index.facts()
        tree = fork_tree(context.runs_dir, path.name, facts)
        return JSONResponse({"row": index.row(path.name), "forks": tree, **run_details(path, curves)})

    def answer_curves(request: Request) -> Response:
        return JSONResponse(curves.columns(context.run_path(request.path_params["name"])))

    def answer_video(request: Request) -> Response:
        path = context.run_path(request.path_params["name"])
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
