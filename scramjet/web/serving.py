"""Runs the page's server: a socket that nobody else has, an end that is quick and quiet, and bounds on what whoever
reaches the port can take: connections, time, memory, and lines on the terminal."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from scramjet.errors import ConfigError, printable
from scramjet.web.security import MAX_BODY

MAX_HEAD = 32 * 1024
"""Bytes of a request before its body."""
MOST_CONNECTIONS = 256
"""A browser has six for each page, and a socket that stays open."""
REQUEST_SECONDS = 20.0
"""How long a request may take to arrive."""
SECONDS_BETWEEN_WARNINGS = 60.0
_PORTS_TRIED = 50
_MOST_KINDS = 100
_LOGGER = "uvicorn.error"
_OF_A_CLIENT = ("Invalid UTF-8 sequence received from client.",)
"""Errors with a traceback, in uvicorn's words, that are nothing but what somebody sent."""


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on the address; a ConfigError says why it cannot, and what to type instead."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: no such address ({error}); use --host 127.0.0.1") from error
    try:
        return _bound(family, kind, protocol, address)
    except OSError as error:
        raise _cannot_listen(error, host, port) from error


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A server for `server.run(sockets=[...])` that says nothing while all goes well."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=_BoundedRequests,
            h11_max_incomplete_event_size=MAX_HEAD,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws_max_size=MAX_BODY,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=1,
        )
    )
    logger = logging.getLogger(_LOGGER)
    for old in [each for each in logger.filters if isinstance(each, _Seldom)]:
        logger.removeFilter(old)
    logger.addFilter(_Seldom())
    return server


class _BoundedRequests(H11Protocol):
    """A connection that is closed where a request does not arrive in time, sooner where others wait for its place."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch_arrival()
        if len(self.connections) > MOST_CONNECTIONS:
            others = [each for each in self.connections if isinstance(each, _BoundedRequests) and each is not self]
            deadlines = {each: each._deadline.when() for each in others if each._deadline is not None}
            min(deadlines, key=deadlines.__getitem__, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch_arrival(self) -> None:
        """Begin the time of a request that is not here yet, or end that of one that is."""
        is_here = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if is_here or self.transport.get_protocol() is not self:  # the latter is a WebSocket now
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None


class _Seldom(logging.Filter):
    """Lets each kind of warning through once a minute, with the number of those that were left out; errors all."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, tuple[float, int]] = {}  # when, and how many were left out since

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg) in _OF_A_CLIENT:
            record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        if record.levelno > logging.WARNING:
            return True
        kind, now = str(record.msg)[:100], time.monotonic()
        shown_at, left_out = self._shown.get(kind, (-SECONDS_BETWEEN_WARNINGS, 0))
        if now - shown_at < SECONDS_BETWEEN_WARNINGS:
            self._shown[kind] = shown_at, left_out + 1
            return False
        if len(self._shown) > _MOST_KINDS:
            self._shown.clear()
        self._shown[kind] = now, 0
        more = f" ({left_out:,} more since the last line like this)" if left_out else ""
        record.msg, record.args = printable(record.getMessage()[:300]) + more, ()
        return True


def _bound(family: int, kind: int, protocol: int, address: tuple) -> socket.socket:
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError:
        found.close()
        raise
    return found


def _cannot_listen(error: OSError, host: str, port: int) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        free = _next_free_port(host, port)
        fix = f"try --port {free}" if free else "choose another with --port"
        return ConfigError(f"port {port} is in use, perhaps by another `scramjet serve`; {fix}")
    if error.errno == errno.EACCES:
        return ConfigError(f"port {port} is the system's; try --port 8000")
    return ConfigError(f"cannot listen on {host}, port {port}: {error.strerror}; use --host 127.0.0.1")


def _next_free_port(host: str, port: int) -> int | None:
    for candidate in range(port + 1, min(port + _PORTS_TRIED, 65536)):
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0]
            _bound(family, kind, protocol, address).close()
        except OSError:
            continue
        return candidate
    return None
