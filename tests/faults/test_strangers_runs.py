"""A run folder that a stranger made: whatever stands in place of its files, commands end at once with one message.

Nothing is followed, written or removed outside the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import scramjet
from scramjet.cli import main
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.runtime.metrics_log import MetricsLog, read_metrics
from scramjet.runtime.runs import Run
from scramjet.training import config_files
from scramjet.training.collecting import cut_schedule

pytestmark = pytest.mark.faults

SETTINGS = ["--num-envs", 4, "--num-steps", 8, "--num-threads", 1, "--eval.final-episodes", 0, "--eval.every", 0]
SETTINGS += ["--display", "quiet"]
STEP = "checkpoints/step_00000128"
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
SECONDS = 20


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints, stopped before its end."""
    runs = tmp_path_factory.mktemp("honest")
    words = ["cartpole", *SETTINGS, "--total-timesteps", "128", "--checkpoint.every", "2"]
    assert command("train", *words, "--runs-dir", runs, "--run-name", "run")[0] == 0
    (runs / "run" / "schedule.jsonl").write_text('{"run":{}}\n')
    return runs / "run"


def command(*words: object) -> tuple[int, str]:
    """Run a command; returns its exit code and all it printed. It may take no longer than SECONDS."""
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
        within(SECONDS),
        pytest.raises(SystemExit) as ending,
    ):
        main([str(word) for word in words])
    return int(str(ending.value.code)), output.getvalue()


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    def give_up(number: int, frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def resume(run: Path, tmp_path: Path) -> tuple[int, str]:
    return command("train", "--resume", run, "--total-timesteps", 256, "--display", "quiet")


def fork(run: Path, tmp_path: Path) -> tuple[int, str]:
    words = ("--total-timesteps", 256, "--runs-dir", tmp_path / "forks", "--display", "quiet")
    return command("train", "--fork", run, *words)


def evaluate(run: Path, tmp_path: Path) -> tuple[int, str]:
    return command("eval", run, "--episodes", 1)


def evaluate_latest(run: Path, tmp_path: Path) -> tuple[int, str]:
    return command("eval", run / "checkpoints" / "latest", "--episodes", 1)


def load(run: Path, tmp_path: Path) -> tuple[int, str]:
    try:
        with within(SECONDS):
            scramjet.load_policy(run)
    except scramjet.ScramjetError as error:
        return 2, f"scramjet: {error}\n"
    return 0, ""


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


def link_to_zeros(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to("/dev/zero")


def link_to_itself(path: Path, outside: Path) -> None:
    remove(path)
    path.symlink_to(path.name)


def hard_link(path: Path, outside: Path) -> None:
    remove(path)
    os.link(outside / "thesis.txt", path)


def pipe(path: Path, outside: Path) -> None:
    remove(path)
    os.mkfifo(path)


def folder(path: Path, outside: Path) -> None:
    remove(path)
    path.mkdir()


def empty_file(path: Path, outside: Path) -> None:
    remove(path)
    path.touch()


def garbage(path: Path, outside: Path) -> None:
    remove(path)
    path.write_bytes(bytes(range(256)) * 40 + b"\n")


def huge_file(path: Path, outside: Path) -> None:
    remove(path)
    path.touch()
    os.truncate(path, 1 << 42)  # four terabytes of nothing


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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


def go_on(run_path: Path) -> None:
    """What a resume does with the files of a run, without the training."""
    with Run.open(run_path).lock() as run:
        config_files.load_frozen(run.config_path)
        store = CheckpointStore(run.checkpoints_path, 1, run.check_lock)
        checkpoint, _ = store.load_latest_whole()
        with MetricsLog(run.metrics_path, run.check_lock) as log:
            log.truncate_after(checkpoint.step if checkpoint else -1)
            cut_schedule(run.path / "schedule.jsonl", 1)
            log.append({"step": 160})
            store.save(128, {}, {}, {}, is_best=True)
            store.save(160, {}, {}, {})


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


def copy_as_it_is(source: Path, target: Path) -> None:
    """Copy a tree with its links, pipes, holes and second names as they are."""
    target.mkdir()
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        status = path.lstat()
        if path.is_symlink():
            place.symlink_to(os.readlink(path))
        elif path.is_dir():
            place.mkdir()
        elif path.is_fifo():
            os.mkfifo(place)
        elif status.st_nlink > 1 or status.st_size > 1 << 40:
            os.link(path, place)
        else:
            shutil.copy2(path, place)


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
