"""A run folder that a stranger made: whatever stands in place of its files or in them, commands end at once.

They say one message. Links are not followed, nothing outside the folder is touched, and nothing is read that is no
plain file.
"""

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
from collections.abc import Callable, Iterator
from itertools import filterfalse
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import scramjet
from scramjet.cli import main
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint
from scramjet.runtime.logs import MetricsLog, read_metrics
from scramjet.runtime.runs import Run
from scramjet.training.asynchronous.collector import cut_schedule
from scramjet.training.config import files as config_files
from tests.helpers.cases import rest
from tests.helpers.hostile_files import forge_metadata
from tests.helpers.written_runs import record_at, write_run

pytestmark = pytest.mark.faults

SETTINGS = (
    "--num-envs 4 --num-steps 8 --num-threads 1 --eval.final-episodes 0 --eval.every 0 --display quiet "
    "--normalize-rewards --total-timesteps 128 --checkpoint.every 2"
)
FIRST_STEP, STEP = "checkpoints/step_00000064", "checkpoints/step_00000128"
SECONDS = 60


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


def command(*words: object) -> tuple[int, str]:
    """Run a command; returns its exit code and all it printed."""
    output = io.StringIO()
    redirected = contextlib.redirect_stdout(output), contextlib.redirect_stderr(output)
    with redirected[0], redirected[1], within(SECONDS), pytest.raises(SystemExit) as ending:
        main([str(word) for word in words])
    return int(str(ending.value.code)), output.getvalue()


def told(output: str) -> bool:
    return output.startswith("scramjet: ") and output.count("\n") == 1 and "\x1b" not in output and len(output) < 5_000


Act = Callable[[Path, Path], tuple[int, str]]


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


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints, stopped before its end."""
    runs = tmp_path_factory.mktemp("honest")
    assert command("train", "cartpole", *SETTINGS.split(), "--runs-dir", runs, "--run-name", "run")[0] == 0
    (runs / "run" / "schedule.jsonl").write_text('{"run":{}}\n')
    return runs / "run"


def copy_of(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target, symlinks=True))


# --- what may stand in place of a file -----------------------------------------------------------------------


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_to_a_copy(path: Path, outside: Path) -> None:
    """The most tempting link: what it leads to is all right."""
    path.rename(outside / "copy")
    path.symlink_to(outside / "copy")


REPLACEMENTS: dict[str, Callable[[Path, Path], object]] = {
    "a link to a user's file": lambda path, outside: path.symlink_to(outside / "thesis.txt"),
    "a link to a user's folder": lambda path, outside: path.symlink_to(outside),
    "a link to zeros": lambda path, outside: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path, outside: path.symlink_to(path.name),
    "a hard link": lambda path, outside: os.link(outside / "thesis.txt", path),
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a folder": lambda path, outside: path.mkdir(),
    "an empty file": lambda path, outside: path.touch(),
    "garbage": lambda path, outside: path.write_bytes(bytes(range(256)) * 40 + b"\n"),
    "four terabytes of nothing": lambda path, outside: (path.touch(), os.truncate(path, 1 << 42)),
}


def replace(path: Path, kind: str, outside: Path) -> None:
    remove(path)
    REPLACEMENTS[kind](path, outside)


READERS: tuple[Callable[[Path], object], ...] = (
    load_checkpoint,
    lambda run: load_checkpoint(run / "checkpoints" / "latest"),
    lambda run: load_checkpoint(run / "checkpoints" / "best"),
    lambda run: load_checkpoint(run / STEP),
    lambda run: read_metrics(run / "metrics.jsonl"),
)
CORE_PLACES = ("metrics.jsonl", "checkpoints/latest", f"{STEP}/model.safetensors")
OTHER_PLACES = (
    *("config.toml", "lineage.json", ".lock", "schedule.jsonl", "checkpoints", "checkpoints/best"),
    *(STEP, f"{STEP}/metadata.json", f"{STEP}/trainer.safetensors"),
)


def contents(folder: Path) -> dict[str, str]:
    """Every path below a folder with what it is: a hash, a target, a kind."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        else:
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return found


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A user's own folder, with names that tempt."""
    folder = tmp_path / "outside"
    (folder / "step_00000032").mkdir(parents=True)
    (folder / "step_00000032" / "chapter").write_text("one")
    (folder / "thesis.txt").write_text("my thesis\n" * 100)
    (folder / ".tmp-mine").write_text("looks like ours")
    return folder


@pytest.mark.parametrize("place", [*CORE_PLACES, *map(rest, OTHER_PLACES)])
def test_nothing_hangs_nothing_outside_is_touched_and_commands_say_one_message_or_pass_over_it(
    trained: Path, tmp_path: Path, outside: Path, place: str
) -> None:
    for kind in ("a link to a copy", *REPLACEMENTS):
        forged = copy_of(trained, tmp_path / kind)
        if kind in REPLACEMENTS:
            replace(forged / place, kind, outside)
        elif (forged / place).exists():
            link_to_a_copy(forged / place, outside)
        before = contents(outside)
        for act in (*READERS, go_on):
            with within(SECONDS), contextlib.suppress(scramjet.ScramjetError):
                act(forged)
            assert contents(outside) == before, (kind, act)
        remove(outside / "copy")
    before = contents(outside)
    for kind, use in (("a pipe", resume), ("a link to a user's file", evaluate_latest)):
        run = copy_of(trained, tmp_path / "run")
        replace(run / place, kind, outside)
        code, output = use(run, tmp_path)
        assert code == 0 or (code == 2 and told(output)), output
        assert contents(outside) == before


def test_a_link_is_named_and_not_followed_even_to_a_good_copy(trained: Path, tmp_path: Path) -> None:
    for place, act in (
        ("config.toml", resume),
        ("metrics.jsonl", resume),
        (".lock", resume),
        ("checkpoints", resume),
        ("checkpoints", evaluate),
        ("checkpoints", fork),
        ("checkpoints", load),
        ("checkpoints/latest", evaluate_latest),
    ):
        run, outside = copy_of(trained, tmp_path / "run"), tmp_path / f"{act.__name__} {place}".replace("/", " ")
        outside.mkdir()
        if place == "checkpoints/latest":
            (run / place).unlink()
            shutil.copytree(run / STEP, outside / "step_00000128")
            (run / place).symlink_to(outside / "step_00000128")
        else:
            link_to_a_copy(run / place, outside)
        before = contents(run)
        code, output = act(run, tmp_path)
        assert code == 2, (place, act)
        assert re.search(f"{run / place}(: it)? is a symbolic link", output), output
        lock = {str(run / ".lock"): ""}  # says who looked last; all else is left as it was
        assert contents(run) | lock == before | lock


def test_files_with_a_second_name_are_not_written_to(trained: Path, tmp_path: Path) -> None:
    for place in ("metrics.jsonl", ".lock"):
        run = copy_of(trained, tmp_path / "run")
        os.link(run / place, tmp_path / f"other-{place}")
        before = (run / place).read_bytes()
        code, output = resume(run, tmp_path)
        assert code == 2
        assert f"{run / place} has 2 names (hard links)" in output
        assert (run / place).read_bytes() == before


def test_a_run_or_checkpoint_that_its_owner_linked_to_works_as_ever(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "favourite").symlink_to(trained / STEP)
    (tmp_path / "run").symlink_to(copy_of(trained, tmp_path / "elsewhere"))
    assert command("eval", tmp_path / "favourite", "--episodes", 1)[0] == 0
    for act in (evaluate_latest, fork, load, resume):
        code, output = act(tmp_path / "run", tmp_path)
        assert code == 0, output
    assert [record["step"] for record in read_metrics(tmp_path / "elsewhere" / "metrics.jsonl")][-1] == 256


def test_logs_of_millions_of_lines_are_cut_without_reading_each(tmp_path: Path, trained: Path) -> None:
    metrics, schedule = tmp_path / "metrics.jsonl", tmp_path / "schedule.jsonl"
    metrics.write_bytes(b'{"step":1}\n' + b'{"step":99999999}\n' * 2_000_000)
    schedule.write_bytes(b'{"play":0}\n{"learn":0}\n' * 3 + b"\n" * 20_000_000)
    with within(SECONDS), MetricsLog(metrics) as log:
        log.truncate_after(5)
        cut_schedule(schedule, 2)
    assert metrics.read_bytes() == b'{"step":1}\n'
    assert schedule.read_bytes() == b'{"play":0}\n{"learn":0}\n' * 2


@pytest.mark.parametrize(
    "place", ["checkpoints/.tmp-1", rest("checkpoints/.old-step_00000128"), rest(f"{STEP}/.tmp-1")]
)
def test_folders_thousands_deep_are_passed_over(trained: Path, tmp_path: Path, place: str) -> None:
    run = copy_of(trained, tmp_path / "run")
    descriptor = os.open(run / Path(place).parent, os.O_RDONLY)
    for name in (Path(place).name, *["x"] * 2_000):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    try:
        go_on(run)
    finally:
        subprocess.run(["rm", "-rf", run], check=True, timeout=60)  # pytest could not either


# --- forged contents -----------------------------------------------------------------------------------------


def forge(run: Path, change: Callable[[dict], Any]) -> Path:
    """Forge the newest checkpoint, and leave nothing to fall back on."""
    forge_metadata(run / STEP, change)
    shutil.rmtree(run / FIRST_STEP, ignore_errors=True)
    return run


def nested(depth: int) -> dict:
    lineage: dict = {}
    for _ in range(depth):
        lineage = {"parent_lineage": lineage}
    return lineage


FORGERIES: dict[str, list[Any]] = {
    "elapsed_seconds": [float("nan"), float("inf"), 1e300, 10**400, -1.0, True],
    "best_return": [10**400, float("-inf"), "1"],
    "best_lower_bound": [float("nan"), float("inf"), 10**400, True, "1"],
    "update": [-1, 1.5, 2**63, 10**9],
    "lineage": [nested(980), nested(300), [1]],
    "network": ["\x1b[2J"],
    "observation_space": ["\x1b]0;pwned\x07" + "x" * 10**5],
    "config": [nested(90), {"env": {"name": "\x1b[2J"}}, {"\x1b[2J": 1}, {"seed": 10**3000}],
}


@pytest.mark.parametrize("most", [1, rest(10)])
def test_forged_metadata_is_one_message_without_control_characters(trained: Path, tmp_path: Path, most: int) -> None:
    for name, values in FORGERIES.items():
        for value, act in itertools.product(values[:most], (resume, fork)):
            if name == "update" and act is fork and value != -1 and isinstance(value, int):
                continue  # a fork counts its own updates
            run = copy_of(trained, tmp_path / "run")
            forge(run, lambda record, name=name, value=value: record["metadata"].update({name: value}))
            code, output = act(run, tmp_path)
            assert (code, told(output)) == (2, True), (name, act.__name__, output)


def test_a_step_that_is_no_count_and_a_file_larger_than_memory_are_refused(trained: Path, tmp_path: Path) -> None:
    for step in (-1, 2**63, 10**30, 1.5, None):
        run = forge(copy_of(trained, tmp_path / "run"), lambda record, step=step: record.update(step=step))
        with pytest.raises(scramjet.ScramjetError, match="lacks a field or has one of the wrong kind"):
            load_checkpoint(run / STEP)
    run = copy_of(trained, tmp_path / "run")
    os.truncate(run / STEP / "model.safetensors", 1 << 42)
    forge(run, lambda record: record["files"]["model.safetensors"].update(bytes=1 << 42))
    with pytest.raises(scramjet.ScramjetError, match="more than this machine can load"):
        load_checkpoint(run / STEP)


def test_forks_of_forks_keep_a_lineage_of_bounded_depth(trained: Path, tmp_path: Path) -> None:
    run = forge(copy_of(trained, tmp_path / "run"), lambda record: record["metadata"].update(lineage=nested(90)))
    code, output = fork(run, tmp_path)
    assert code == 0, output
    lineage, depth = json.loads((tmp_path / "forks" / "cartpole-1" / "lineage.json").read_text()), 0
    while lineage is not None:
        lineage, depth = lineage.get("parent_lineage"), depth + 1
    assert depth == 51
    assert evaluate(tmp_path / "forks" / "cartpole-1", tmp_path)[0] == 0


FORGED_TENSORS: list[tuple[str, str, torch.Tensor, tuple[Act, ...]]] = [
    ("model", "network.critic_head.bias", torch.zeros(1, dtype=torch.complex64), (resume, fork, load)),
    ("trainer", "progress/returns", torch.zeros(3, 3, dtype=torch.float64), (resume,)),
    ("trainer", "progress/lengths", torch.zeros(3, dtype=torch.complex64), (resume,)),
    ("trainer", "optimizer/unknown/step", torch.zeros(()), (resume, fork)),
    ("trainer", "reward_scaler/moments", torch.zeros(7), (resume, fork)),
    ("trainer", "pool/tick", torch.tensor([float("inf")]), (resume,)),
    ("trainer", "rng/shuffle", torch.full((5056,), 255, dtype=torch.uint8), (resume,)),
    ("trainer", "rng/torch", torch.full((16,), 255, dtype=torch.uint8), (resume,)),
]


def test_a_forged_tensor_is_one_message(trained: Path, tmp_path: Path) -> None:
    for kind, name, tensor, acts in FORGED_TENSORS:
        for act in acts:
            run, file = copy_of(trained, tmp_path / "run"), f"{kind}.safetensors"
            data = safetensors.torch.save(safetensors.torch.load((run / STEP / file).read_bytes()) | {name: tensor})
            (run / STEP / file).write_bytes(data)
            entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            forge(run, lambda record, file=file, entry=entry: record["files"].update({file: entry}))
            code, output = act(run, tmp_path)
            assert (code, output.count("\n")) == (2, 1), (name, act.__name__, output)
            assert output.startswith(f"scramjet: '{run}/{STEP}' ")


ESCAPES = "\x1b[31m\x1b]0;pwned\x07\x9b2J\r\u202e"
"""Colours, a title, a cleared screen, and text that runs backwards: in a terminal none of it may arrive."""


def test_no_name_or_text_in_a_strangers_runs_reaches_the_terminal_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2, 3):
        records = [record_at(update, return_100=1.0, **{f"stat/{ESCAPES}": 1.0}) for update in (1, 2, 3)]
        env = {"name": f"maze{ESCAPES}", f"size{ESCAPES}": ESCAPES}
        settings = {"tags": [ESCAPES], "env": env, "algorithm": f"ppo{ESCAPES}", "learning_rate": 0.1 * seed}
        run = write_run(tmp_path / "runs", f"run-{seed}", records, seed=seed, **settings)
        lineage = {"parent_checkpoint": f"../{ESCAPES}/checkpoints/x", "changed": {ESCAPES: [ESCAPES, ESCAPES]}}
        (run / "lineage.json").write_text(json.dumps(lineage))
    run.rename(run.with_name(f"run-3{ESCAPES}"))
    said = [
        command(*words)
        for words in (
            ("compare", "runs"),
            ("compare", "runs", "--metric", "nothing"),
            ("plot", "runs"),
            ("plot", "runs", "--group-by", "nothing"),
            ("eval", "run-1"),
            ("train", "--resume", "runs/run-1"),
            ("tournament", "runs/run-1", "--random"),
            ("export-page", "run-2"),
        )
    ]
    assert [code for code, _ in said] == [0, 2, 0, 2, 2, 2, 2, 2]
    for _, output in said:
        assert output.isprintable() or set(filterfalse(str.isprintable, output)) == {"\n"}, repr(output)


# --- config files --------------------------------------------------------------------------------------------

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
    "tables.toml": "".join(f"[a{number}]\n" for number in range(70_000)),
    "tables in a table.toml": f"env = {{{', '.join(f'a{number} = {{}}' for number in range(40_000))}}}",
    "values.toml": f"env = {{a = [{'1,' * 300_000}]}}",
    "bits.toml": f"seed = 0x{'f' * 6_000}",
    "digits.yaml": f"seed: {'1' * 5_000}",
    "escape.toml": 'env = "\\u001b[2Jcartpole"',
    "keys.yaml": '"\\x1b[2J": 1',
    "bytes.toml": b"seed = 1\xff",
    "large.toml": b"#" * (1 << 20) + b"\n",
    "large.yaml": b"#" * (1 << 20),
}


def test_a_strangers_config_file_is_one_message(tmp_path: Path) -> None:
    for name, content in CONFIGS.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        code, output = command("train", "--config", tmp_path / name, "--help")
        assert (code, output.startswith("scramjet: ")) == (2, True), name
        assert ("\x1b" not in output, len(output) < 5_000) == (True, True), name


def test_a_config_file_that_is_no_file_is_told_at_once_and_may_be_a_link_of_the_users(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    for kind in ("a pipe", "a folder", "four terabytes of nothing", "a link to zeros"):
        replace(config, kind, tmp_path)
        code, output = command("train", "--config", config)
        assert code == 2
        assert output.startswith(f"scramjet: cannot read the config file {config}: it "), kind
    (tmp_path / "real.toml").write_text("seed = -1\n")
    config.unlink()
    config.symlink_to("real.toml")
    assert "seed=-1" in command("train", "--config", config)[1]
