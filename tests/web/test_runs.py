"""What the page is told of runs: one folder written to break the page must not take the others with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from scramjet.web.runs.curves import RunCurves
from scramjet.web.runs.details import run_details
from scramjet.web.runs.facts import glance_at_config, read_spark
from scramjet.web.runs.index import RunIndex
from tests.helpers.pages import PageServer, append, contrast, make_run, record
from tests.helpers.written_runs import record_at, write_run


def test_a_number_beyond_all_floats_is_left_out_of_the_small_curve(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"return_100":1e999}\n')
    assert json.dumps(read_spark(path), allow_nan=False) == "[]"


def test_wrong_numbers_in_a_record_end_no_look_at_the_folder(tmp_path: Path) -> None:
    make_run(tmp_path, "fine")
    for number, metrics in enumerate((
        {"return_100": 10**400}, {"approx_kl": 10**400, "entropy": 10**400}, {"update": "many"}, {"update": [1]},
        {"time": {"elapsed_seconds": 10**400, "steps_per_second": 10**400}},
    )):  # fmt: skip
        strange = make_run(tmp_path, f"strange-{number}", 2)
        append(strange, {**record(3), **metrics})
        json.dumps(run_details(strange, RunCurves()), allow_nan=False)
    rows = json.loads(json.dumps(looked_at(tmp_path), allow_nan=False))
    assert {row["name"]: row["state"] for row in rows} == dict.fromkeys(
        ("fine", *(f"strange-{number}" for number in range(5))), "killed"
    )


def looked_at(folder: Path) -> list[dict[str, Any]]:
    """The rows of a list of runs after one look at the folder."""
    index = RunIndex(folder)
    index.scan()
    return index.rows()


def test_a_config_of_brackets_ends_no_look_at_the_folder(tmp_path: Path) -> None:
    brackets = "[" * 100_000 + "]" * 100_000
    for key in ("tags", "algorithm"):
        config = make_run(tmp_path, key) / "config.toml"
        lines = [line for line in config.read_text().split("\n") if not line.startswith(f"{key} = ")]
        config.write_text("\n".join([f"{key} = {brackets}", *lines]))
    assert sorted(row["name"] for row in looked_at(tmp_path)) == ["algorithm", "tags"]


def test_a_config_of_lists_that_never_end_is_glanced_at_line_by_line(tmp_path: Path) -> None:
    text = 'algorithm = "ppo"\n' + "tags = [\n" * 100_000 + '[env]\nname = "cartpole"\n'
    (tmp_path / "config.toml").write_text(text)  # to look for the end of each would take minutes
    assert glance_at_config(tmp_path).env == "cartpole"


def test_runs_that_differ_in_seed_and_tags_are_one_group(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, "a"), make_run(tmp_path, "b", seed=2, tags=["x", "y [z]"])]
    first, second = map(glance_at_config, runs)
    assert first.group == second.group
    assert second.tags == ("x", "y [z]")
    other = glance_at_config(make_run(tmp_path, "c", env="maze"))
    assert other.group != first.group


def test_a_message_of_brackets_closes_its_socket_and_is_no_error_of_the_server(
    page_server: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(f"ws://{page_server.address}/api/live") as socket:
        socket.send("[" * 60_000)
        with pytest.raises(ConnectionClosed):
            [socket.recv(30) for _ in range(1000)]
    assert [each for each in caplog.records if each.exc_info] == []


def test_a_run_that_came_since_the_last_look_is_listed(tmp_path: Path) -> None:
    index = RunIndex(tmp_path)
    index.scan()
    make_run(tmp_path, "new")
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
