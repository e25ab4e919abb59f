"""Aim: what a run sends is what Aim's own repository holds, each step once, and a resumed run is the same Aim run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.late_imports import skip_without
from tests.helpers.tracked_runs import STEPS, fed, feed_twice, fork_of

skip_without("aim")


def read(folder: Path, count: int) -> dict[str, Any]:
    """The runs of an Aim repository by name, indexed first, as `aim up` does; waits until it has found so many."""
    import aim
    from aim.sdk.index_manager import RepoIndexManager

    deadline = time.monotonic() + 20
    while True:
        repo = aim.Repo(str(folder))
        index = RepoIndexManager(repo)
        for run_hash in repo.list_all_runs():
            index.index(run_hash)
        runs = {run.name: run for run in repo.iter_runs()}
        if len(runs) == count or time.monotonic() > deadline:
            return runs
        time.sleep(0.2)


def series(run: Any, name: str) -> tuple[list[int], list[float]]:
    (found,) = (metric for metric in run.metrics() if metric.name == name)
    steps, (values, *_) = found.data.items_list()
    return list(steps), list(values)


def test_aim_holds_each_step_of_a_resumed_run_once_with_config_tags_and_summary_and_its_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from aim.storage.context import Context

    monkeypatch.chdir(tmp_path)
    feed_twice("aim", tmp_path / "runs")
    with fed("aim", fork_of(tmp_path / "runs")) as feed:
        feed.video(Path(__file__).with_name("dot.gif"), 3000)
        feed.close("stopped")
    runs = read(tmp_path, 2)
    first, second = runs["first"], runs["second"]
    assert series(first, "update") == (STEPS, [1, 2, 3, 4, 5])
    assert series(first, "return_100") == (STEPS, [0.5, 1.0, 1.5, 2.0, 2.5])
    assert series(first, "eval/mean_return") == ([2000, 4000], [7.5, 7.5])
    assert series(first, "time/elapsed_seconds")[1] == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert "value_loss" not in {metric.name for metric in first.metrics()}  # it was null
    assert first["config", "env.name"] == "cartpole"
    assert first["summary", "state"] == "finished"
    assert set(first.tags) == {"env cartpole", "algorithm ppo", "seed 3"}
    assert (first.experiment, first.active) == ("scramjet", False)
    assert second["lineage"] == {**second["lineage"], "parent_run": "first", "parent_step": 2000}
    assert second["lineage", "parent_hash"] == first.hash
    assert second.get_image_sequence("video", Context({})).last_step() == 3000
