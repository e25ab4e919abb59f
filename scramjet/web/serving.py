"""Runs the page's server: a socket that nobody else has, and an end that is quick and quiet."""

from __future__ import annotations

import errno
import socket

import uvicorn
from starlette.types import ASGIApp

from scramjet.errors import ConfigError
from scramjet.web.security import MAX_BODY

_PORTS_TRIED = 50


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
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws_max_size=MAX_BODY,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=1,
        )
    )


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
