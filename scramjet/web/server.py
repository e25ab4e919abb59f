"""The web application of `scramjet serve`: its routes, its files, a run as one file to share, how errors are answered.

A feature is a module with `routes(context) -> list[BaseRoute]`; its line stands in `make_app`. Blocking work, such as
reading files, belongs in plain functions (`def`), which Starlette runs in threads.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from scramjet.errors import ConfigError, ScramjetError
from scramjet.web import compare, run_view, sockets
from scramjet.web.context import BUG, LATEST, PageContext
from scramjet.web.live import Live
from scramjet.web.run_list import RunIndex
from scramjet.web.security import LOCAL_NAMES, Access, Guard, error_answer

STATIC = Path(__file__).parent / "static"


def make_app(runs_dir: Path, *, trust: bool = False, access: Access | None = None) -> Starlette:
    """The application over a folder of runs, which need not exist yet; `access` says who may use it."""
    context = PageContext(Path(runs_dir), trust)
    index = RunIndex(context.runs_dir)
    live = Live(index, context.run_folder)
    routes: list[BaseRoute] = [
        *run_view.routes(context, index),
        *live.routes(),
        *compare.routes(context),
        *sockets.routes(context),
        shared_page_route(context),
        Route("/vendor/plotly.min.js", _plotly),
        Mount("/", StaticFiles(directory=STATIC, html=True)),  # last: it takes every path that is left
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


def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_answer(request.scope, error.status_code, error.detail)


def _answer_user_error(request: Request, error: Exception) -> Response:
    return error_answer(request.scope, 400, str(error))


def _answer_bug(request: Request, error: Exception) -> Response:
    return error_answer(request.scope, 500, BUG)


# --- a run as one file to share


def shared_page_route(context: PageContext) -> BaseRoute:
    """`/api/runs/NAME/page`: one HTML file, which the run's view offers for download; or why there is none."""

    def answer_page(request: Request) -> Response:
        from scramjet.web.export_page.exported import visitors_world  # loads torch
        from scramjet.web.export_page.page import Facts, shared_page

        agent = context.agents.load(request.path_params["name"], request.query_params.get("checkpoint", LATEST))
        facts = Facts(agent.run, agent.checkpoint.step, agent.reward_scale)
        page = shared_page(visitors_world(agent.config, {}), agent.policy, facts)
        headers = {"content-disposition": f'attachment; filename="{agent.run}.html"'}
        return Response(page.html, media_type="text/html", headers=headers)

    return Route("/api/runs/{name}/page", answer_page)


# --- plotly's script, from the installed package


def _plotly(request: Request) -> Response:
    """Plotly's script, packed unless the browser is on this machine; kept by the browser until its version changes."""
    version = f'"{plotly_version()}"'
    headers = {"etag": version, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == version:
        return Response(status_code=304, headers=headers)
    is_local = request.client is not None and request.client.host in LOCAL_NAMES
    if "gzip" in request.headers.get("accept-encoding", "") and not is_local:
        return Response(_packed(), media_type="text/javascript", headers={**headers, "content-encoding": "gzip"})
    return Response(plotly_script(), media_type="text/javascript", headers=headers)


def plotly_script() -> bytes:
    """The script that the plotly package brings, some 5 MB."""
    return (_plotly_folder() / "package_data" / "plotly.min.js").read_bytes()


@cache
def plotly_version() -> str:
    """The version of the plotly package."""
    from importlib.metadata import version

    return version("plotly")


def _plotly_folder() -> Path:
    found = find_spec("plotly")  # importing it would take half a second, and only its script is needed
    if found is None or found.origin is None:
        raise ConfigError("the plots of the page need plotly: pip install plotly")
    return Path(found.origin).parent


@cache
def _packed() -> bytes:
    return gzip.compress(plotly_script(), 6)
