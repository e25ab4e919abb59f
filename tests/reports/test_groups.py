"""Runs are found by path, name, pattern or folder, and put together where only their seed differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scramjet.errors import ConfigError, RunError
from scramjet.reports.groups import configured, differing, flat, group_runs
from scramjet.reports.run_selection import find_runs
from tests.helpers.written_runs import record_at, write_run


def grouped(runs_dir: Path, by: tuple[str, ...] = ()) -> dict[str, list[str]]:
    runs, _ = configured(find_runs([str(runs_dir)], runs_dir))
    return {group.label: [run.name for run in group.runs] for group in group_runs(runs, by)}


def test_runs_are_found_by_path_name_pattern_and_folder_each_once(tmp_path: Path) -> None:
    for name in ("b-1", "b-2", "c"):
        write_run(tmp_path / "runs", name)
    (tmp_path / "runs" / "b-notes").mkdir()

    def found(*texts: str) -> list[str]:
        return [run.name for run in find_runs(texts, tmp_path / "runs")]

    assert found(str(tmp_path / "runs" / "c"), "b-1") == ["c", "b-1"]
    assert found("b-*", "b-1") == ["b-1", "b-2"]
    assert found(str(tmp_path / "runs" / "b-*")) == ["b-1", "b-2"]
    assert found(str(tmp_path / "runs"), "c") == ["b-1", "b-2", "c"]
    with pytest.raises(RunError, match="no run matches 'x-\\*'"):
        found("x-*")
    with pytest.raises(RunError, match=r"there is no run 'b-3' .* Did you mean 'b-2'"):
        found("b-3")
    with pytest.raises(RunError, match="is no run and holds none"):
        found(str(tmp_path / "runs" / "b-notes"))


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path: Path) -> None:
    for seed in (1, 2):
        for rate in (0.01, 0.002):
            write_run(tmp_path, f"run-{rate}-{seed}", seed=seed, learning_rate=rate, checkpoint={"every": seed})
    write_run(tmp_path, "run-0.01-3", seed=3, learning_rate=0.01, tags=["paper"], track=["aim"], video_every=9)
    assert grouped(tmp_path) == {
        "learning_rate 0.002": ["run-0.002-1", "run-0.002-2"],
        "learning_rate 0.01": ["run-0.01-1", "run-0.01-2", "run-0.01-3"],
    }


def test_runs_are_put_together_by_chosen_settings_under_the_names_people_use(tmp_path: Path) -> None:
    write_run(tmp_path, "a", env="maze", learning_rate=0.1, policy={"hidden": [8, 8]})
    write_run(tmp_path, "b", env="maze", learning_rate=0.2, policy={"hidden": [8, 8]})
    write_run(tmp_path, "c", env="snake", learning_rate=0.2, policy={"hidden": [16]})
    assert grouped(tmp_path, ("env",)) == {"maze": ["a", "b"], "snake": ["c"]}
    assert grouped(tmp_path, ("ppo.learning_rate",)) == {"learning_rate 0.1": ["a"], "learning_rate 0.2": ["b", "c"]}
    assert grouped(tmp_path, ("policy.hidden",)) == {"hidden 16": ["c"], "hidden 8x8": ["a", "b"]}
    with pytest.raises(ConfigError, match=r"--group-by lerning_rate: .* Did you mean 'learning_rate'"):
        grouped(tmp_path, ("lerning_rate",))


def test_groups_that_differ_in_much_are_told_apart_by_little(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path, f"a-{seed}", env="maze", seed=seed, gamma=0.1, num_envs=8, num_steps=4, device="cpu")
        write_run(tmp_path, f"b-{seed}", env="snake", seed=seed, gamma=0.2, num_envs=9, num_steps=5, device="cuda")
    assert grouped(tmp_path) == {"maze": ["a-1", "a-2"], "snake": ["b-1", "b-2"]}


def test_groups_without_a_short_label_are_called_by_a_run(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path, f"a-{seed}", seed=seed, path="x" * 30 + "a")
    write_run(tmp_path, "b", seed=1, path="x" * 30 + "b")
    assert grouped(tmp_path) == {"b": ["b"], "a-1 and seeds": ["a-1", "a-2"]}


def test_runs_that_are_each_alone_keep_their_names(tmp_path: Path) -> None:
    write_run(tmp_path, "fast", learning_rate=0.1)
    write_run(tmp_path, "slow", learning_rate=0.2)
    assert grouped(tmp_path) == {"fast": ["fast"], "slow": ["slow"]}


def test_a_fork_is_not_taken_for_another_seed_of_its_parent(tmp_path: Path) -> None:
    lineage = {"parent_checkpoint": "../a/checkpoints/step_00001000", "parent_step": 1000, "changed": {}}
    write_run(tmp_path, "a", seed=1)
    write_run(tmp_path, "b", seed=2)
    write_run(tmp_path, "child", seed=1, lineage=lineage)
    assert sorted(map(sorted, grouped(tmp_path).values())) == [["a", "b"], ["child"]]


def test_a_run_without_a_readable_config_is_left_out_with_a_note(tmp_path: Path) -> None:
    write_run(tmp_path, "good", [record_at(1)])
    (write_run(tmp_path, "bad", [record_at(1)]) / "config.toml").write_bytes(b"\0")
    runs, notes = configured(find_runs([str(tmp_path)], tmp_path))
    assert [run.run.name for run in runs] == ["good"]
    assert [note.startswith("bad is left out: ") for note in notes] == [True]


def test_nested_settings_have_flat_names_and_those_that_differ_are_found() -> None:
    first = flat({"a": 1, "b": {"c": [1, 2], "d": {"e": None}}})
    assert first == {"a": 1, "b.c": [1, 2], "b.d.e": None}
    assert differing([first, {**first, "a": 2}, {**first, "z": 3}]) == ["a", "z"]
    assert differing([first, dict(first)]) == []


def test_a_pattern_that_other_files_here_match_finds_the_runs_in_the_runs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs", "b-1")
    (tmp_path / "b-notes.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert [run.name for run in find_runs(["b-*"], Path("runs"))] == ["b-1"]


def test_tracking_videos_and_tags_keep_no_runs_apart(tmp_path: Path) -> None:
    write_run(tmp_path, "plain", seed=1)
    write_run(tmp_path, "told", seed=2, track=["aim"], track_project="boards", video_every=5, log_info=["y"])
    assert list(grouped(tmp_path).values()) == [["plain", "told"]]
