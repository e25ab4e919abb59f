"""The web application of `scramjet serve`: its routes, its files, and how errors are answered.

A feature is a module with `routes(context) -> list[BaseRoute]`; its line stands in `make_app`. Blocking work, such as
reading files, belongs in plain functions (`def`), which Starlette runs in threads.
"""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute

from scramjet.errors import ScramjetError
from scramjet.web import compare, page_files, sharing
from scramjet.web.context import PageContext
from scramjet.web.playing import routes as play_routes
from scramjet.web.runs import routes as run_routes
from scramjet.web.runs.index import RunIndex
from scramjet.web.runs.live import Live
from scramjet.web.security import Access, Guard
from scramjet.web.watching import routes as watch_routes


def make_app(runs_dir: Path, *, trust: bool = False, access: Access | None = None) -> Starlette:
    """The application over a folder of runs, which need not exist yet; `access` says who may use it."""
    context = PageContext(Path(runs_dir), trust)
    index = RunIndex(context.runs_dir)
    live = Live(index, context.run_path)
    routes: list[BaseRoute] = [
        *run_routes.routes(context, index),
        *live.routes(),
        *compare.routes(context),
        *watch_routes.routes(context),
        *play_routes.routes(context),
        *sharing.routes(context),
        *page_files.routes(),  # last: it takes every path that is left
    ]
    return Starlette(
        routes=routes,
        lifespan=lambda app: live.running(),
        middleware=[Middleware(Guard, access=access or Access())],
        exception_handlers={
            HTTPException: _answer_refusal,
            ScramjetError: _answer_user_error,
            Exception: _answer_bug,
        },
    )


def _answer(request: Request, status: int, text: str) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": text}, status)
    return PlainTextResponse(f"{text}\n", status)


def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, error.detail)


def _answer_user_error(request: Request, error: Exception) -> Response:
    return _answer(request, 400, str(error))


def _answer_bug(request: Request, error: Exception) -> Response:
    return _answer(request, 500, "the server met an error of its own; its terminal shows it")
