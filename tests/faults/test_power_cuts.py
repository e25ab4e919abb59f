"""A power cut at any moment of a run leaves the run whole, at the newest checkpoint that was reported saved or later.

Runs are recorded, and every state that their disk may be in after a crash is rebuilt and looked at.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import scramjet
from scramjet.errors import CheckpointError
from scramjet.runtime.checkpoints import CheckpointStore, load_checkpoint, step_name
from scramjet.runtime.metrics_log import MetricsLog, read_metrics
from scramjet.runtime.runs import Run
from scramjet.training.config.files import load_frozen
from tests.helpers.power_cut import (
    ROOT,
    Content,
    Disk,
    Event,
    Names,
    Recording,
    Sync,
    compile_recorder,
    crashes,
    read_tree,
    write_tree,
)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("cc"), reason="needs Linux and cc"),
]

BATCH = 8
RUNS = "deep/er/runs"
SCRIPT = f"""
import os, sys
from pathlib import Path
import torch
import scramjet
from scramjet.policies import PolicyConfig
from scramjet.runtime.checkpoints import CheckpointStore
from scramjet.runtime.metrics_log import MetricsLog
from scramjet.runtime.runs import Run
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.config.files import to_toml

runs = Path(sys.argv[1]) / "{RUNS}"
config = RunConfig(
    env="cartpole", num_envs=2, num_steps=4, num_threads=1, total_timesteps={BATCH} * 3,
    checkpoint=CheckpointConfig(every=2, keep_last_n=2), eval=EvaluationConfig(every=2, episodes=1, final_episodes=0),
    policy=PolicyConfig(hidden=(2,)),
)

def say(text):
    os.write(1, text.encode() + b"\\n")  # in one piece

def begin(name):
    say("run " + name)

begin("first")
scramjet.train(config, runs_dir=runs, run_name="first", display="plain")
begin("first")
scramjet.train(resume=runs / "first", total_timesteps={BATCH} * 5, display="plain")
begin("fork")
scramjet.train(fork=runs / "first", runs_dir=runs, run_name="fork", total_timesteps={BATCH} * 6, display="plain")

begin("again")  # checkpoints saved over others, as after a resume from before them
with Run.create(runs, "again", to_toml(config)) as run, MetricsLog(run.metrics_path) as log:
    store = CheckpointStore(run.checkpoints_path, 1)
    log.append({{"step": {BATCH}}})
    log.sync()
    for variant in range(3):
        model = {{"w": torch.full((2,), float(variant))}}
        store.save({BATCH}, model, {{}}, {{"variant": variant}}, is_best=variant == 0)
        say("saved step_{BATCH:08d}")
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Four runs of one process; the recording accounts for every byte of what they left."""
    folder = tmp_path_factory.mktemp("recorded").resolve()
    root = folder / "root"
    root.mkdir()
    surroundings = os.environ | {
        "LD_PRELOAD": str(compile_recorder(folder)),
        "DISK_RECORDER_ROOT": str(root),
        "DISK_RECORDER_LOG": str(folder / "recording"),
    }
    words = [sys.executable, "-c", SCRIPT, str(root)]
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    recording = Recording(folder / "recording", root)
    disk = Disk()
    for event in recording.events:
        if isinstance(event, Names | Content):
            disk.apply(event)
    recording.left = read_tree(root)
    assert disk.tree(recording.folders) == recording.left, "something was changed by a call that is not recorded"
    return recording


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


def check_all(recording: Recording, events: list[Event], folder: Path) -> int:
    """Check every state of every run after every crash; returns how many there were."""
    seen, num_said, newest = set(), -1, dict[str, int]()
    for said, disk in crashes(events):
        if len(said) != num_said:
            num_said, newest = len(said), claims(said)
        tree = disk.tree(recording.folders)
        for name in ("first", "fork", "again"):
            prefix = f"{RUNS}/{name}/"
            files = {path.removeprefix(prefix): each for path, each in tree.items() if path.startswith(prefix)}
            claim = newest.get(name, -1)
            key = name, claim, frozenset(files.items())
            if key not in seen:
                seen.add(key)
                with on_disk(files, folder / name) as run:
                    check(run, name, claim, exists=f"{RUNS}/{name}" in tree)
    return len(seen)


@contextlib.contextmanager
def on_disk(files: dict[str, bytes | str | None], folder: Path) -> Iterator[Path]:
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


def check(run: Path, name: str, claim: int, *, exists: bool) -> None:
    """What is promised of a run after a power cut, where a checkpoint of step `claim` had been reported saved."""
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
    checkpoint = load_checkpoint(run)
    assert checkpoint.step >= claim
    with Run.open(run).lock(), MetricsLog(run / "metrics.jsonl") as log:
        store = CheckpointStore(run / "checkpoints")
        assert load_checkpoint(run / "checkpoints" / "latest").step == checkpoint.step
        if os.path.lexists(run / "checkpoints" / "best"):
            load_checkpoint(run / "checkpoints" / "best")
        assert store.load_latest_whole()[0] is not None
        log.truncate_after(checkpoint.step)
        first = 6 if name == "fork" else 1
        expected = list(range(first * BATCH, checkpoint.step + 1, BATCH))
        assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == expected


def test_after_a_power_cut_at_any_moment_the_newest_reported_checkpoint_is_there(
    recording: Recording, scratch: Path
) -> None:
    assert claims([event.text for event in recording.events if not isinstance(event, Names | Content | Sync)]) == {
        "first": 5 * BATCH,
        "fork": 6 * BATCH,
        "again": BATCH,
    }
    assert check_all(recording, recording.events, scratch) > 300


def test_without_its_syncs_the_same_run_would_be_lost(recording: Recording, scratch: Path) -> None:
    """The check can fail."""
    meanings = [each for event in recording.events if isinstance(event, Names) for each in event.meanings]
    unsynced = {
        "the parent of the runs": {ROOT},
        "the metrics": {number for name, number in meanings if name == "metrics.jsonl"},
        "all folders": recording.folders,
        "all files": {number for _, number in meanings} - recording.folders,
    }
    for lost in unsynced.values():
        events = [event for event in recording.events if not isinstance(event, Sync) or event.owner not in lost]
        with pytest.raises((AssertionError, scramjet.ScramjetError)):
            check_all(recording, events, scratch)


def test_a_run_resumed_after_a_power_cut_ends_with_the_same_weights(recording: Recording, scratch: Path) -> None:
    prefix, last = f"{RUNS}/first/", f"checkpoints/{step_name(5 * BATCH)}"
    states = []
    for said, disk in crashes(recording.events):
        tree = disk.tree(recording.folders)
        if claims(said).get("first", -1) >= 0 and prefix + last not in tree:
            states.append({path.removeprefix(prefix): each for path, each in tree.items() if path.startswith(prefix)})
    for state in random.Random(1).sample(states, 3):
        with on_disk(state, scratch / "run") as run:
            scramjet.train(resume=run, total_timesteps=5 * BATCH, display="quiet")
            assert (run / last / "model.safetensors").read_bytes() == recording.left[
                f"{prefix}{last}/model.safetensors"
            ]
