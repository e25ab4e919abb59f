"""Run folders written to break the page: one of them must not take the list of the others with it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from scramjet.web.runs.curves import RunCurves
from scramjet.web.runs.details import run_details
from scramjet.web.runs.facts import glance_at_config, read_spark
from scramjet.web.runs.index import RunIndex
from scramjet.web.server import make_app
from tests.helpers.page_runs import append, make_run, record


def test_a_number_beyond_all_floats_is_left_out_of_the_small_curve(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"return_100":1e999}\n')
    assert json.dumps(read_spark(path), allow_nan=False) == "[]"


@pytest.mark.parametrize(
    "metrics",
    [
        {"return_100": 10**400},
        {"approx_kl": 10**400, "entropy": 10**400},
        {"update": "many"},
        {"update": [1]},
        {"time": {"elapsed_seconds": 10**400, "steps_per_second": 10**400}},
    ],
)
def test_wrong_numbers_in_a_record_end_no_look_at_the_folder(metrics: dict[str, Any], tmp_path: Path) -> None:
    make_run(tmp_path, "fine")
    strange = make_run(tmp_path, "strange", 2)
    append(strange, {**record(3), **metrics})
    index = RunIndex(tmp_path)
    index.scan()
    rows = json.loads(json.dumps(index.rows(), allow_nan=False))
    assert {row["name"]: row["state"] for row in rows} == {"fine": "killed", "strange": "killed"}
    json.dumps(run_details(strange, RunCurves()), allow_nan=False)


@pytest.mark.parametrize("key", ["tags", "algorithm"])
def test_a_config_of_brackets_ends_no_look_at_the_folder(key: str, tmp_path: Path) -> None:
    strange = make_run(tmp_path, "strange") / "config.toml"
    brackets = "[" * 100_000 + "]" * 100_000
    lines = [line for line in strange.read_text().split("\n") if not line.startswith(f"{key} = ")]
    strange.write_text("\n".join([f"{key} = {brackets}", *lines]))
    index = RunIndex(tmp_path)
    index.scan()
    assert [row["name"] for row in index.rows()] == ["strange"]


def test_a_config_of_lists_that_never_end_is_read_at_once(tmp_path: Path) -> None:
    text = 'algorithm = "ppo"\n' + "tags = [\n" * 100_000 + '[env]\nname = "cartpole"\n'
    (tmp_path / "config.toml").write_text(text)
    began = time.process_time()
    assert glance_at_config(tmp_path).env == "cartpole"
    assert time.process_time() - began < 2


def test_runs_that_differ_in_seed_and_tags_are_one_group(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, "a"), make_run(tmp_path, "b", seed=2, tags=["x", "y [z]"])]
    first, second = map(glance_at_config, runs)
    assert first.group == second.group
    assert second.tags == ("x", "y [z]")


def test_a_message_of_brackets_closes_its_socket_and_is_no_error_of_the_server(tmp_path: Path) -> None:
    with (
        TestClient(make_app(tmp_path), headers={"host": "localhost"}) as client,
        client.websocket_connect("/api/live") as socket,
    ):
        socket.send_text("[" * 60_000)  # what the server raises is raised here, at the end


def test_a_run_that_came_since_the_last_look_is_listed(tmp_path: Path) -> None:
    index = RunIndex(tmp_path)
    index.scan()
    make_run(tmp_path, "new")
    assert [(row["name"], row["state"]) for row in index.rows()] == [("new", "pending")]
    changed, gone = index.scan()
    assert ([row["name"] for row in changed], gone) == (["new"], [])
    assert index.rows() == changed
