"""Forged metadata, tensors and folders of a stranger's checkpoint: refused with one message, at once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

import scramjet
from scramjet.errors import shortened
from scramjet.runtime.checkpoint_format import _digest
from scramjet.runtime.checkpoints import load_checkpoint
from tests.helpers.strangers_runs import (
    STEP,
    copy_as_it_is,
    evaluate,
    fork,
    go_on,
    load,
    resume,
)

pytestmark = pytest.mark.faults


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
