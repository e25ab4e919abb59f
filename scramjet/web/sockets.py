"""`/api/play` and `/api/watch`, the sockets over which pages play and watch, and `/api/play/worlds`.

Each page has a session of its own in a thread of its own, so that the server answers others meanwhile. A bounded number
of pages play, and of pages watch, at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from scramjet.adapters.registry import LIBRARIES
from scramjet.engine.layout import num_players
from scramjet.envs.registry import is_registered_here, registrations
from scramjet.web.context import BUG, THINKING, PageContext, read_message

MOST_PLAYING, MOST_WATCHING = 16, 8
"""Pages at the same time: each has a thread and an env."""

Serve = Callable[[WebSocket], Awaitable[None]]


def routes(context: PageContext) -> list[BaseRoute]:
    """The two sockets, and the list of worlds."""

    async def play(socket: WebSocket) -> None:
        await _play(socket, context)

    async def watch(socket: WebSocket) -> None:
        await _tell_of_loading(socket)
        session = await asyncio.to_thread(_watching_session, socket, context)
        await session.run()

    return [
        Route("/api/play/worlds", _answer_worlds),
        WebSocketRoute("/api/play", _at_most(MOST_PLAYING, "play", play)),
        WebSocketRoute("/api/watch", _at_most(MOST_WATCHING, "watch", watch)),
    ]


def _at_most(most: int, verb: str, serve: Serve) -> Serve:
    """Serve as many sockets at the same time; tell others that there are no places left."""
    under_way: set[WebSocket] = set()

    async def bounded(socket: WebSocket) -> None:
        await socket.accept()
        if len(under_way) >= most:
            await socket.send_json({"kind": "error", "error": f"{most} pages {verb} already; close one"})
            await socket.close(1013)
            return
        under_way.add(socket)
        try:
            await serve(socket)
        finally:
            under_way.discard(socket)

    return bounded


async def _tell_of_loading(socket: WebSocket) -> None:
    """Tell a page that wants to play or watch what it waits for, if it is the first: torch takes seconds to load."""
    if "torch" not in sys.modules:
        with contextlib.suppress(WebSocketDisconnect):  # who loads the session will see that
            await socket.send_json({"kind": "status", "text": "loading PyTorch"})


async def _play(socket: WebSocket, context: PageContext) -> None:
    """Play over a socket until it closes."""
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix=f"{THINKING}-play")
    session: Any = None
    try:
        await _tell_of_loading(socket)
        session = await loop.run_in_executor(thread, _playing_session, context)
        while True:
            answers = session.answers(read_message(await socket.receive_text()))
            while (answer := await loop.run_in_executor(thread, next, answers, None)) is not None:
                await socket.send_text(json.dumps(answer, allow_nan=False))
    except (WebSocketDisconnect, asyncio.CancelledError, KeyError):
        pass  # cancelled: the server ends; KeyError: bytes, no text
    except Exception:
        logging.getLogger(__name__).exception("a game in the page failed")
        await socket.send_json({"kind": "error", "error": BUG})
        await socket.close(1011)
    finally:
        if session is not None:
            thread.submit(session.close)
        thread.shutdown(wait=False)


def _playing_session(context: PageContext) -> Any:
    """Games for one page. The first one takes seconds: it loads torch."""
    from scramjet.web.playing.session import Session

    return Session(context.agents)


def _watching_session(socket: WebSocket, context: PageContext) -> Any:
    """A performance for one page. The first one takes seconds: it loads torch."""
    from scramjet.web.watching.session import Session

    return Session(socket, context.agents)


def _answer_worlds(request: Request) -> Response:
    """The built-in worlds, for a page that lets people choose one, and the prefixes of worlds that nobody can play."""
    worlds = []
    for entry in registrations():
        if is_registered_here(entry.name) or entry.name.startswith("probe_"):
            continue
        env = entry.env_class()()
        about = (inspect.getdoc(type(env)) or "").partition("\n")[0]
        worlds.append({"name": entry.name, "num_players": num_players(env), "about": about})
    return JSONResponse({"worlds": worlds, "libraries": list(LIBRARIES)})
