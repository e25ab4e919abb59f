"""Pushes what is new to the browsers that look: changed lines of the list, and new records of one run.

One thread looks at the folder about once a second, less often where a look takes long. Each browser has a short queue;
one that does not keep up is let go, connects again and fetches what it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from scramjet.errors import ScramjetError
from scramjet.runtime.logs import LOG_FILE, read_log
from scramjet.runtime.machine import LoadMeter, read_driver_gpu
from scramjet.telemetry.metrics import findings
from scramjet.telemetry.metrics_file import Position, end_of_records, read_records
from scramjet.web.run_list import RunIndex, Stamp, stamp_of

EVERY_SECONDS = 0.7
SHARE_OF_TIME = 0.1
"""The share of a thread's time that looking may take."""
_QUEUE = 64
_RECORDS_AT_ONCE = 100


@dataclass(eq=False, slots=True)
class Subscriber:
    """One browser: what it looks at, and messages that it has not got yet."""

    queue: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(_QUEUE))
    run: str | None = None
    """The run that it looks at; None: the list."""
    position: Position | None = None
    log: Stamp | None = None
    row: dict[str, Any] | None = None
    """The line of the list that it was told last."""
    is_lost: bool = False
    """It was told that the run cannot be read."""


class Live:
    """The thread that looks at the folder, and the browsers that are told."""

    def __init__(self, index: RunIndex, run_folder: Callable[[str], Path]) -> None:
        """`run_folder` gives the folder of a run, or raises an HTTPException."""
        self._index, self._run_folder = index, run_folder
        self._subscribers: set[Subscriber] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._load = LoadMeter(read_driver_gpu, every=0.5)
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at the folder while the server runs."""
        self._loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._watch, name="scramjet-live", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            await asyncio.to_thread(thread.join, 2.0)

    def routes(self) -> list[BaseRoute]:
        """`/api/live`: send {"watch": "runs"} or {"watch": "run", "name": ...}."""
        return [WebSocketRoute("/api/live", self._serve)]

    async def _serve(self, websocket: WebSocket) -> None:
        await websocket.accept()
        subscriber = Subscriber()
        sending = asyncio.create_task(self._send(websocket, subscriber))
        try:
            while True:
                await self._subscribe(subscriber, await websocket.receive_json())
        except (WebSocketDisconnect, ValueError, KeyError, RecursionError):  # gone, or no JSON
            pass
        finally:
            with self._lock:
                self._subscribers.discard(subscriber)
            sending.cancel()

    async def _subscribe(self, subscriber: Subscriber, wish: Any) -> None:
        name = wish.get("name") if isinstance(wish, dict) and wish.get("watch") == "run" else None
        if isinstance(name, str):
            try:
                path = self._run_folder(name)
            except HTTPException as error:
                self._put(subscriber, {"type": "error", "error": error.detail})
                return
            subscriber.position = await asyncio.to_thread(end_of_records, path / "metrics.jsonl")
        with self._lock:
            subscriber.run = name if isinstance(name, str) else None
            self._subscribers.add(subscriber)
        self._put(subscriber, {"type": "watching", "name": subscriber.run})

    async def _send(self, websocket: WebSocket, subscriber: Subscriber) -> None:
        while (text := await subscriber.queue.get()) is not None:
            await websocket.send_text(text)
        await websocket.close(1013)

    def _watch(self) -> None:
        """Look at the runs that somebody looks at every time, and at the whole folder as often as that is cheap."""
        next_scan = 0.0
        while not self._stop.is_set():
            began = time.monotonic()
            if began >= next_scan:
                worked = time.thread_time()
                rows, gone = self._index.scan()
                next_scan = began + (time.thread_time() - worked) / SHARE_OF_TIME
                if rows or gone:
                    self._tell(self._watching(None), {"type": "rows", "rows": rows, "gone": gone})
            for name in {each.run for each in self._watching() if each.run is not None}:
                self._tell_of_run(name)
            self._stop.wait(max(EVERY_SECONDS / 2, EVERY_SECONDS - (time.monotonic() - began)))

    def _watching(self, *runs: str | None) -> list[Subscriber]:
        """Those who look at one of these; without an argument all who look at a single run."""
        with self._lock:
            return [each for each in self._subscribers if (each.run in runs if runs else each.run is not None)]

    def _tell_of_run(self, name: str) -> None:
        """Tell those who look at a run of its new records, its state, its log and the load of the machine."""
        row = self._index.refresh(name)
        if row is not None:
            self._tell(self._watching(None), {"type": "rows", "rows": [row], "gone": []})
        for each in self._watching(name):
            message: dict[str, Any] = {"type": "run", "name": name, "load": asdict(self._load.read())}
            try:
                path = self._run_folder(name)
                reading = read_records(path / "metrics.jsonl", each.position or Position())
            except (ScramjetError, HTTPException) as error:
                if not each.is_lost:
                    text = error.detail if isinstance(error, HTTPException) else str(error)
                    self._tell([each], {"type": "error", "error": text})
                each.is_lost = True
                continue
            each.is_lost = False
            each.position = reading.position
            if reading.restarted:
                message["restarted"] = True
            elif reading.records:
                message |= {"records": _spread(reading.records), "findings": findings(reading.records[-1])}
            facts = self._index.row(name)
            if facts != each.row:
                each.row, message["row"] = facts, facts
            if (stamp := stamp_of(path / LOG_FILE)) != each.log:
                each.log, message["log"] = stamp, read_log(path)
            self._tell([each], message)

    def _tell(self, subscribers: list[Subscriber], message: dict[str, Any]) -> None:
        """Hand a message to the event loop, which alone touches the queues."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the server ends, and its loop is closed
            for each in subscribers:
                self._loop.call_soon_threadsafe(self._put, each, message)

    def _put(self, subscriber: Subscriber, message: dict[str, Any]) -> None:
        if subscriber.queue.full():  # too slow: it connects again
            with self._lock:
                self._subscribers.discard(subscriber)
            while not subscriber.queue.empty():
                subscriber.queue.get_nowait()
            subscriber.queue.put_nowait(None)
        else:
            subscriber.queue.put_nowait(json.dumps(message))


def _spread(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most so many of the records, evenly spread, the last one and those with an evaluation among them."""
    stride = -(-len(records) // _RECORDS_AT_ONCE)
    last = len(records) - 1
    return [
        record
        for place, record in enumerate(records)
        if (last - place) % stride == 0 or (stride < 10 and "eval/mean_return" in record)
    ]
