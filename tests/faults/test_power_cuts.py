"""A power cut at any moment of a run leaves the run whole, at the newest checkpoint that was reported saved or later.

Runs are recorded, and every state that their disk may be in after a crash is rebuilt and looked at. One of them is what
a kill -9 at that moment leaves: all that was done by then.
"""

import contextlib
import functools
import os
import pickle
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import scramjet
from scramjet.errors import CheckpointError
from scramjet.policies import PolicyConfig
from scramjet.runtime import checkpoints
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint, step_name
from scramjet.runtime.logs import MetricsLog, read_metrics
from scramjet.runtime.runs import Run
from scramjet.training.config.files import load_frozen, to_toml
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers.cases import rest
from tests.helpers.forked_commands import call
from tests.helpers.power_cut import (
    ROOT,
    Content,
    Disk,
    Event,
    Names,
    Recorder,
    Said,
    Sync,
    Tree,
    crashes,
    read_tree,
    write_tree,
)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the paths of open files in /proc"),
]

BATCH = 8
RUNS = "deep/er/runs"
CONFIG = RunConfig(
    env="cartpole", num_envs=2, num_steps=4, num_threads=1, total_timesteps=BATCH * 3, device="cpu",
    checkpoint=CheckpointConfig(every=2, keep_last_n=2), eval=EvaluationConfig(every=2, episodes=1, final_episodes=0),
    policy=PolicyConfig(hidden=(2,)),
)  # fmt: skip


def save_over_others(runs: Path) -> None:
    """Checkpoints saved over others, as after a resume from before them, and others pruned."""
    print("run again")
    with Run.create(runs, "again", to_toml(CONFIG)) as run, MetricsLog(run.metrics_path) as log:
        store = CheckpointStore(run.checkpoints_path, 1)
        for variant, step in enumerate((BATCH, BATCH, 2 * BATCH)):
            if step != log.last_step:
                log.append({"step": step})
                log.sync()
            store.save(step, {"w": torch.full((2,), float(variant))}, {}, {"n": variant}, is_best=variant != 1)
            print(f"saved step_{step:08d}")


def save_over_others_in_two_steps(runs: Path) -> None:
    """Where the system cannot exchange two folders."""
    checkpoints.exchange_paths = lambda first, second: False
    save_over_others(runs)


def train_resume_and_fork(runs: Path) -> None:
    print("run first")
    scramjet.train(CONFIG, runs_dir=runs, run_name="first", display="plain")
    scramjet.train(resume=runs / "first", total_timesteps=BATCH * 5, display="plain")
    print("run fork")
    scramjet.train(fork=runs / "first", runs_dir=runs, run_name="fork", total_timesteps=BATCH * 6, display="plain")


@dataclass
class Recording:
    """What a process did, and left; the one accounts for every byte of the other."""

    events: list[Event]
    folders: frozenset[int]
    left: Tree


def record(work: Callable[[Path], None], root: Path, log: Path) -> None:
    """Called in a process of its own."""
    recorder = Recorder(root)
    recorder.begin()
    checkpoints.exchange_paths = functools.partial(recorder.exchanged, checkpoints.exchange_paths)
    work(root / RUNS)
    log.write_bytes(pickle.dumps((recorder.events, frozenset(recorder.names))))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], Recording]:
    @functools.cache
    def recorded(work: Callable[[Path], None]) -> Recording:
        folder = tmp_path_factory.mktemp("recorded").resolve()
        (folder / "root").mkdir()
        call(record, work, folder / "root", folder / "log", output=folder / "output")
        events, folders = pickle.loads((folder / "log").read_bytes())
        disk = Disk()
        for event in events:
            if isinstance(event, Names | Content):
                disk.apply(event)
        left = read_tree(folder / "root")
        assert disk.tree(folders) == left, "something was changed by a call that is not recorded"
        return Recording(events, folders, left)

    return recorded


def claims(said: list[str]) -> dict[str, int]:
    """The newest step of each run that was reported saved; -1 for a run that had only begun."""
    newest: dict[str, int] = {}
    run = ""
    for line in said:
        if line.startswith("run "):
            run = line.removeprefix("run ")
            newest.setdefault(run, -1)
        elif match := re.fullmatch(r"saved step_(\d+)", line):
            newest[run] = int(match[1])
    return newest


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to rebuild disks in, in memory where there is such a filesystem."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def check_all(recording: Recording, folder: Path, lost: frozenset[int] | set[int] = frozenset(), **how: bool) -> int:
    """Check every state of every run after every crash, without the syncs of `lost`; returns how many there were."""
    seen, num_said, newest = set(), -1, dict[str, int]()
    events = [event for event in recording.events if not isinstance(event, Sync) or event.owner not in lost]
    for said, disk, is_kill in crashes(events):
        if len(said) != num_said:
            num_said, newest = len(said), claims(said)
        tree = disk.tree(recording.folders)
        for name in claims([event.text for event in events if isinstance(event, Said)]):
            files = of_run(tree, name)
            claim = newest.get(name, -1)
            key = name, claim, is_kill, frozenset(files.items())
            if key not in seen:
                seen.add(key)
                with on_disk(files, folder / name) as run:
                    check(run, name, claim, exists=f"{RUNS}/{name}" in tree, is_kill=is_kill, **how)
    return len(seen)


def of_run(tree: Tree, name: str) -> Tree:
    prefix = f"{RUNS}/{name}/"
    return {path.removeprefix(prefix): each for path, each in tree.items() if path.startswith(prefix)}


@contextlib.contextmanager
def on_disk(files: Tree, folder: Path) -> Iterator[Path]:
    write_tree(files, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@functools.cache
def load_config_text(text: str) -> None:
    """Raise an error unless this is a run's whole config."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(text)
        load_frozen(Path(folder) / "config.toml")


def check(run: Path, name: str, claim: int, *, exists: bool, is_kill: bool, has_gap: bool = False) -> None:
    """What is promised of a run after a power cut, where a checkpoint of step `claim` had been reported saved.

    `has_gap`: where folders cannot be exchanged, a checkpoint may be missing until the next writer starts.
    """
    if not exists:
        assert claim == -1, "a run that had reported a checkpoint is gone"
        return
    assert (run / "config.toml").exists()
    load_config_text((run / "config.toml").read_text())
    assert name != "fork" or (run / "lineage.json").stat().st_size > 100
    if claim == -1:
        with contextlib.suppress(CheckpointError):
            load_checkpoint(run)
        return
    if has_gap:
        CheckpointStore(run / "checkpoints")
    checkpoint = load_checkpoint(run)
    assert checkpoint.step >= claim
    with Run.open(run).lock(), MetricsLog(run / "metrics.jsonl") as log:
        store = CheckpointStore(run / "checkpoints")
        assert os.readlink(run / "checkpoints" / "latest") == checkpoint.path.name
        if os.path.lexists(run / "checkpoints" / "best"):
            load_checkpoint(run / "checkpoints" / "best")
        assert not checkpoint.is_best or os.readlink(run / "checkpoints" / "best") == checkpoint.path.name
        assert store.load_latest_whole()[0] is not None
        for step in store.steps() if is_kill else []:
            load_checkpoint(run / "checkpoints" / step_name(step))  # no part of one under a checkpoint's name
        assert not list((run / "checkpoints").glob(".*"))
        log.truncate_after(checkpoint.step)
        first = 6 if name == "fork" else 1
        expected = list(range(first * BATCH, checkpoint.step + 1, BATCH))
        assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == expected


@pytest.mark.parametrize(
    ("work", "newest", "num_states"),
    [
        (save_over_others, {"again": 2 * BATCH}, 50),
        (save_over_others_in_two_steps, {"again": 2 * BATCH}, 50),
        rest(train_resume_and_fork, {"first": 5 * BATCH, "fork": 6 * BATCH}, 300),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_after_a_power_cut_at_any_moment_the_newest_reported_checkpoint_is_there(
    work: Callable[[Path], None], newest: dict[str, int], num_states: int, recorded: Callable, scratch: Path
) -> None:
    recording = recorded(work)
    assert claims([event.text for event in recording.events if isinstance(event, Said)]) == newest
    assert check_all(recording, scratch, has_gap=work is save_over_others_in_two_steps) > num_states

    # The check can fail: without its syncs the same run would be lost.
    meanings = [each for event in recording.events if isinstance(event, Names) for each in event.meanings]
    files = {number for _, number in meanings if isinstance(number, int)} - recording.folders
    for lost in ({ROOT}, recording.folders, files, {number for name, number in meanings if name == "metrics.jsonl"}):
        with pytest.raises((AssertionError, scramjet.ScramjetError)):
            check_all(recording, scratch, lost, has_gap=work is save_over_others_in_two_steps)


@pytest.mark.rest
def test_a_run_resumed_after_a_power_cut_ends_with_the_same_weights(recorded: Callable, scratch: Path) -> None:
    recording, last, states = recorded(train_resume_and_fork), f"checkpoints/{step_name(5 * BATCH)}", []
    for said, disk, _ in crashes(recording.events):
        tree = of_run(disk.tree(recording.folders), "first")
        if claims(said).get("first", -1) >= 0 and last not in tree:
            states.append(tree)
    for state in random.Random(1).sample(states, 3):
        with on_disk(state, scratch / "run") as run:
            scramjet.train(resume=run, total_timesteps=5 * BATCH, display="quiet")
            weights = (run / last / "model.safetensors").read_bytes()
            assert weights == of_run(recording.left, "first")[f"{last}/model.safetensors"]
