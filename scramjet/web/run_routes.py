"""Answers about runs: the list of them, and one of them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from scramjet.runtime.runs import list_runs
from scramjet.web.context import PageContext


def routes(context: PageContext) -> list[BaseRoute]:
    """`/api/runs`."""

    def answer_list(request: Request) -> Response:
        return JSONResponse(
            {
                "runs_dir": str(context.runs_dir),
                "runs": [{"name": name} for name in list_runs(context.runs_dir)],
            }
        )

    return [Route("/api/runs", answer_list)]
