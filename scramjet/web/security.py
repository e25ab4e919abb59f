"""Who may ask the page for anything: checks of every request, HTTP and WebSocket alike, before a route sees it.

Host     must be a name of this server: a site whose own name leads to 127.0.0.1 is refused (DNS rebinding)
Origin   must be the page itself, for WebSockets and whatever is not a plain GET
token    where one is set, in the cookie that the first visit by `?token=...` sets
body     at most MAX_BODY bytes
path     without `..`, backslashes and control characters
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 * 1024
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
_HOST = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_.-]{0,253}[A-Za-z0-9])|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?"
)

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # plotly writes style attributes
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}

TOO_LARGE = f"a request may have at most {MAX_BODY:,} bytes"
WRONG_TOKEN = "This page needs its token: open the whole URL that `scramjet serve` printed, with ?token=... in it."


@dataclass(frozen=True)
class Access:
    """Who may use the page: those who know the token, by the names that the server goes by."""

    token: str | None = None
    """None: whoever reaches the port."""
    host: str = "127.0.0.1"
    """The address that the server listens on."""
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        names = LOCAL_NAMES | {self.host.lower().partition("%")[0]}  # browsers leave out the zone of an address
        if self.host in ANY_ADDRESS:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        object.__setattr__(self, "names", names)

    def is_own_name(self, host: str) -> bool:
        """Whether a Host header names this server. Where it listens on every address, each address is one."""
        name = _name_in(host)
        return name in self.names or (self.host in ANY_ADDRESS and _is_address(name))

    def is_token(self, text: str | None) -> bool:
        """Whether `text` is the token, compared in constant time; True where none is needed."""
        return self.token is None or (text is not None and hmac.compare_digest(text.encode(), self.token.encode()))


class Guard:
    """ASGI middleware that refuses what `Access` does not allow, limits bodies and sets the headers of answers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await refused(scope, receive, _with_headers(send, {}))
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        await self._app(scope, _limited(receive), _with_headers(send, self._cookie(scope)))

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that is not allowed, None for one that is."""
        headers = Headers(scope=scope)
        if not _is_plain_path(scope):
            return error_answer(scope, 400, "no such path")
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._access.is_own_name(hosts[0]):
            return error_answer(scope, 421, "this server does not go by that name; open the URL that it printed")
        if not _is_same_origin(scope, headers):
            return error_answer(scope, 403, "requests from other sites are refused")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return error_answer(scope, 413, TOO_LARGE)
        if not (self._access.is_token(_cookie_in(scope, headers)) or self._access.is_token(_token_in(scope))):
            return error_answer(scope, 401, WRONG_TOKEN)
        return None

    def _cookie(self, scope: Scope) -> dict[str, str]:
        """The header that keeps the token of a first visit; the page takes it out of its own address."""
        if self._access.token is None or _token_in(scope) is None:
            return {}
        attributes = "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if scope["scheme"] == "https" else "")
        return {"set-cookie": f"{_cookie_name(scope)}={self._access.token}; {attributes}"}


def error_answer(scope: Scope, status: int, text: str) -> Response:
    """The answer that says what went wrong: JSON below /api, else plain text."""
    if scope["path"].startswith("/api/"):
        return JSONResponse({"error": text}, status)
    return PlainTextResponse(f"{text}\n", status)


def _name_in(host: str) -> str:
    """The name in `name` or `name:port`, lower case; "" for any other form. An IPv6 address stands in brackets."""
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > 65535:
        return ""
    return (match["address"] or match["name"]).lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_plain_path(scope: Scope) -> bool:
    """Whether a path leads down only, decoded as often as a careless reader might."""
    raw = scope.get("raw_path", b"").decode("latin-1").lower()
    if not scope["path"].isprintable() or "\\" in scope["path"] or "%2e" in raw or "%25" in raw or "%2f" in raw:
        return False
    return not {".", ".."} & set(scope["path"].split("/"))


def _is_same_origin(scope: Scope, headers: Headers) -> bool:
    """Whether the page itself asks. Browsers say the origin of all that could do something; other programs need not."""
    if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
        return headers.get("sec-fetch-site") != "cross-site" or headers.get("sec-fetch-mode") == "navigate"
    origins, host = headers.getlist("origin"), headers.get("host", "").lower()
    return all(origin.lower() in (f"http://{host}", f"https://{host}") for origin in origins)


def _cookie_name(scope: Scope) -> str:
    """Cookies know no ports: each server's has its own name."""
    return f"scramjet-{(scope.get('server') or ('', 0))[1]}"


def _cookie_in(scope: Scope, headers: Headers) -> str | None:
    return cookie_parser(headers.get("cookie", "")).get(_cookie_name(scope))


def _token_in(scope: Scope) -> str | None:
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [None])[0]


def _limited(receive: Receive) -> Receive:
    """`receive`, which refuses a body sent in pieces where it grows beyond MAX_BODY."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(413, TOO_LARGE)
        return message

    return limited


def _with_headers(send: Send, more: dict[str, str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in {**HEADERS, **more}.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store" if more else "no-cache")
        await send(message)

    return sending
