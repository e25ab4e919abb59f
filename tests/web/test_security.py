"""Who may ask the page for what, by raw requests: paths, hosts, origins, tokens, sizes."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_calls import refusal
from tests.helpers.pages import PageServer, make_run

TOKEN = "a-long-token-of-mine"


def ask(
    server: PageServer, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, str, dict]:
    """Status, text and headers of an answer; the path is sent as it is."""
    connection = http.client.HTTPConnection(server.address, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    found = {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return answer.status, text, found


@pytest.fixture
def beside(page_server: PageServer) -> PageServer:
    """A server with one run, a secret beside the runs folder, and links from inside to it."""
    make_run(page_server.runs_dir, "run")
    secret = page_server.runs_dir.parent / "secret"
    make_run(secret, "hidden")
    (page_server.runs_dir / "link").symlink_to(secret / "hidden")
    (page_server.runs_dir / "run" / "videos").symlink_to(secret)
    return page_server


PATHS = [
    "/../secret/hidden/config.toml", "/..%2fsecret/hidden/config.toml", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
    "/api/runs/..", "/api/runs/../secret", "/api/runs/..%2f..%2fsecret%2fhidden", "/api/runs/%2e%2e%2fsecret",
    "/api/runs/link", "/api/runs/run%00", "/api/runs/%2fetc", "/api/runs/.hidden", "/api/runs/" + "a" * 5_000,
    "/api/runs/run/videos/hidden", "/api/runs/run/videos/..%2fconfig.toml", "/api/runs/run/videos/config.toml",
    "/..\\..\\secret", "/%5c..%5csecret", "/static/../server.py", "/parts/../../server.py", "/api/runs/%c0%ae%c0%ae",
    "/api/runs/%252e%252e", "/api/runs/link/curves", "/api/nothing",
]  # fmt: skip


def test_no_path_and_no_link_leads_out_of_the_runs_folder(beside: PageServer) -> None:
    for path in PATHS:
        status, text, _ = ask(beside, path)
        assert status in (400, 404), path
        assert "algorithm" not in text, path
        assert "root:" not in text, path
    deadline = time.monotonic() + 30
    while not (listed := json.loads(ask(beside, "/api/runs")[1])["runs"]):
        assert time.monotonic() < deadline, "no run was found"
        time.sleep(0.05)
    assert [run["name"] for run in listed] == ["run"]


def test_only_the_names_of_this_machine_are_answered(page_server: PageServer) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost@evil"):
        assert ask(page_server, "/api/runs", host=host)[0] == 421, host
    port = page_server.address.partition(":")[2]
    for host in ("localhost", f"localhost:{port}", "127.0.0.1:9999", "[::1]:80", "LOCALHOST"):
        assert ask(page_server, "/api/runs", host=host)[0] == 200, host


def test_a_request_of_another_site_is_refused(page_server: PageServer) -> None:
    for origin in ("http://evil.example", "null", "http://["):
        assert ask(page_server, "/api/runs", "POST", b"{}", origin=origin)[0] == 403, origin
    assert ask(page_server, "/api/runs", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")[0] == 403
    assert ask(page_server, "/api/runs", "POST", b"{}", origin=f"http://{page_server.address}")[0] == 405


def status_line(server: PageServer, head: str) -> int:
    """The status of an answer to a request that is written by hand; the connection is closed behind it."""
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(head.encode("latin-1"))
        return int(connection.recv(64).split()[1])


def upgrade(server: PageServer, **headers: str) -> int:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return status_line(
        server,
        f"GET /api/live HTTP/1.1\r\nHost: {server.address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{lines}\r\n",
    )


def test_a_websocket_opens_for_the_page_alone(serve_page: Callable[..., PageServer]) -> None:
    server = serve_page(token=TOKEN)
    port = server.address.partition(":")[2]
    own, cookie = f"http://{server.address}", f"scramjet-{port}={TOKEN}"
    assert upgrade(server, origin=own, cookie=cookie) == 101
    assert upgrade(server, origin="http://evil.example", cookie=cookie) == 403
    assert upgrade(server, origin="http://[", cookie=cookie) == 403
    assert upgrade(server, origin=own) == 403
    assert upgrade(server, origin=own, cookie=f"scramjet-{port}=wrong") == 403


def test_a_token_is_asked_for_until_it_is_given_once(serve_page: Callable[..., PageServer]) -> None:
    server = serve_page(token=TOKEN)
    for path in ("/", "/main.js", "/api/runs", "/vendor/plotly.min.js", "/?token=wrong", "/?token=", "/?token=%ff"):
        status, text, headers = ask(server, path)
        assert status == 401, path
        assert "scramjet serve" in text
        assert "set-cookie" not in headers
    assert ask(server, "/", cookie=f"scramjet-{server.address.partition(':')[2]}=wrong")[0] == 401
    status, _, headers = ask(server, f"/?token={TOKEN}")
    assert TOKEN not in headers.get("location", "")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert ask(server, "/", cookie=cookie.partition(";")[0])[0] == 200


@pytest.mark.rest
def test_a_browser_gives_its_token_once(serve_page: Callable[..., PageServer], open_page: Any) -> None:
    server, page = serve_page(token=TOKEN), open_page()
    page.goto(f"{server.url}?token={TOKEN}#/")
    page.get_by_text("scramjet train cartpole").wait_for()
    assert TOKEN not in page.url
    page.goto(server.url)
    page.get_by_text("scramjet train cartpole").wait_for()


def test_huge_bodies_are_refused_with_and_without_their_length(page_server: PageServer) -> None:
    assert ask(page_server, "/api/runs", "POST", b"x" * 100_000)[0] == 413
    head = f"GET /api/runs HTTP/1.1\r\nHost: {page_server.address}\r\nContent-Length: 999999999999\r\n\r\n"
    assert status_line(page_server, head) == 413


def test_answers_forbid_what_a_page_could_be_misused_for(page_server: PageServer) -> None:
    for path in ("/", "/api/runs", "/api/nothing", "/../x"):
        headers = ask(page_server, path)[2]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "http" not in policy
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert headers["referrer-policy"] == "no-referrer"


def test_a_config_of_fifty_megabytes_and_other_odd_files_are_answered(page_server: PageServer) -> None:
    big = make_run(page_server.runs_dir, "big")
    (big / "config.toml").write_bytes(b"# " + b"x" * 50_000_000)
    pipe = make_run(page_server.runs_dir, "deep")
    (pipe / "lineage.json").write_text("[" * 100_000)
    (make_run(page_server.runs_dir, "linked") / "metrics.jsonl").unlink()
    (page_server.runs_dir / "linked" / "metrics.jsonl").symlink_to("/etc/passwd")
    for name in ("big", "deep", "linked"):
        status, text, _ = ask(page_server, f"/api/runs/{name}")
        assert status == 200, text
        assert len(text) < 1_000_000
        assert "root:" not in text
    assert ask(page_server, "/api/runs/linked/curves")[0] == 400


def test_a_second_server_on_the_port_says_which_one_is_free(
    page_server: PageServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    port = page_server.address.partition(":")[2]
    told = refusal(capsys, "serve", "--port", port, "--runs-dir", tmp_path)
    assert f"port {port} is in use" in told
    assert "try --port" in told
