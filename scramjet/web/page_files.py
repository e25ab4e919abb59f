"""The files of the page itself: static/, and plotly's script from the installed package."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from scramjet.errors import ConfigError
from scramjet.web.security import LOCAL_NAMES

STATIC = Path(__file__).parent / "static"


def routes() -> list[BaseRoute]:
    """The page at `/` with its scripts and styles, and `/vendor/plotly.min.js`."""
    return [
        Route("/vendor/plotly.min.js", _plotly),
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]


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
