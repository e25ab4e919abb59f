"""A run folder that a stranger made: whatever stands in place of its files, commands end at once with one message.

Links are not followed, nothing outside the folder is touched, and nothing is read that is no plain file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import scramjet
from scramjet.runtime.checkpoints import load_checkpoint
from scramjet.runtime.metrics_log import MetricsLog, read_metrics
from scramjet.training.asynchronous.schedule import cut_schedule
from tests.helpers.strangers_runs import (
    SECONDS,
    STEP,
    command,
    copy_as_it_is,
    evaluate,
    folder,
    fork,
    go_on,
    huge_file,
    link_to_zeros,
    load,
    pipe,
    remove,
    resume,
    within,
)

pytestmark = pytest.mark.faults

PLACES = (
    "config.toml",
    "metrics.jsonl",
    "lineage.json",
    ".lock",
    "schedule.jsonl",
    "checkpoints",
    "checkpoints/latest",
    "checkpoints/best",
    STEP,
    f"{STEP}/metadata.json",
    f"{STEP}/model.safetensors",
    f"{STEP}/trainer.safetensors",
)


def evaluate_latest(run: Path, tmp_path: Path) -> tuple[int, str]:
    return command("eval", run / "checkpoints" / "latest", "--episodes", 1)


def link_to_a_copy(path: Path, outside: Path) -> None:
    """The most tempting link: what it leads to is all right."""
    path.rename(outside / "copy")
    path.symlink_to(outside / "copy")


def link_to_a_users_file(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to(outside / "thesis.txt")


def link_to_a_users_folder(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to(outside)


def link_to_itself(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to(path.name)


def hard_link(path: Path, outside: Path) -> None:
    remove(path)
    os.link(outside / "thesis.txt", path)


def empty_file(path: Path, outside: Path) -> None:
    remove(path)
    path.touch()


def garbage(path: Path, outside: Path) -> None:
    remove(path)
    path.write_bytes(bytes(range(256)) * 40 + b"\n")


REPLACEMENTS = (
    link_to_a_copy,
    link_to_a_users_file,
    link_to_a_users_folder,
    link_to_zeros,
    link_to_itself,
    hard_link,
    pipe,
    folder,
    empty_file,
    garbage,
    huge_file,
)


def contents(folder: Path) -> dict[str, str]:
    """Every path below a folder with what it is: a hash, a target, a kind."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[str(path)] = "folder"
    return found


def test_logs_of_millions_of_lines_are_cut_at_once(tmp_path: Path) -> None:
    metrics, schedule = tmp_path / "metrics.jsonl", tmp_path / "schedule.jsonl"
    metrics.write_bytes(b'{"step":1}\n' + b'{"step":99999999}\n' * 2_000_000)
    schedule.write_bytes(b'{"play":0}\n{"learn":0}\n' * 3 + b"\n" * 20_000_000)
    begun = time.perf_counter()
    with MetricsLog(metrics) as log:
        log.truncate_after(5)
    cut_schedule(schedule, 2)
    assert time.perf_counter() - begun < 2
    assert metrics.read_bytes() == b'{"step":1}\n'
    assert schedule.read_bytes() == b'{"play":0}\n{"learn":0}\n' * 2


READERS: tuple[Callable[[Path], object], ...] = (
    load_checkpoint,
    lambda run: load_checkpoint(run / "checkpoints" / "latest"),
    lambda run: load_checkpoint(run / "checkpoints" / "best"),
    lambda run: load_checkpoint(run / STEP),
    lambda run: read_metrics(run / "metrics.jsonl"),
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A user's own folder, with names that tempt."""
    folder = tmp_path / "outside"
    (folder / "step_00000032").mkdir(parents=True)
    (folder / "step_00000032" / "chapter").write_text("one")
    (folder / "thesis.txt").write_text("my thesis\n" * 100)
    (folder / ".tmp-mine").write_text("looks like ours")
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_nothing_hangs_and_nothing_outside_is_touched(trained: Path, tmp_path: Path, outside: Path, place: str) -> None:
    for replace in REPLACEMENTS:
        if replace is link_to_a_copy and not (trained / place).exists():
            continue
        forged = tmp_path / replace.__name__
        copy_as_it_is(trained, forged)
        replace(forged / place, outside)
        before = contents(outside)
        for act in (*READERS, go_on):
            with within(SECONDS), contextlib.suppress(scramjet.ScramjetError):
                act(forged)
            assert contents(outside) == before, (replace.__name__, act)
        remove(outside / "copy")


@pytest.mark.parametrize("place", PLACES)
def test_commands_end_with_one_message_or_pass_over_it(
    trained: Path, tmp_path: Path, outside: Path, place: str
) -> None:
    for replace, act in ((pipe, resume), (link_to_a_users_file, evaluate_latest)):
        run = tmp_path / act.__name__
        copy_as_it_is(trained, run)
        replace(run / place, outside)
        before = contents(outside)
        code, output = act(run, tmp_path)
        assert code in (0, 2), output
        assert code == 0 or (output.startswith("scramjet: ") and output.count("\n") == 1), output
        assert contents(outside) == before


REFUSED = [
    ("config.toml", resume),
    ("metrics.jsonl", resume),
    (".lock", resume),
    ("checkpoints", resume),
    ("checkpoints", evaluate),
    ("checkpoints", fork),
    ("checkpoints", load),
    ("checkpoints/latest", evaluate_latest),
]


@pytest.mark.parametrize(("place", "act"), REFUSED, ids=lambda value: getattr(value, "__name__", value))
def test_a_link_is_named_and_not_followed_even_to_a_good_copy(
    trained: Path, tmp_path: Path, place: str, act: Callable[[Path, Path], tuple[int, str]]
) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    copy_as_it_is(trained, run)
    if place == "checkpoints/latest":
        (run / place).unlink()
        shutil.copytree(run / STEP, outside / "step_00000128")
        (run / place).symlink_to(outside / "step_00000128")
    else:
        link_to_a_copy(run / place, outside)
    code, output = act(run, tmp_path)
    assert code == 2
    assert re.search(f"{run / place}(: it)? is a symbolic link", output)


def test_files_with_a_second_name_are_not_written_to(trained: Path, tmp_path: Path) -> None:
    for place in ("metrics.jsonl", ".lock"):
        run = tmp_path / place.strip(".")
        copy_as_it_is(trained, run)
        os.link(run / place, tmp_path / f"other-{place}")
        before = (run / place).read_bytes()
        code, output = resume(run, tmp_path)
        assert code == 2
        assert f"{run / place} has 2 names (hard links)" in output
        assert (run / place).read_bytes() == before


def test_a_run_that_its_owner_linked_to_works_as_ever(trained: Path, tmp_path: Path) -> None:
    copy_as_it_is(trained, tmp_path / "elsewhere")
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    for act in (evaluate, evaluate_latest, fork, load, resume):
        code, output = act(tmp_path / "run", tmp_path)
        assert code == 0, output
    assert [record["step"] for record in read_metrics(tmp_path / "elsewhere" / "metrics.jsonl")][-1] == 256


def test_a_checkpoint_that_its_owner_linked_to_works_as_ever(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "favourite").symlink_to(trained / STEP)
    assert command("eval", tmp_path / "favourite", "--episodes", 1)[0] == 0


def test_the_run_itself_is_left_as_it_was_where_it_is_refused(trained: Path, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    copy_as_it_is(trained, run)
    link_to_a_copy(run / "metrics.jsonl", outside)
    before = contents(run)
    assert resume(run, tmp_path)[0] == 2
    after = contents(run)
    lock = str(run / ".lock")  # says who looked last
    assert {**after, lock: ""} == {**before, lock: ""}
