"""A run folder that a stranger made: whatever stands in place of its files, commands end at once with one message.

Nothing is followed, written or removed outside the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch

import scramjet
from scramjet.cli import main
from scramjet.errors import shortened
from scramjet.runtime.checkpoint_format import _digest
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.runtime.metrics_log import MetricsLog, read_metrics
from scramjet.runtime.runs import Run
from scramjet.training.collector import cut_schedule
from scramjet.training.config import files as config_files

pytestmark = pytest.mark.faults

SETTINGS = ["--num-envs", 4, "--num-steps", 8, "--num-threads", 1, "--eval.final-episodes", 0, "--eval.every", 0]
SETTINGS += ["--display", "quiet", "--normalize-rewards"]
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


def forge(run: Path, change: Callable[[dict], None]) -> None:
    """Change the newest checkpoint's metadata as someone would who also knows how to make its hash right."""
    path = run / STEP / "metadata.json"
    record = json.loads(path.read_text())
    del record["sha256"], record["signature"]
    change(record)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        record["sha256"] = _digest(record)
        path.write_text(json.dumps(record))
    finally:
        sys.setrecursionlimit(limit)


def nested(depth: int) -> dict:
    lineage: dict = {}
    for _ in range(depth):
        lineage = {"parent_lineage": lineage}
    return lineage


FORGERIES: list[tuple[str, object]] = [
    ("elapsed_seconds", float("nan")),
    ("elapsed_seconds", float("inf")),
    ("elapsed_seconds", 1e300),
    ("elapsed_seconds", 10**400),
    ("elapsed_seconds", -1.0),
    ("elapsed_seconds", True),
    ("best_return", float("-inf")),
    ("best_return", 10**400),
    ("best_return", "1"),
    ("best_lower_bound", float("nan")),
    ("best_lower_bound", float("inf")),
    ("best_lower_bound", 10**400),
    ("best_lower_bound", True),
    ("best_lower_bound", "1"),
    ("update", -1),
    ("update", 1.5),
    ("update", 2**63),
    ("update", 10**9),
    ("lineage", nested(980)),
    ("lineage", nested(300)),
    ("lineage", [1]),
    ("network", "\x1b[2J"),
    ("observation_space", "\x1b]0;pwned\x07" + "x" * 10**5),
    ("config", nested(90)),
    ("config", {"env": {"name": "\x1b[2J"}}),
    ("config", {"\x1b[2J": 1}),
    ("config", {"seed": 10**3000}),
]


@pytest.mark.parametrize(("name", "value"), FORGERIES, ids=lambda value: shortened(value)[:20])
def test_forged_metadata_is_one_message_without_control_characters(
    trained: Path, tmp_path: Path, name: str, value: object
) -> None:
    for act in (resume, fork):
        run = tmp_path / act.__name__
        copy_as_it_is(trained, run)
        shutil.rmtree(run / "checkpoints" / "step_00000064")  # nothing to fall back on
        forge(run, lambda record: record["metadata"].update({name: value}))
        code, output = act(run, tmp_path)
        if name == "update" and isinstance(value, int) and value >= 0 and act is fork:
            continue  # a fork counts its own updates
        assert code == 2, output
        assert output.startswith("scramjet: ")
        assert output.count("\n") == 1
        assert "\x1b" not in output
        assert len(output) < 5_000


@pytest.mark.parametrize("step", [-1, 2**63, 10**30, 1.5, None])
def test_a_step_that_is_no_count_is_refused(trained: Path, tmp_path: Path, step: object) -> None:
    copy_as_it_is(trained, tmp_path / "run")
    forge(tmp_path / "run", lambda record: record.update(step=step))
    with pytest.raises(scramjet.ScramjetError, match="lacks a field or has one of the wrong kind"):
        load_checkpoint(tmp_path / "run" / STEP)


def test_a_file_said_to_be_larger_than_memory_is_not_read(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    copy_as_it_is(trained, run)
    os.truncate(run / STEP / "model.safetensors", 1 << 42)
    forge(run, lambda record: record["files"]["model.safetensors"].update(bytes=1 << 42))
    with pytest.raises(scramjet.ScramjetError, match="more than this machine can load"):
        load_checkpoint(run / STEP)


def test_forks_of_forks_keep_a_lineage_of_bounded_depth(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    copy_as_it_is(trained, run)
    forge(run, lambda record: record["metadata"].update(lineage=nested(90)))
    code, output = fork(run, tmp_path)
    assert code == 0, output
    lineage, depth = json.loads((tmp_path / "forks" / "cartpole-1" / "lineage.json").read_text()), 0
    while lineage is not None:
        lineage, depth = lineage.get("parent_lineage"), depth + 1
    assert depth == 51
    assert evaluate(tmp_path / "forks" / "cartpole-1", tmp_path)[0] == 0


@pytest.mark.parametrize("place", ["checkpoints/.tmp-1", "checkpoints/.old-step_00000128", f"{STEP}/.tmp-1"])
def test_folders_thousands_deep_are_passed_over(trained: Path, tmp_path: Path, place: str) -> None:
    copy_as_it_is(trained, tmp_path / "run")
    descriptor = os.open(tmp_path / "run" / Path(place).parent, os.O_RDONLY)
    for name in (Path(place).name, *["x"] * 2_000):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    try:
        go_on(tmp_path / "run")
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "run"], check=True)  # pytest could not either


def forge_tensor(run: Path, file: str, name: str, tensor: torch.Tensor) -> None:
    """Put another tensor into the newest checkpoint, with the hashes made right."""
    path = run / STEP / file
    data = safetensors.torch.save(safetensors.torch.load(path.read_bytes()) | {name: tensor})
    path.write_bytes(data)
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    forge(run, lambda record: record["files"].update({file: entry}))


FORGED_TENSORS = [
    ("model.safetensors", "network.critic_head.bias", torch.zeros(1, dtype=torch.complex64), (resume, fork, load)),
    ("trainer.safetensors", "progress/returns", torch.zeros(3, 3, dtype=torch.float64), (resume,)),
    ("trainer.safetensors", "progress/lengths", torch.zeros(3, dtype=torch.complex64), (resume,)),
    ("trainer.safetensors", "optimizer/unknown/step", torch.zeros(()), (resume, fork)),
    ("trainer.safetensors", "reward_scaler/moments", torch.zeros(7), (resume, fork)),
    ("trainer.safetensors", "pool/tick", torch.tensor([float("inf")]), (resume,)),
    ("trainer.safetensors", "rng/shuffle", torch.full((5056,), 255, dtype=torch.uint8), (resume,)),
    ("trainer.safetensors", "rng/torch", torch.full((16,), 255, dtype=torch.uint8), (resume,)),
]


@pytest.mark.parametrize(("file", "name", "tensor", "acts"), FORGED_TENSORS, ids=[each[1] for each in FORGED_TENSORS])
def test_a_forged_tensor_is_one_message(
    trained: Path, tmp_path: Path, file: str, name: str, tensor: torch.Tensor, acts: tuple[Callable, ...]
) -> None:
    for act in acts:
        run = tmp_path / act.__name__
        copy_as_it_is(trained, run)
        shutil.rmtree(run / "checkpoints" / "step_00000064")
        forge_tensor(run, file, name, tensor)
        code, output = act(run, tmp_path)
        assert code == 2
        assert output.startswith(f"scramjet: '{run}/checkpoints/step_00000128' ")
        assert output.count("\n") == 1


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n" for before, after in itertools.pairwise("abcdefghi")
)
CONFIGS = {
    "bomb.yaml": BOMB + "seed: *i\n",
    "merge.yaml": "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nseed: 1\n",
    "itself.yaml": "seed: &a [*a]\n",
    "deep.toml": "env = {name = 'cartpole', x = " + "[" * 200 + "]" * 200 + "}",
    "deep.yaml": "seed: " + "[" * 400 + "]" * 400,
    "long.toml": f"seed = {'[' + '1,' * 10_000 + ']'}",
    "dots.toml": "a." * 100_000 + "b = 1",
    "quoted dots.toml": '"=" . ' * 100_000 + "b = 1",
    "dots in a table.toml": "env = {" + "a." * 100_000 + "b = 1}",
    "bits.toml": f"seed = 0x{'f' * 6_000}",
    "digits.yaml": f"seed: {'1' * 5_000}",
    "escape.toml": 'env = "\\u001b[2Jcartpole"',
    "keys.yaml": '"\\x1b[2J": 1',
    "bytes.toml": b"seed = 1\xff",
    "large.toml": b"#" * (1 << 20) + b"\n",
    "large.yaml": b"#" * (1 << 20),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_strangers_config_file_is_one_message(name: str, tmp_path: Path) -> None:
    content = CONFIGS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    code, output = command("train", "--config", tmp_path / name, "--help")
    assert code == 2
    assert output.startswith("scramjet: ")
    assert "\x1b" not in output
    assert len(output) < 5_000


@pytest.mark.parametrize("kind", [pipe, folder, huge_file, link_to_zeros], ids=lambda kind: kind.__name__)
def test_a_config_file_that_is_no_file_is_told_at_once(kind: Callable[[Path, Path], None], tmp_path: Path) -> None:
    kind(tmp_path / "mine.toml", tmp_path)
    code, output = command("train", "--config", tmp_path / "mine.toml")
    assert code == 2
    assert output.startswith(f"scramjet: cannot read the config file {tmp_path}/mine.toml: it ")


def test_a_config_file_may_be_a_link_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("seed = -1\n")
    (tmp_path / "mine.toml").symlink_to("real.toml")
    assert "seed=-1" in command("train", "--config", tmp_path / "mine.toml")[1]
