"""Trackio: what a run sends is what its own database holds, each step once, also beside a run of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.tracked_runs import STEPS, fed, feed_twice, fork_of


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Trackio's storage in a folder of its own; the package reads where that is when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        pytest.importorskip("trackio")
        from trackio.sqlite_storage import SQLiteStorage

        yield SQLiteStorage


def rows(storage: Any, run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = storage.get_logs("scramjet", run)
    return found


def test_trackio_holds_each_step_of_a_resumed_run_once_and_another_run_of_its_name_apart(
    tmp_path: Path, storage: Any, capsys: pytest.CaptureFixture[str]
):
    feed_twice("trackio", tmp_path / "here")
    feed_twice("trackio", tmp_path / "there")
    with fed("trackio", fork_of(tmp_path / "here")) as feed:
        feed.close("stopped")
    capsys.readouterr()
    names = storage.get_runs("scramjet")
    (other,) = set(names) - {"first", "second"}
    assert other.startswith("first-")
    for name in ("first", other):
        history = rows(storage, name)
        assert [(row["step"], row["update"]) for row in history] == list(zip(STEPS, range(1, 6), strict=True))
        assert [row["step"] for row in history if "eval/mean_return" in row] == [2000, 4000]
        assert all("value_loss" not in row and "time/elapsed_seconds" in row for row in history)
    assert storage.get_run_config("scramjet", "first")["env.name"] == "cartpole"
    assert storage.get_run_config("scramjet", "second")["parent_run"] == "first"
