"""`/api/play`, the socket over which a page plays, and `/api/play/worlds`, the worlds that come with scramjet."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from scramjet.adapters.registry import LIBRARIES
from scramjet.engine.layout import num_players
from scramjet.envs.registry import is_registered_here, registrations
from scramjet.web.agents import Agents
from scramjet.web.context import THINKING, PageContext, tell_of_loading

if TYPE_CHECKING:
    from scramjet.web.playing.session import Session

MOST_SESSIONS = 16
"""Pages that play at the same time: each has a thread and a game."""
LONGEST_MESSAGE = 10_000
BUG = "the server met an error of its own; its terminal shows it"


def routes(context: PageContext) -> list[BaseRoute]:
    """The socket `/api/play`, and the list of worlds."""
    agents = Agents(context.runs_dir, trust=context.trust)
    under_way: set[WebSocket] = set()

    async def play(socket: WebSocket) -> None:
        await socket.accept()
        if len(under_way) >= MOST_SESSIONS:
            await socket.send_json({"kind": "error", "error": f"{MOST_SESSIONS} pages play already; close one"})
            await socket.close(1013)
            return
        under_way.add(socket)
        try:
            await _serve(socket, agents)
        finally:
            under_way.discard(socket)

    return [Route("/api/play/worlds", _answer_worlds), WebSocketRoute("/api/play", play)]


async def _serve(socket: WebSocket, agents: Agents) -> None:
    """Play over a socket until it closes. The session lives in a thread of its own: the page is served meanwhile."""
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix=f"{THINKING}-play")
    session: Session | None = None
    try:
        await tell_of_loading(socket)
        session = await loop.run_in_executor(thread, _session, agents)
        while True:
            answers = session.answers(_parsed(await socket.receive_text()))
            while (answer := await loop.run_in_executor(thread, next, answers, None)) is not None:
                await socket.send_text(json.dumps(answer, allow_nan=False))
    except (
        WebSocketDisconnect,
        asyncio.CancelledError,
        KeyError,
    ):  # cancelled: the server ends; KeyError: bytes, no text
        pass
    except Exception:
        logging.getLogger(__name__).exception("a game in the page failed")
        await socket.send_json({"kind": "error", "error": BUG})
        await socket.close(1011)
    finally:
        if session is not None:
            thread.submit(session.close)
        thread.shutdown(wait=False)


def _session(agents: Agents) -> Session:
    """Games for one page. The first one takes seconds: it loads torch."""
    from scramjet.web.playing.session import Session

    return Session(agents)


def _parsed(text: str) -> Any:
    """The JSON in a message; None, which is no message of ours, where there is none."""
    try:
        return json.loads(text) if len(text) <= LONGEST_MESSAGE else None
    except (ValueError, RecursionError):
        return None


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
