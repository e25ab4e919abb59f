"""One visitor who watches: messages from the page come in, frames go out, and a thread of its own plays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from scramjet.compile.progress import heard_by
from scramjet.errors import ConfigError, RunError, ScramjetError, shortened
from scramjet.runtime.files import read_link
from scramjet.settings import coerce
from scramjet.web.context import BEST, BUG, THINKING, Agents, checkpoint_names, deed_of, read_message
from scramjet.web.pictures import png
from scramjet.web.watching.casting import MOST_SEED, Cast, WatchRequest, checked_seed, make_cast
from scramjet.web.watching.performance import Frame

SLOWEST, FASTEST = 0.5, 60.0
"""Steps a second."""
MOST_UNSEEN = 2
"""Frames that the page has not drawn yet; while there are as many, no other is played."""
MOST_MESSAGES = 64
"""Messages that wait to be read; the page's next one waits on the way."""
PAUSE_AFTER_EPISODE = 1.5
"""Seconds for which the end of an episode stays."""
SECONDS_BETWEEN_LOOKS = 2.0
"""How often new checkpoints are looked for."""

Result = TypeVar("Result")
_CLOSED = object()


class Session:
    """Plays for one page, over its socket, until that closes."""

    def __init__(self, socket: WebSocket, agents: Agents) -> None:
        self._socket, self._agents = socket, agents
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{THINKING}-watch")
        self._messages: asyncio.Queue[Any] = asyncio.Queue(MOST_MESSAGES)
        self._sending = asyncio.Lock()
        self._cast: Cast | None = None
        self._run: str | None = None
        self._listed: dict[str, Any] = {}
        self._is_playing, self._speed, self._unseen = False, FASTEST, 0
        self._seed, self._is_over = 0, False
        self._due = self._look_at = 0.0

    async def run(self) -> None:
        """Serve the page until its socket closes; what was started for it is then ended."""
        self._loop = asyncio.get_running_loop()
        receiving = asyncio.create_task(self._receive())
        try:
            while (message := await self._next_message()) is not _CLOSED:
                await self._guarded(self._advance if message is None else lambda: self._obey(message))
        except (WebSocketDisconnect, asyncio.CancelledError):  # cancelled: the server ends
            pass
        finally:
            receiving.cancel()
            self._thread.submit(self._end_cast)
            self._thread.shutdown(wait=False)

    async def _receive(self) -> None:
        """Read messages into the queue until the socket closes."""
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    break
                await self._messages.put(read_message(message.get("text")))
        await self._messages.put(_CLOSED)

    async def _next_message(self) -> Any:
        """The next message of the page; None where a frame is due first."""
        while True:
            with contextlib.suppress(asyncio.QueueEmpty):
                return self._messages.get_nowait()
            now = time.monotonic()
            is_ready = self._is_playing and self._unseen < MOST_UNSEEN
            if is_ready and now >= self._due:
                return None
            if now >= self._look_at:
                await self._look_for_checkpoints()
            wake = min(self._due if is_ready else self._look_at, self._look_at)
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._messages.get(), max(0.001, wake - now))

    async def _guarded(self, work: Callable[[], Any]) -> None:
        """Do something; an error is told to the page, which may ask for something else."""
        try:
            await work()
        except ScramjetError as error:
            await self._tell_error(str(error))
        except WebSocketDisconnect:
            raise
        except Exception:
            logging.getLogger(__name__).exception("a performance that was watched failed")
            await self._tell_error(BUG)

    async def _tell_error(self, text: str) -> None:
        """Tell the page what went wrong, whether anything still plays, and which checkpoints there are."""
        await self._look_for_checkpoints(always=True)
        await self._send({"kind": "error", "error": text, "has_ended": self._cast is None, **self._listed})

    async def _obey(self, message: dict[str, Any]) -> None:
        """Do what the page asks for."""
        deeds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "start": self._start,
            "restart": self._restart,
            "step": self._step,
            "pause": self._pause,
            "resume": self._resume,
            "speed": self._set_speed,
            "seen": self._see,
        }
        await deed_of(message, deeds)(message)

    async def _start(self, message: dict[str, Any]) -> None:
        request = WatchRequest.read(message)
        self._is_playing, self._run = False, request.run
        await self._send({"kind": "status", "text": f"loading {request.run}"})
        cast = await self._in_thread(self._make_cast, request)
        self._unseen = 0
        self._speed = _clipped(coerce("speed", message.get("speed") or cast.facts["speed"], float))
        await self._look_for_checkpoints(always=True)
        await self._send({"kind": "ready", **cast.facts, "speed": self._speed, "seed": cast.seed, **self._listed})
        await self._begin(cast.seed)
        self._is_playing = message.get("paused") is not True
        await self._tell_state()

    async def _restart(self, message: dict[str, Any]) -> None:
        seed = coerce("seed", message.get("seed"), int | None)
        await self._begin(self._seed if seed is None else checked_seed(seed))

    async def _step(self, message: dict[str, Any]) -> None:
        self._is_playing = False
        await self._tell_state()
        await self._advance()

    async def _pause(self, message: dict[str, Any]) -> None:
        self._is_playing = False
        await self._tell_state()

    async def _resume(self, message: dict[str, Any]) -> None:
        self._is_playing, self._due = self._cast is not None, time.monotonic()
        await self._tell_state()

    async def _set_speed(self, message: dict[str, Any]) -> None:
        self._speed = _clipped(coerce("speed", message.get("speed"), float))
        self._due = min(self._due, time.monotonic() + 1 / self._speed)

    async def _see(self, message: dict[str, Any]) -> None:
        self._unseen = max(0, self._unseen - 1)

    async def _advance(self) -> None:
        """Play and send one frame; after the end of an episode, the first of the next."""
        if self._cast is None:
            raise ConfigError("nothing plays: start something first")
        if self._is_over:
            await self._begin((self._seed + 1) % (MOST_SEED + 1))
            return
        await self._show(await self._in_thread(self._cast.performance.advance))

    async def _begin(self, seed: int) -> None:
        if self._cast is None:
            raise ConfigError("nothing plays: start something first")
        self._seed = seed
        await self._show(await self._in_thread(self._cast.performance.begin, seed))

    async def _show(self, frame: Frame) -> None:
        """Send a frame: its numbers, then its picture."""
        picture = None if isinstance(frame.picture, str) else await self._in_thread(png, frame.picture)
        self._is_over = frame.ended
        now, stays = time.monotonic(), 1 / self._speed
        late = max(self._due, now - stays)  # of a frame that came late, the next is not due the sooner
        self._due = now + max(stays, PAUSE_AFTER_EPISODE) if frame.ended else late + stays
        self._unseen += 1
        await self._send({"kind": "frame", **frame.as_dict(), "has_picture": picture is not None}, picture)

    async def _tell_state(self) -> None:
        await self._send({"kind": "state", "is_playing": self._is_playing})

    async def _look_for_checkpoints(self, *, always: bool = False) -> None:
        """Tell the page where the run that it watches has other checkpoints than before."""
        self._look_at = time.monotonic() + SECONDS_BETWEEN_LOOKS
        if self._run is None:
            return
        listed = await asyncio.to_thread(_listed_checkpoints, self._agents, self._run)
        has_changed, self._listed = listed != self._listed, listed
        if has_changed and not always:
            await self._send({"kind": "checkpoints", **listed})

    async def _send(self, message: dict[str, Any], picture: bytes | None = None) -> None:
        """Send a message, and right behind it the picture that belongs to it; waits while the page is slow to read."""
        async with self._sending:
            await self._socket.send_text(json.dumps(message, allow_nan=False))
            if picture is not None:
                await self._socket.send_bytes(picture)

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run something in the session's own thread, which plays; where it fails, the performance has ended."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        except Exception:
            self._is_playing = False
            await asyncio.wrap_future(self._thread.submit(self._end_cast))
            raise

    def _make_cast(self, request: WatchRequest) -> Cast:
        """In the session's thread: end what played, and load the next; tells the page what is compiled meanwhile."""
        self._end_cast()
        own, loop = threading.get_ident(), self._loop

        def listen(what: str | None) -> None:
            if what is not None and threading.get_ident() == own:
                status = {"kind": "status", "text": f"compiling {what}"}
                asyncio.run_coroutine_threadsafe(self._send(status), loop)

        with heard_by(listen):
            self._cast = make_cast(self._agents, request)
            self._cast.performance.begin(self._cast.seed)  # compiles the rest
        return self._cast

    def _end_cast(self) -> None:
        """In the session's thread: close the env that played."""
        cast, self._cast = self._cast, None
        if cast is not None:
            cast.performance.close()


def _clipped(speed: float) -> float:
    """A speed within bounds; a ConfigError where it is no number."""
    if not speed > 0:
        raise ConfigError(f"speed={shortened(speed)} must be a number of steps a second, {SLOWEST} to {FASTEST:g}")
    return min(FASTEST, max(SLOWEST, speed))


def _listed_checkpoints(agents: Agents, run: str) -> dict[str, Any]:
    """The checkpoints of a run and which is the best; none where the run is gone."""
    try:
        names = checkpoint_names(agents.runs_dir, run)
    except RunError:
        return {"checkpoints": [], "best": None}
    return {"checkpoints": names, "best": read_link(agents.runs_dir / run / "checkpoints" / BEST)}
