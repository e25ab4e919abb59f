"""What the page is told of runs, even of those written to break it, and who may ask it for what."""

import contextlib
import http.client
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from scramjet.web import serving
from scramjet.web.run_list import RunIndex, glance_at_config, read_spark
from scramjet.web.run_view import RunCurves, run_details
from scramjet.web.security import Access
from tests.helpers.command_calls import refusal
from tests.helpers.pages import PageServer, contrast, make_run, make_running, record
from tests.helpers.written_runs import append_records, record_at, write_run


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the server says on the terminal, errors of its own among it. Its logger passes nothing on."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def test_wrong_numbers_in_a_record_end_no_look_at_the_folder(tmp_path: Path) -> None:
    make_run(tmp_path, "fine")
    times = {"elapsed_seconds": 10**400, "steps_per_second": 10**400}
    strange = ({"return_100": 10**400}, {"approx_kl": 10**400}, {"update": "many"}, {"update": [1]}, {"time": times})
    for number, metrics in enumerate(strange):
        run = make_run(tmp_path, f"strange-{number}", 2)
        append_records(run, [{**record(3), **metrics}])
        json.dumps(run_details(run, RunCurves()), allow_nan=False)
    rows = json.loads(json.dumps(looked_at(tmp_path), allow_nan=False))
    assert [row["state"] for row in rows] == ["killed"] * 6
    (tmp_path / "fine/metrics.jsonl").write_text('{"step":1,"return_100":1e999}\n')
    assert json.dumps(read_spark(tmp_path / "fine/metrics.jsonl"), allow_nan=False) == "[]"


def looked_at(folder: Path) -> list[dict[str, Any]]:
    index = RunIndex(folder)
    index.scan()
    return index.rows()


def test_the_list_tells_runs_that_finished_stopped_run_were_killed_or_are_damaged(tmp_path: Path) -> None:
    make_run(tmp_path, "done", 100)
    make_run(tmp_path, "dead")
    (make_run(tmp_path, "halted") / "checkpoints/step_00020000").mkdir(parents=True)
    (make_run(tmp_path, "broken") / "config.toml").write_text("= [")
    with make_running(tmp_path, "alive"):
        states = {row["name"]: row["state"] for row in looked_at(tmp_path)}
    expected = {"done": "finished", "dead": "killed", "halted": "stopped", "broken": "damaged", "alive": "running"}
    assert states == expected


def test_a_config_of_brackets_ends_no_look_at_the_folder(tmp_path: Path) -> None:
    for key in ("tags", "algorithm"):
        config = make_run(tmp_path, key) / "config.toml"
        lines = [line for line in config.read_text().split("\n") if not line.startswith(f"{key} = ")]
        config.write_text("\n".join([f"{key} = {'[' * 100_000}{']' * 100_000}", *lines]))
    assert sorted(row["name"] for row in looked_at(tmp_path)) == ["algorithm", "tags"]
    text = 'algorithm = "ppo"\n' + "tags = [\n" * 100_000 + '[env]\nname = "cartpole"\n'
    config.write_text(text)  # to look for the end of each would take minutes
    assert glance_at_config(config.parent).env == "cartpole"


def test_a_message_of_brackets_closes_its_socket_and_is_no_error_of_the_server(
    page_server: PageServer, said: list[str]
) -> None:
    with connect(f"ws://{page_server.address}/api/live", open_timeout=60) as socket:
        socket.send("[" * 60_000)
        with pytest.raises(ConnectionClosed):
            [socket.recv(30) for _ in range(1000)]
    assert said == []


def test_a_run_is_listed_since_it_came_and_seeds_and_tags_are_one_group(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, "a"), make_run(tmp_path, "b", seed=2, tags=["x", "y [z]"])]
    first, second = map(glance_at_config, runs)
    assert first.group == second.group
    assert second.tags == ("x", "y [z]")
    assert glance_at_config(make_run(tmp_path, "c", env="maze")).group != first.group
    index = RunIndex(tmp_path / "later")
    index.scan()
    make_run(tmp_path / "later", "new")
    assert [(row["name"], row["state"]) for row in index.rows()] == [("new", "pending")]
    changed, gone = index.scan()
    assert ([row["name"] for row in changed], gone) == (["new"], [])
    assert index.rows() == changed


def test_a_video_is_sent_in_the_parts_that_a_player_asks_for(page_server: PageServer) -> None:
    videos = make_run(page_server.runs_dir, "run") / "videos"
    videos.mkdir()
    (videos / "step_00001000.mp4").write_bytes(bytes(range(256)) * 4)
    (videos / "secret.mp4").symlink_to("/etc/passwd")
    _, told = answer(page_server, "runs/run")
    assert [video["name"] for video in told["videos"]] == ["step_00001000.mp4"]
    request = Request(f"{page_server.url}api/runs/run/videos/step_00001000.mp4", headers={"range": "bytes=10-19"})
    with urlopen(request, timeout=30) as part:
        assert (part.status, part.read()) == (206, bytes(range(10, 20)))


def answer(server: PageServer, query: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"{server.url}api/{query}", timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


def test_a_comparison_has_notes_on_what_cannot_be_read_and_requests_for_the_wrong_thing_are_told(
    page_server: PageServer,
) -> None:
    for name in ("a", "b", "broken"):
        records = [record_at(update, return_100=10.0 * update) for update in range(1, 31)]
        write_run(page_server.runs_dir, name, records, seed=ord(name[0]))
    (page_server.runs_dir / "broken" / "config.toml").write_bytes(b"\0")
    for query, status, message in (
        ("", 400, "give from 1 to 100"),
        ("runs=" + ",".join(f"r{number}" for number in range(101)), 400, "give from 1 to 100"),
        ("runs=../..", 404, "cannot be used"),
        ("runs=nobody", 404, "there is no run 'nobody'"),
        ("runs=a&axis=colour", 400, "expected steps or time"),
        ("runs=a&smooth=nan", 400, "expected a number from 0 to 1"),
        ("runs=a&group=colour", 400, "no run has this setting"),
    ):
        answered, said = answer(page_server, f"compare?{query}")
        assert answered == status, query
        assert message in said["error"], query
    status, said = answer(page_server, "compare?runs=broken,a,b")
    assert status == 200
    assert said["notes"][0].startswith("broken is left out: ")
    assert [each["runs"] for each in said["contenders"]] == [["a", "b"]]
    assert said["panels"]
    assert answer(page_server, "compare?runs=a&metric=unknown")[1]["panels"] == []


def test_the_formula_of_contrast_gives_its_known_values() -> None:
    assert contrast([0, 0, 0], [255, 255, 255]) == pytest.approx(21)
    assert contrast([119, 119, 119], [255, 255, 255]) == pytest.approx(4.48, abs=0.01)


TOKEN = "a-long-token-of-mine"


def ask(
    server: PageServer, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, str, dict]:
    """Status, text and headers of an answer; the path is sent as it is."""
    connection = http.client.HTTPConnection(server.address, timeout=60)
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


def test_only_the_names_of_this_machine_and_its_own_page_are_answered(page_server: PageServer) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost@evil"):
        assert ask(page_server, "/api/runs", host=host)[0] == 421, host
    port = page_server.address.partition(":")[2]
    for host in ("localhost", f"localhost:{port}", "127.0.0.1:9999", "[::1]:80", "LOCALHOST"):
        assert ask(page_server, "/api/runs", host=host)[0] == 200, host
    for origin in ("http://evil.example", "null", "http://["):
        assert ask(page_server, "/api/runs", "POST", b"{}", origin=origin)[0] == 403, origin
    assert ask(page_server, "/api/runs", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")[0] == 403
    assert ask(page_server, "/api/runs", "POST", b"{}", origin=f"http://{page_server.address}")[0] == 405


def status_line(server: PageServer, head: str) -> int:
    """The status of an answer to a request that is written by hand; the connection is closed behind it."""
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(head.encode("latin-1"))
        return int(connection.recv(64).split()[1])


NOT_ITS_NAME = (
    "evil.com@127.0.0.1", "127.0.0.1@evil.com", "localhost:80@evil", "user:pw@localhost", "127.0.0.1:80:80",
    "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:8\u0660", "localhost.", ".localhost", "127.0.0.1.",
    "127.1", "2130706433", "0x7f.0.0.1", "0.0.0.0", "::1", "[::1", "::1]", "[::1]x", "[::1].evil.com", "[::1%25lo]",
    "[::ffff:127.0.0.1]", "[]", "127.0.0.1/", "127.0.0.1#", "127.0.0.1?", "127.0.0.1\\@evil.com", "127.0.0.1 evil.com",
    "127.0.0.1,evil.com", "localhost\n", "localhost\x00", "l\u00f6calhost", "\u24db\u24de\u24d2alhost", "x" * 300, "",
)  # fmt: skip


def test_a_name_in_host_is_one_form_or_refused() -> None:
    near, everywhere = Access(), Access(host="0.0.0.0")
    for host in NOT_ITS_NAME:
        assert not near.is_own_name(host), host
    for host in ("localhost", "LocalHost:1", "127.0.0.1:65535", "[::1]", "[::1]:8000"):
        assert near.is_own_name(host), host
        assert everywhere.is_own_name(host), host
    for host in ("192.168.0.7:8000", "[fe80::1]:80", "0.0.0.0"):
        assert everywhere.is_own_name(host), host
    for host in ("1.2.3", "[1.2.3.4.5]", "evil.com", "1.2.3.4@evil.com", "[fe80::1%25eth0]", "[::1]evil"):
        assert not everywhere.is_own_name(host), host
    assert Access(host="fe80::1%eth0").is_own_name("[fe80::1]:80")


def test_requests_that_are_none_are_refused_with_one_line_on_the_terminal(
    page_server: PageServer, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = f"Host: {page_server.address}\r\n"
    for head in (
        f"GET / HTTP/1.1\r\n{host}{host}\r\n",
        f"GET / HTTP/1.1\r\n{host}Host: evil.com\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET /\r\n\r\n",
        "\x00\x1b[2J\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}X: {'a' * 40_000}",
        f"GET /{'a' * 40_000}",
        f"GET / HTTP/1.1\r\n{'X: a' * 9_000}",
        f"POST /api/runs HTTP/1.1\r\n{host}Content-Length: {'9' * 5_000}\r\n\r\n",
    ):
        assert status_line(page_server, head) == 400, head[:60]
    assert status_line(page_server, f"GET /api/runs HTTP/1.1\r\n{host}\r\n") == 200
    assert said == ["Invalid HTTP request received."]
    monkeypatch.setattr(serving, "SECONDS_BETWEEN_WARNINGS", 0.0)
    status_line(page_server, "x\r\n\r\n")
    assert said[1:] == ["Invalid HTTP request received. (8 more since the last line like this)"]


def test_text_that_is_no_text_is_one_line_on_the_terminal_and_no_traceback(
    page_server: PageServer, said: list[str]
) -> None:
    for _ in range(3):
        with connect(f"ws://{page_server.address}/api/live") as browser:
            browser.send(b"\xff", text=True)
            with pytest.raises(ConnectionClosed):
                browser.recv(10)
    assert said == ["Invalid UTF-8 sequence received from client."]


def test_requests_that_do_not_arrive_hold_no_connection_for_long(
    serve_page: Callable[..., PageServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 1.0)
    server = serve_page()
    host, _, port = server.address.partition(":")
    slow = [socket.create_connection((host, int(port)), 60) for _ in range(40)]
    for part in (b"GET / HTTP/1.1\r\n", b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"):
        for each in slow[-6:]:
            with contextlib.suppress(OSError):
                each.sendall(part)
        assert ask(server, "/api/runs")[0] == 200, "slow ones keep others out"
    for each in slow:
        with contextlib.suppress(OSError):
            while each.recv(4096):  # ends when the server closes it
                pass
        each.close()


def test_a_websocket_opens_for_the_page_alone(serve_page: Callable[..., PageServer]) -> None:
    server = serve_page(token=TOKEN)
    own, name = f"http://{server.address}", f"scramjet-{server.address.partition(':')[2]}"
    for status, headers in (
        (101, {"origin": own, "cookie": f"{name}={TOKEN}"}),
        (403, {"origin": "http://evil.example", "cookie": f"{name}={TOKEN}"}),
        (403, {"origin": "http://[", "cookie": f"{name}={TOKEN}"}),
        (403, {"origin": own}),
        (403, {"origin": own, "cookie": f"{name}=wrong"}),
    ):
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        head = (
            f"GET /api/live HTTP/1.1\r\nHost: {server.address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{lines}\r\n"
        )
        assert status_line(server, head) == status, headers


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


def test_huge_bodies_are_refused_and_answers_forbid_what_a_page_could_be_misused_for(page_server: PageServer) -> None:
    assert ask(page_server, "/api/runs", "POST", b"x" * 100_000)[0] == 413
    head = f"GET /api/runs HTTP/1.1\r\nHost: {page_server.address}\r\nContent-Length: 999999999999\r\n\r\n"
    assert status_line(page_server, head) == 413
    for path in ("/", "/api/runs", "/api/nothing", "/../x"):
        headers = ask(page_server, path)[2]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "http" not in policy
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert headers["referrer-policy"] == "no-referrer"


def test_a_config_of_fifty_megabytes_and_other_odd_files_are_answered(page_server: PageServer) -> None:
    (make_run(page_server.runs_dir, "big") / "config.toml").write_bytes(b"# " + b"x" * 50_000_000)
    (make_run(page_server.runs_dir, "deep") / "lineage.json").write_text("[" * 100_000)
    metrics = make_run(page_server.runs_dir, "linked") / "metrics.jsonl"
    metrics.unlink()
    metrics.symlink_to("/etc/passwd")
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
