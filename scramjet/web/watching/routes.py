"""`/api/watch`: the socket over which a page watches; at most so many pages at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from scramjet.web.agents import Agents
from scramjet.web.context import PageContext, tell_of_loading

if TYPE_CHECKING:
    from scramjet.web.watching.session import Session

MOST_SESSIONS = 8
"""Pages that watch at the same time: each has a thread and an env."""


def routes(context: PageContext) -> list[BaseRoute]:
    """The socket `/api/watch`."""
    agents = Agents(context.runs_dir, trust=context.trust)
    under_way: set[WebSocket] = set()

    async def watch(socket: WebSocket) -> None:
        await socket.accept()
        if len(under_way) >= MOST_SESSIONS:
            await socket.send_json({"kind": "error", "error": f"{MOST_SESSIONS} pages watch already; close one"})
            await socket.close(1013)
            return
        under_way.add(socket)
        try:
            await tell_of_loading(socket)
            session = await asyncio.to_thread(_session, socket, agents)
            await session.run()
        finally:
            under_way.discard(socket)

    return [WebSocketRoute("/api/watch", watch)]


def _session(socket: WebSocket, agents: Agents) -> Session:
    """A performance for one page. The first one takes seconds: it loads torch."""
    from scramjet.web.watching.session import Session

    return Session(socket, agents)
